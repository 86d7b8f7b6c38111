"""scripts/encode_prompts.py against diffusers' own QwenImagePipeline, on a random Qwen2.5-VL of the published class.

The tokenizer is made here: byte-level BPE learnt from the template and a few words, laid out as the published one
(vocab.json, merges.txt, chat markers as added special tokens). The template's first part has 34 tokens in it, as there.

Environment (set by CMakeLists.txt): SPOTLIGHT_SOURCE (repository root).
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from diffusers import QwenImagePipeline
from safetensors import safe_open
from safetensors.torch import load_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2Tokenizer

SOURCE = pathlib.Path(os.environ["SPOTLIGHT_SOURCE"])
sys.path.insert(0, str(SOURCE / "scripts"))
import encode_prompts  # noqa: E402

MARKERS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# The pre-tokeniser of Qwen2, so that the learnt merges are those that it can use.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PROMPTS = ["a photo of a red square", "größer, 世界 🙂", "two  circles", "x", "a\u2028line separator", "zebra " * 40]
WIDTH = 32
torch.set_num_threads(1)  # the matrices are tiny


def make_tokenizer(folder, learn=True):
    """`learn`: whole words are tokens; else every byte is one, and the template has more than 34."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    text = encode_prompts.PREFIX.replace("<|im_start|>", "\n").replace("<|im_end|>", "\n")
    trainer = trainers.BpeTrainer(
        vocab_size=1000 if learn else 256, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([text, "assistant", "a photo of a red square"] * 2, trainer)
    folder.mkdir(parents=True)
    tokenizer.model.save(str(folder))
    first = tokenizer.get_vocab_size()
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "added_tokens_decoder": {
            str(first + i): {"content": marker, "special": True, "lstrip": False, "rstrip": False, "normalized": False,
                             "single_word": False}
            for i, marker in enumerate(MARKERS)
        },
        "additional_special_tokens": MARKERS[1:],
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return first + len(MARKERS)


def make_model(folder, seed=0, learn=True):
    vocabulary = make_tokenizer(folder / "tokenizer", learn)
    torch.manual_seed(seed)
    config = Qwen2_5_VLConfig(
        text_config={
            "hidden_size": WIDTH, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "vocab_size": vocabulary, "max_position_embeddings": 2048,
            "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e6},
        },
        vision_config={
            "depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": WIDTH,
        },
    )
    model = Qwen2_5_VLForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():  # far from the small start, so that positions and layers matter
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder / "text_encoder")
    return folder


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("encoder") / "tiny-qwen")


@pytest.fixture(scope="session")
def pipeline(model):
    encoder = Qwen2_5_VLForConditionalGeneration.from_pretrained(model / "text_encoder", dtype=torch.float32)
    tokenizer = Qwen2Tokenizer.from_pretrained(model / "tokenizer")
    return QwenImagePipeline(scheduler=None, vae=None, text_encoder=encoder, tokenizer=tokenizer, transformer=None)


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in PROMPTS), encoding="utf-8")
    return path


def arguments(model, prompts, output, *more):
    paths = prompts if isinstance(prompts, list) else [prompts]
    return ["--model", str(model), "--prompts", *map(str, paths), "--output", str(output), "--dtype", "fp32", *more]


def encode(*args):
    assert encode_prompts.main(arguments(*args)) == 0
    return load_file(args[2])


def refused(capsys, *args):
    """The one line of a run that must end with exit code 2."""
    capsys.readouterr()
    assert encode_prompts.main(arguments(*args)) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


@torch.no_grad()
def reference(pipeline, text, max_length=512):
    embedding, mask = pipeline.encode_prompt(text, device="cpu", max_sequence_length=max_length)
    assert mask is None  # one prompt: all tokens are real
    return embedding[0]


def test_ids_are_those_of_the_program():
    # FNV-1a 64; the first is its offset basis, the second a published test vector.
    assert encode_prompts.prompt_id("") == "cbf29ce484222325"
    assert encode_prompts.prompt_id("foobar") == "85944171f73967e8"
    assert encode_prompts.prompt_id("größer") == encode_prompts.prompt_id(b"gr\xc3\xb6\xc3\x9fer".decode())


def test_embeddings_are_those_of_diffusers(model, pipeline, prompts, tmp_path):
    tensors = encode(model, prompts, tmp_path / "e.safetensors", "--batch", "3")
    assert pipeline.prompt_template_encode == encode_prompts.PREFIX + "{}" + encode_prompts.SUFFIX
    assert len(pipeline.tokenizer(encode_prompts.PREFIX).input_ids) == pipeline.prompt_template_encode_start_idx == 34
    assert len(tensors) == len(PROMPTS) + 1  # and the negative prompt
    for text in [*PROMPTS, " "]:
        expected = reference(pipeline, text)
        embedding = tensors[encode_prompts.prompt_id(text)]
        assert embedding.dtype == torch.float32 and embedding.shape == (len(expected), WIDTH)
        torch.testing.assert_close(embedding, expected, rtol=0, atol=2e-5)
    assert len({len(tensor) for tensor in tensors.values()}) > 3  # the batches were padded
    with safe_open(tmp_path / "e.safetensors", "pt") as file:
        metadata = file.metadata()
    assert metadata["format"] == "spotlight-embeddings" and metadata["version"] == "1"
    assert metadata["max_length"] == "512" and metadata["encoder"].startswith("tiny-qwen-")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.safetensors", "prompts.jsonl"]


def test_a_batch_gives_what_the_pipeline_gives_for_a_batch(model, pipeline, prompts, tmp_path):
    tensors = encode(model, prompts, tmp_path / "e.safetensors")
    with torch.no_grad():
        embeddings, mask = pipeline.encode_prompt(PROMPTS, device="cpu", max_sequence_length=512)
    for text, embedding, real in zip(PROMPTS, embeddings, mask.bool()):
        torch.testing.assert_close(tensors[encode_prompts.prompt_id(text)], embedding[real], rtol=0, atol=2e-5)


def test_batches_of_different_lengths_change_nothing(model, prompts, tmp_path):
    together = encode(model, prompts, tmp_path / "a.safetensors", "--batch", "7")
    alone = encode(model, prompts, tmp_path / "b.safetensors", "--batch", "1")
    assert together.keys() == alone.keys()
    for name, tensor in alone.items():
        torch.testing.assert_close(together[name], tensor, rtol=0, atol=2e-5)


def test_long_prompts_are_cut(model, pipeline, prompts, tmp_path, capsys):
    tensors = encode(model, prompts, tmp_path / "e.safetensors", "--max-length", "9")
    long = sum(len(reference(pipeline, text)) > 9 for text in PROMPTS)
    assert 1 < long < len(PROMPTS)
    assert f"{long} prompts have more than --max-length 9" in capsys.readouterr().err
    assert max(len(tensor) for tensor in tensors.values()) == 9
    for text in PROMPTS:
        expected = reference(pipeline, text, 9)
        torch.testing.assert_close(tensors[encode_prompts.prompt_id(text)], expected, rtol=0, atol=2e-5)
    long = "z" * 1500  # 1,500 tokens: the pipeline cuts the text itself at 1024
    (tmp_path / "long.txt").write_text(long)
    tensors = encode(model, tmp_path / "long.txt", tmp_path / "l.safetensors", "--max-length", "1024")
    expected = reference(pipeline, long, 1024)
    assert len(expected) == 1024
    torch.testing.assert_close(tensors[encode_prompts.prompt_id(long)], expected, rtol=0, atol=2e-5)


def test_an_empty_prompt_has_the_templates_end(model, pipeline, prompts, tmp_path):
    tensors = encode(model, prompts, tmp_path / "e.safetensors", "--negative", "")
    empty = tensors["cbf29ce484222325"]
    assert len(empty) == 5
    torch.testing.assert_close(empty, reference(pipeline, ""), rtol=0, atol=2e-5)


def test_bf16_is_the_default_and_near(model, prompts, tmp_path):
    exact = encode(model, prompts, tmp_path / "a.safetensors")
    args = arguments(model, prompts, tmp_path / "b.safetensors")
    args.remove("--dtype")
    args.remove("fp32")
    assert encode_prompts.main(args) == 0
    for name, tensor in load_file(tmp_path / "b.safetensors").items():
        assert tensor.dtype == torch.bfloat16
        assert (tensor.float() - exact[name]).norm() < 0.05 * exact[name].norm()


def test_prompts_are_added_to_a_finished_file(model, prompts, tmp_path, capsys, monkeypatch):
    output = tmp_path / "e.safetensors"
    first = encode(model, prompts, output)
    more = tmp_path / "more.txt"
    more.write_bytes("  new one \r\n\nx\na\u2028line separator\n".encode())
    second = encode(model, [prompts, more], output)
    assert second.keys() - first.keys() == {encode_prompts.prompt_id("new one")}
    for name, tensor in first.items():
        assert torch.equal(second[name], tensor)
    assert "all 8 prompts, 1 of them new" in capsys.readouterr().out
    # Nothing to do: the encoder is not even loaded.
    monkeypatch.setattr(encode_prompts, "Encoder", None)
    inode = output.stat().st_ino
    encode(model, [prompts, more], output)
    assert output.stat().st_ino == inode


def test_goes_on_after_a_kill(model, tmp_path):
    output, many = tmp_path / "e.safetensors", tmp_path / "many.txt"
    parts = tmp_path / "e.safetensors.parts"
    many.write_text("".join(f"prompt number {i}\n" for i in range(120)))
    args = arguments(model, many, output, "--batch", "1")
    program = f"import encode_prompts as e, sys; e.PART_PROMPTS = 4; sys.exit(e.main({args!r}))"
    process = subprocess.Popen([sys.executable, "-B", "-c", program], cwd=SOURCE / "scripts", stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(list(parts.glob("*.safetensors"))) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not output.exists()
    (parts / ".000099.safetensors.partial").write_bytes(b"half")  # what a kill in the middle of writing leaves
    kept = {}
    for path in parts.glob("*.safetensors"):
        kept |= load_file(path)
    assert 8 <= len(kept) < 121
    encoded = []
    original = encode_prompts.Encoder.encode
    encode_prompts.Encoder.encode = lambda self, texts: encoded.extend(texts) or original(self, texts)
    try:
        tensors = encode(model, many, output)
    finally:
        encode_prompts.Encoder.encode = original
    assert len(tensors) == 121 and len(encoded) == 121 - len(kept)
    for name, tensor in kept.items():
        assert torch.equal(tensors[name], tensor)
    assert not parts.exists()
    fresh = encode(model, many, tmp_path / "fresh.safetensors")
    for name, tensor in fresh.items():
        torch.testing.assert_close(tensors[name], tensor, rtol=0, atol=2e-5)


def test_another_encoder_length_or_dtype_is_refused(model, prompts, tmp_path, capsys):
    output = tmp_path / "e.safetensors"
    encode(model, prompts, output)
    before = output.read_bytes()
    other = make_model(tmp_path / "other" / "tiny-qwen", seed=1)  # same config, name and tokenizer, other weights
    message = refused(capsys, other, prompts, output)
    assert f"{output}: was made with encoder tiny-qwen-" in message and "give another --output" in message
    message = refused(capsys, model, prompts, output, "--max-length", "100")
    assert "was made with max_length 512, this run has 100" in message
    message = refused(capsys, model, prompts, output, "--dtype", "bf16")
    assert "holds F32, this run would add BF16" in message
    assert output.read_bytes() == before
    # A part of an unfinished run is looked at in the same way.
    (tmp_path / "u.safetensors.parts").mkdir()
    shutil.copy(output, tmp_path / "u.safetensors.parts/000000.safetensors")
    message = refused(capsys, other, prompts, tmp_path / "u.safetensors")
    assert "000000.safetensors: was made with encoder" in message


def test_mistakes_are_named(model, prompts, tmp_path, capsys):
    output = tmp_path / "e.safetensors"
    assert "none: no such folder; a Qwen-Image model" in refused(capsys, tmp_path / "none", prompts, output)
    assert "none.txt: no such file" in refused(capsys, model, tmp_path / "none.txt", output)
    assert "ends in .txt" in refused(capsys, model, tmp_path, output)
    assert "out.h5: a file that ends in .safetensors" in refused(capsys, model, prompts, tmp_path / "out.h5")
    assert "--max-length 1025: 1 to 1024" in refused(capsys, model, prompts, output, "--max-length", "1025")
    assert "--batch 0" in refused(capsys, model, prompts, output, "--batch", "0")
    (tmp_path / "blank.txt").write_text("\n \n")
    assert "blank.txt: no prompts" in refused(capsys, model, tmp_path / "blank.txt", output)
    (tmp_path / "bad.jsonl").write_text('{"prompt": "a"}\n{"tag": "b"}\n')
    assert 'bad.jsonl:2: not a JSON object with a "prompt"' in refused(capsys, model, tmp_path / "bad.jsonl", output)
    (tmp_path / "bad.txt").write_bytes(b"fine\n\xff\n")
    assert "bad.txt:2: not text in UTF-8" in refused(capsys, model, tmp_path / "bad.txt", output)
    output.write_bytes(b"something else")
    assert "e.safetensors: not a safetensors file" in refused(capsys, model, prompts, output)

    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    output = tmp_path / "f.safetensors"
    weights = copy / "text_encoder/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "copy: cannot be loaded (" in refused(capsys, copy, prompts, output)
    (copy / "tokenizer/vocab.json").unlink()
    assert "tokenizer: no tokenizer" in refused(capsys, copy, prompts, output)
    config = json.loads((copy / "text_encoder/config.json").read_text())
    config["architectures"] = ["Qwen3VLForConditionalGeneration"]
    (copy / "tokenizer/vocab.json").write_text("{}")
    (copy / "text_encoder/config.json").write_text(json.dumps(config))
    assert "['Qwen3VLForConditionalGeneration']; only Qwen2_5_VL" in refused(capsys, copy, prompts, output)
    shutil.rmtree(copy / "text_encoder")
    assert "text_encoder: no such folder" in refused(capsys, copy, prompts, output)


def test_two_runs_at_once_are_refused(model, prompts, tmp_path, capsys):
    parts = tmp_path / "e.safetensors.parts"
    parts.mkdir()
    with open(parts / "lock", "w", encoding="utf-8") as lock:
        encode_prompts.fcntl.flock(lock, encode_prompts.fcntl.LOCK_EX)
        assert "another run is writing here" in refused(capsys, model, prompts, tmp_path / "e.safetensors")


def test_another_tokenizers_prefix_is_dropped_with_a_warning(prompts, tmp_path, capsys):
    model = make_model(tmp_path / "bytes", learn=False)
    tensors = encode(model, prompts, tmp_path / "e.safetensors")
    warning = capsys.readouterr().err
    prefix = len(encode_prompts.PREFIX.encode()) - len("<|im_start|>" * 2 + "<|im_end|>") + 3
    assert f"{prefix} tokens, 34 with the published tokenizer; {prefix} are dropped" in warning
    # "x", the end marker, a newline, the start marker, nine letters and a newline
    assert len(tensors[encode_prompts.prompt_id("x")]) == 14
