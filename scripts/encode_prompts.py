#!/usr/bin/env python3
"""Writes the text embeddings of prompts, as Qwen-Image's text encoder gives them, into one safetensors file.

Usage: encode_prompts.py --model MODEL --prompts FILE [FILE ...] --output EMBEDDINGS.safetensors
       [--negative TEXT] [--max-length N] [--dtype bf16|fp32] [--device cpu|cuda] [--batch N]

MODEL is a published Qwen-Image folder, of which text_encoder/ (Qwen2.5-VL) and tokenizer/ are read. Prompt files are
GenEval .jsonl ("prompt") or .txt (a line each), read as the program reads them. The negative prompt is always encoded.

An embedding is what diffusers' QwenImagePipeline.encode_prompt gives for the prompt by itself: the last hidden state
after the final norm, of the prompt in the chat template, without the template's first part (34 tokens of the published
tokenizer) and cut to --max-length tokens.

Output: one tensor [tokens, width] per prompt, BF16 or F32 after --dtype, which is also what is computed in. Its name is
the prompt's id, FNV-1a 64 of the UTF-8 text in 16 hexadecimal digits. Metadata: format "spotlight-embeddings", version
"1", encoder (folder name and hash of config, tokenizer and parts of the weights), max_length.

May be killed at any time: what is done lies in EMBEDDINGS.safetensors.parts/, and the next run goes on from there. A
finished file is extended by the prompts it lacks, never mixed with those of another encoder, length or dtype.

Exit code: 0 done; 2 a user's mistake, named in one line; 74 the file system failed, start again later.
Needs torch and transformers (scripts/setup.sh --python). Template and slicing: qwen_image.md 2; diffusers 0.42.
"""

import argparse
import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import pathlib
import shutil
import struct
import sys
import time

PREFIX = (
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial "
    "relationships of the objects and background:<|im_end|>\n<|im_start|>user\n"
)
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n"
PUBLISHED_PREFIX_TOKENS = 34
MAX_TOKENS = 1024  # of a prompt and the template's end; the pipeline's limit
ENCODER_CLASS = "Qwen2_5_VLForConditionalGeneration"
FORMAT, VERSION = "spotlight-embeddings", "1"
PART_PROMPTS = 256
DTYPE_NAMES = {"bf16": "BF16", "fp32": "F32"}
MIB = 1 << 20


class UserError(Exception):
    """One message with place, value, what is allowed and what to do."""


def prompt_id(text):
    """FNV-1a 64 of the UTF-8 bytes (PromptId of src/base/prompt.cpp), 16 lower-case hexadecimal digits."""
    value = 0xCBF29CE484222325
    for byte in text.encode("utf-8"):
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return f"{value:016x}"


def read_prompts(path):
    """The prompts of one file, in order; as io/prompts.cpp reads them."""
    if path.suffix not in (".txt", ".jsonl"):
        raise UserError(f"{path}: a prompt file ends in .txt (one prompt a line) or .jsonl (GenEval metadata)")
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    prompts = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        line = line.strip(b" \t\r")
        if not line:
            continue
        try:
            text = line.decode("utf-8")
            if path.suffix == ".jsonl":
                text = json.loads(text)["prompt"]
            text.encode("utf-8")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            wanted = 'a JSON object with a "prompt"' if path.suffix == ".jsonl" else "text in UTF-8"
            raise UserError(f"{path}:{number}: not {wanted} ({type(error).__name__}: {error})") from None
        prompts.append(text)
    if not prompts:
        raise UserError(f"{path}: no prompts: the file is empty or has blank lines only")
    return prompts


def collect_prompts(paths, negative):
    """{id: text} of all files and the negative prompt, each once."""
    texts = {}
    for text in [negative] + [text for path in paths for text in read_prompts(path)]:
        known = texts.setdefault(prompt_id(text), text)
        if known != text:
            raise UserError(f'"{known}" and "{text}" have the same id, {prompt_id(text)}; change one of them')
    return texts


def require_folder(folder, what):
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; {what} is meant")
    return folder


def encoder_name(model):
    """"<folder>-<hash>": changes with the encoder's config, tokenizer and weights, without reading all of those."""
    encoder = require_folder(model / "text_encoder", "the text encoder of a Qwen-Image model")
    tokenizer = require_folder(model / "tokenizer", "the tokenizer of a Qwen-Image model")
    weights = sorted(encoder.glob("*.safetensors"))
    if not (encoder / "config.json").is_file() or not weights:
        raise UserError(f"{encoder}: no config.json or no .safetensors; download the model's text_encoder folder again")
    if not any((tokenizer / name).is_file() for name in ("vocab.json", "tokenizer.json")):
        raise UserError(f"{tokenizer}: no tokenizer: neither vocab.json nor tokenizer.json is there")
    try:
        names = json.loads((encoder / "config.json").read_text(encoding="utf-8")).get("architectures") or []
    except (ValueError, AttributeError) as error:
        raise UserError(f"{encoder / 'config.json'}: not a JSON object ({error})") from None
    if names != [ENCODER_CLASS]:
        raise UserError(f"{encoder / 'config.json'}: architectures are {names}; only {ENCODER_CLASS} is supported")
    digest = hashlib.sha256((encoder / "config.json").read_bytes())
    for path in sorted(tokenizer.iterdir()):
        if path.is_file():
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    for path in weights:
        size = path.stat().st_size
        with open(path, "rb") as file:
            digest.update(f"{path.name} {size}".encode() + file.read(MIB))
            file.seek(max(0, size - MIB))
            digest.update(file.read(MIB))
    return f"{model.resolve().name}-{digest.hexdigest()[:16]}"


def read_header(path):
    """({name: entry}, metadata, where the data begins) of a safetensors file."""
    try:
        with open(path, "rb") as file:
            length = struct.unpack("<Q", file.read(8))[0]
            header = json.loads(file.read(min(length, path.stat().st_size)))
        metadata = header.pop("__metadata__", {})
        if all(len(entry["data_offsets"]) == 2 for entry in header.values()):
            return header, metadata, 8 + length
    except (ValueError, struct.error, AttributeError, KeyError, TypeError):
        pass
    raise UserError(f"{path}: not a safetensors file; move it away")


def check_same(path, header, metadata, expected, dtype):
    """Embeddings of another kind are never added to: the program could not tell them apart."""
    if metadata.get("format") != FORMAT:
        raise UserError(f"{path}: not a file of prompt embeddings; give another --output")
    for key in expected:
        if metadata.get(key) != expected[key]:
            raise UserError(
                f"{path}: was made with {key} {metadata.get(key)}, this run has {expected[key]}; give another "
                "--output, or remove the file"
            )
    other = next((entry["dtype"] for entry in header.values() if entry["dtype"] != dtype), None)
    if other is not None:
        raise UserError(f"{path}: holds {other}, this run would add {dtype}; give the same --dtype or another --output")


@contextlib.contextmanager
def replacing(path):
    """A binary file that becomes `path` when the block ends, synced, or not at all."""
    aside = path.with_name(f".{path.name}.partial")
    with open(aside, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def write_header(file, entries, metadata):
    """`entries`: [(name, dtype, shape, bytes)] in the order of the data that follows."""
    header, offset = {"__metadata__": metadata}, 0
    for name, dtype, shape, size in entries:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)


def write_part(path, tensors, metadata, dtype):
    """`tensors`: {id: [tokens, width]} of torch, on the CPU, of that dtype."""
    import torch

    entries = [(name, dtype, list(t.shape), t.numel() * t.element_size()) for name, t in tensors.items()]
    with replacing(path) as file:
        write_header(file, entries, metadata)
        for tensor in tensors.values():
            file.write(tensor.contiguous().view(torch.uint8).numpy().tobytes())


def merge(sources, output, metadata):
    """All tensors of the files into one, a tensor at a time."""
    found = {}
    for path in sources:
        header, _, begin = read_header(path)
        for name, entry in header.items():
            first, last = entry["data_offsets"]
            found.setdefault(name, (entry["dtype"], entry["shape"], last - first, path, begin + first))
    ordered = sorted(found.items(), key=lambda item: (sources.index(item[1][3]), item[1][4]))
    with replacing(output) as file:
        write_header(file, [(name, *place[:3]) for name, place in ordered], metadata)
        for path, group in itertools.groupby(ordered, key=lambda item: item[1][3]):
            with open(path, "rb") as source:
                for _, (_, _, size, _, begin) in group:
                    source.seek(begin)
                    file.write(source.read(size))


class Encoder:
    """Tokenizer and text model. Imports and loads only when there is something to encode."""

    def __init__(self, model, dtype, device, max_length):
        try:
            import torch
            from transformers import Qwen2_5_VLForConditionalGeneration, Qwen2Tokenizer
        except ImportError as error:
            raise UserError(f"{error}; scripts/setup.sh --python installs it in .deps/python") from None

        if device == "cuda" and not torch.cuda.is_available():
            raise UserError("--device cuda: this PyTorch sees no GPU; use --device cpu")
        self.torch, self.device, self.max_length = torch, device, max_length
        try:
            self.tokenizer = Qwen2Tokenizer.from_pretrained(model / "tokenizer", local_files_only=True)
            whole = Qwen2_5_VLForConditionalGeneration.from_pretrained(
                model / "text_encoder",
                dtype={"bf16": torch.bfloat16, "fp32": torch.float32}[dtype],
                local_files_only=True,
            )
            self.text_model = whole.model.eval().to(device)  # without the head: its logits are not needed
        except Exception as error:  # these libraries raise their own kinds for broken files
            raise UserError(f"{model}: cannot be loaded ({type(error).__name__}: {error})") from error
        self.tokenizer.padding_side = "right"
        self.prefix_tokens = len(self.tokenizer(PREFIX).input_ids)
        if self.prefix_tokens != PUBLISHED_PREFIX_TOKENS:
            print(
                f"encode_prompts: warning: {model / 'tokenizer'}: the template's first part has {self.prefix_tokens} "
                f"tokens, {PUBLISHED_PREFIX_TOKENS} with the published tokenizer; {self.prefix_tokens} are dropped",
                file=sys.stderr,
            )

    def lengths(self, texts):
        """Tokens of each prompt after the prefix, before any cut."""
        ids = self.tokenizer([PREFIX + text + SUFFIX for text in texts]).input_ids
        return [len(tokens) - self.prefix_tokens for tokens in ids]

    def encode(self, texts):
        """[tokens, width] for each text; the others of the batch do not matter but for rounding."""
        with self.torch.no_grad():
            inputs = self.tokenizer(
                [PREFIX + text + SUFFIX for text in texts],
                max_length=MAX_TOKENS + self.prefix_tokens,
                padding=True,
                truncation=True,
                return_tensors="pt",
            ).to(self.device)
            states = self.text_model(
                input_ids=inputs.input_ids, attention_mask=inputs.attention_mask, use_cache=False
            ).last_hidden_state
            embeddings = []
            for text, state, mask in zip(texts, states, inputs.attention_mask.bool()):
                embedding = state[mask][self.prefix_tokens :][: self.max_length].cpu()
                if not self.torch.isfinite(embedding).all():
                    raise UserError(f'the embedding of "{text}" is not finite; try --dtype fp32')
                embeddings.append(embedding)
            return embeddings


def encode_missing(encoder, missing, batch, parts, metadata, dtype):
    """Encodes {id: text} and writes a part every PART_PROMPTS prompts. Prints the progress."""
    items = list(missing.items())
    free = 1 + max((int(path.stem) for path in parts.glob("*.safetensors")), default=-1)
    start, done, cut = time.monotonic(), 0, 0
    end = "\r" if sys.stdout.isatty() else "\n"
    for number, first in enumerate(range(0, len(items), PART_PROMPTS), free):
        chunk = items[first : first + PART_PROMPTS]
        lengths = encoder.lengths([text for _, text in chunk])
        cut += sum(length > encoder.max_length for length in lengths)
        # Prompts of like length together: little padding.
        order = [item for _, item in sorted(zip(lengths, chunk), key=lambda pair: pair[0])]
        tensors = {}
        for begin in range(0, len(order), batch):
            group = order[begin : begin + batch]
            tensors.update(zip((name for name, _ in group), encoder.encode([text for _, text in group])))
        write_part(parts / f"{number:06d}.safetensors", tensors, metadata, dtype)
        done += len(chunk)
        rate = done / (time.monotonic() - start)
        left = (len(items) - done) / rate / 60
        progress = f"encode_prompts: {done} of {len(items)} prompts, {rate:.1f}/s, {left:.0f} min left "
        print(progress, end=end, flush=True)
    if end == "\r":
        print()
    if cut > 0:
        print(
            f"encode_prompts: warning: {cut} prompts have more than --max-length {encoder.max_length} tokens: cut",
            file=sys.stderr,
        )


def run(arguments):
    if not 1 <= arguments.max_length <= MAX_TOKENS:
        raise UserError(f"--max-length {arguments.max_length}: 1 to {MAX_TOKENS} are allowed")
    if arguments.batch < 1:
        raise UserError(f"--batch {arguments.batch}: at least 1 is meant")
    output, model = arguments.output, arguments.model
    if output.suffix != ".safetensors":
        raise UserError(f"--output {output}: a file that ends in .safetensors is meant")
    require_folder(model, "a Qwen-Image model")
    texts = collect_prompts(arguments.prompts, arguments.negative)
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "encoder": encoder_name(model),
        "max_length": str(arguments.max_length),
    }
    dtype = DTYPE_NAMES[arguments.dtype]

    parts = output.with_name(output.name + ".parts")
    if output.exists():  # before anything is made
        header, found, _ = read_header(output)
        check_same(output, header, found, metadata, dtype)
    parts.mkdir(parents=True, exist_ok=True)
    with open(parts / "lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{parts}: another run is writing here; wait for it, or give another --output") from None
        sources = [path for path in (output, *sorted(parts.glob("*.safetensors"))) if path.exists()]
        present = set()
        for path in sources:
            header, found, _ = read_header(path)
            check_same(path, header, found, metadata, dtype)
            present |= header.keys()
        missing = {name: text for name, text in texts.items() if name not in present}
        if missing:
            print(f"encode_prompts: {len(texts) - len(missing)} of {len(texts)} prompts are there, loading the encoder")
            encoder = Encoder(model, arguments.dtype, arguments.device, arguments.max_length)
            encode_missing(encoder, missing, arguments.batch, parts, metadata, dtype)
        written = sorted(parts.glob("*.safetensors"))
        if written:
            merge([path for path in (output, *written) if path.exists()], output, metadata)
        shutil.rmtree(parts)
    print(f"encode_prompts: {output} has all {len(texts)} prompts, {len(missing)} of them new")


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", type=pathlib.Path, required=True, help="Qwen-Image folder")
    parser.add_argument("--prompts", type=pathlib.Path, required=True, nargs="+", help=".txt or GenEval .jsonl files")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="the .safetensors file to write or extend")
    parser.add_argument("--negative", default=" ", help="negative prompt, encoded too (default: a space)")
    parser.add_argument("--max-length", type=int, default=512, help="tokens of an embedding at most (512; up to 1024)")
    parser.add_argument("--dtype", choices=sorted(DTYPE_NAMES), default="bf16", help="of computing and of the file")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--batch", type=int, default=8, help="prompts encoded together; changes rounding only")
    return parser.parse_args(arguments)


def main(arguments):
    try:
        run(parse(arguments))
    except UserError as error:
        print(f"encode_prompts: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"encode_prompts: {error}; nothing that was written before is lost", file=sys.stderr)
        return 74
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
