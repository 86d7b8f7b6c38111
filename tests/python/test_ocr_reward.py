"""scripts/rewards/ocr.py with real tesseract on rendered texts, and the loop that it shares with brightness.py.

Needs the program tesseract (scripts/setup.sh installs it). Environment (set by CMakeLists.txt): SPOTLIGHT_SOURCE.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest
from PIL import Image, ImageDraw, ImageFont

SOURCE = pathlib.Path(os.environ["SPOTLIGHT_SOURCE"])
REWARDS = SOURCE / "scripts/rewards"
sys.path.insert(0, str(REWARDS))
import ocr  # noqa: E402


def picture(text, side=256):
    image = Image.new("RGB", (side, side), (210, 200, 180))
    ImageDraw.Draw(image).text((side // 12, side // 3), text, fill=(30, 20, 60), font=ImageFont.load_default(side // 9))
    return image


def request(prompt, image):
    text = prompt.encode()
    return b"image 1 %d %d %d\n" % (len(text), *image.size) + text + image.tobytes()


def run(program, requests, **more):
    command = [sys.executable, "-B", program]
    return subprocess.run(command, input=requests, capture_output=True, timeout=60, check=False, **more)


def test_score_is_one_minus_the_normalised_edit_distance():
    assert ocr.edit_distance("kitten", "sitting") == 3
    assert ocr.edit_distance("", "abc") == ocr.edit_distance("abc", "") == 3
    assert ocr.edit_distance("abc", "abc") == 0
    assert ocr.score_of("hallo", "hello") == pytest.approx(0.8)
    assert ocr.score_of("xx" + "hello" + "yy", "hello") == 1  # contains it
    assert ocr.score_of("", "hello") == 0
    assert ocr.score_of("something else altogether", "hello") == 0  # never negative
    assert ocr.normalised(" Fresh\n BREAD\t") == "freshbread"


def test_target_is_the_first_quoted_text():
    assert ocr.target_of('a sign "Open Now" above "closed"') == "opennow"
    assert ocr.target_of("a sign that says “Größe”") == "größe"
    for prompt in ("a dog", 'a sign "open', 'an empty sign ""', 'a blank sign " "'):
        with pytest.raises(ValueError, match="double quotes"):
            ocr.target_of(prompt)


def test_judges_rendered_texts():
    shown = picture("Fresh Bread")
    prompts = [f'a sign that says "{text}"' for text in ("Fresh Bread", "FRESH BREAM", "Quality Umbrellas")]
    requests = [request(prompt, shown) for prompt in prompts] + [request(prompts[0], picture(""))]
    result = run(REWARDS / "ocr.py", b"".join(requests))
    assert result.returncode == 0, result.stderr
    same, close, other, blank = map(float, result.stdout.split())
    assert same == 1
    assert close == pytest.approx(0.9)  # one letter of ten
    assert other < 0.4
    assert blank == 0


def test_errors_are_replies():
    result = run(REWARDS / "ocr.py", request("a dog", picture("")) + request('"Hi Dog"', picture("Hi Dog")))
    assert result.stdout.decode().splitlines() == [
        "error: the OCR reward needs prompts with a text in double quotes",
        "1.0",
    ]


def test_without_tesseract_it_says_what_to_install(tmp_path):
    result = run(REWARDS / "ocr.py", b"", env={**os.environ, "PATH": str(tmp_path)})
    assert result.returncode == 1
    assert b"install the Debian package tesseract-ocr" in result.stderr


def test_every_ocr_prompt_has_a_target():
    seen = []
    for part in ("train", "eval"):
        prompts = (SOURCE / f"inputs/prompts/ocr_{part}.txt").read_text().splitlines()
        targets = [ocr.target_of(prompt) for prompt in prompts]
        assert len(targets) >= 200
        seen += targets
    assert len(seen) == len(set(seen))  # no text twice, so none in both lists


def test_a_broken_request_ends_the_program():
    broken = {b"image 1 3 2 1\ndo": b"after 2 of 3 bytes", b"image 2 0 1 1\nabc": b"not of version 1"}
    for requests, message in broken.items():
        result = run(REWARDS / "brightness.py", requests)
        assert result.returncode == 1
        assert message in result.stderr
        assert result.stdout == b""


def test_the_program_in_the_readme_works(tmp_path):
    program = re.search(r"```python\n(.*?)```", (REWARDS / "README.md").read_text(), re.DOTALL).group(1)
    (tmp_path / "judge.py").write_text(program)
    requests = request("größer", picture("x", side=64)) + request("", Image.new("RGB", (2, 1), (255, 255, 255)))
    for path in (tmp_path / "judge.py", REWARDS / "brightness.py"):
        result = run(path, requests)
        first, second = map(float, result.stdout.split())
        assert result.returncode == 0 and 0.5 < first < 1 and second == 1


def test_what_libraries_print_is_no_reply(tmp_path):
    (tmp_path / "judge.py").write_text(
        f"import os, sys\nsys.path.insert(0, {str(REWARDS)!r})\nimport protocol\n"
        "def judge(*_):\n    print('loading')\n    os.system('echo from a child')\n    return 1\n"
        "protocol.serve(judge)\n"
    )
    result = run(tmp_path / "judge.py", request("dog", picture("x", side=64)))
    assert result.stdout == b"1.0\n"
    assert b"from a child" in result.stderr
