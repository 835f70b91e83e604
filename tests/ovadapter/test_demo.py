"""`python -m ovadapter demo`, as a program would use it, and the pure functions of its OCR."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("openvino")
pytest.importorskip("skimage")
pytest.importorskip("rapidocr")

from ovadapter.demo import ocr, producer  # noqa: E402

PAGE = [
    "Region-based segmentation",
    "Let us first determine markers of the coins and the",
    "background. These markers are pixels that we can label",
    "unambiguously as either object or background. Here,",
    "the markers are found at the two extreme parts of the",
    "histogram of grey values:",
    ">>> markers = np.zeros_like(coins)",
]
TENSORS = {"detection/x", "detection/fetch_name_0", "recognition/x", "recognition/fetch_name_0"}


def demo(*arguments, **environment):
    command = [sys.executable, "-m", "ovadapter", "demo", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, env=os.environ | environment, check=False
    )


@pytest.fixture(scope="module")
def software_run():
    return demo("--json", L0PY_SOFTDRIVER="1")


def test_json_says_that_nothing_was_copied(software_run):
    assert software_run.returncode == 0, software_run.stderr
    outcome = json.loads(software_run.stdout)
    assert outcome["device"] == "NPU"
    assert outcome["driver"] == "software"
    assert {"source", "version", "path", "reason"} <= set(outcome["loader"])
    assert set(outcome["zero_copy"]) == set(outcome["routes"]) == TENSORS
    assert all(verdict is True for verdict in outcome["zero_copy"].values())
    assert outcome["all_zero_copy"] is True
    assert outcome["max_abs_diff"] == 0
    assert set(outcome["evidence"].values()) == {"driver record"}


def test_json_is_one_object_and_the_page_is_read(software_run):
    assert software_run.stdout.count("\n") == 1
    outcome = json.loads(software_run.stdout)
    assert outcome["result"] == outcome["cpu_result"]
    assert [line for line in PAGE if line in outcome["result"]] == PAGE


def test_progress_goes_to_stderr(software_run):
    assert "compiling" in software_run.stderr


def test_text_for_people():
    run = demo(L0PY_SOFTDRIVER="1")
    assert run.returncode == 0, run.stderr
    assert "Region-based segmentation" in run.stdout
    assert "zero copy: all 4 tensors" in run.stdout


def test_a_picture_of_ones_own(tmp_path):
    from PIL import Image
    from skimage import data

    path = tmp_path / "upper half.png"
    Image.fromarray(data.page()[:100]).save(path)
    run = demo("--json", "--image", path, L0PY_SOFTDRIVER="1")
    assert run.returncode == 0, run.stderr
    outcome = json.loads(run.stdout)
    assert outcome["picture"]["source"] == path.name
    assert outcome["picture"]["height"] == 100
    assert PAGE[0] in outcome["result"]


def test_the_cpu_plugin_claims_nothing_about_copies():
    run = demo("--json", "--device", "CPU")
    assert run.returncode == 0, run.stderr
    outcome = json.loads(run.stdout)
    assert outcome["device"] == "CPU"
    assert set(outcome["zero_copy"].values()) == {None}
    assert outcome["result"] == PAGE


def test_a_picture_without_text(tmp_path):
    from PIL import Image

    path = tmp_path / "grey.png"
    Image.new("L", (64, 48), 128).save(path)
    run = demo("--image", path, L0PY_SOFTDRIVER="1")
    assert run.returncode == 0, run.stderr
    assert "no text was found" in run.stdout


@pytest.mark.parametrize("content", [None, b"", b"not a picture"])
def test_an_unreadable_picture_is_a_clear_error(tmp_path, content):
    path = tmp_path / "picture.png"
    if content is not None:
        path.write_bytes(content)
    run = demo("--json", "--device", "CPU", "--image", path)
    assert run.returncode == 1
    assert run.stdout == ""
    assert "picture.png" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.skipif(Path("/dev/accel").exists(), reason="there may be a real NPU here")
def test_no_npu_is_a_clear_error():
    run = demo("--json", L0PY_SOFTDRIVER="0")
    assert run.returncode == 1
    assert run.stdout == ""
    assert "L0PY_SOFTDRIVER=1" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("package", ["openvino", "skimage", "rapidocr"])
def test_a_missing_package_is_named(package):
    code = f"import sys; sys.modules[{package!r}] = None; from ovadapter.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "demo", "--device", "CPU"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 1
    assert package in run.stderr
    assert "extra `demo`" in run.stderr


def test_the_picture_outlives_its_sender():
    picture = producer.receive(None, plain=True)
    with picture.fd as fd:
        pixels = os.pread(fd.fileno(), picture.size + 1, 0)
    assert len(pixels) == picture.size == 191 * 384 * 3
    assert pixels == producer.load(None)[0].tobytes()
    with pytest.raises(ProcessLookupError):
        os.kill(picture.pid, 0)


def test_decode_draws_repeats_together_and_drops_blanks():
    classes = [0, 1, 1, 0, 1, 2, 2, 3, 0]
    scores = np.full((len(classes), 4), 0.1, np.float32)
    scores[range(len(classes)), classes] = [0.9, 0.5, 0.6, 0.9, 0.7, 0.8, 0.9, 1.0, 0.9]
    text = ocr.decode(scores, ["", "l", "o", " "])
    assert text.text == "llo "
    assert text.score == pytest.approx((0.5 + 0.7 + 0.8 + 1.0) / 4)


@pytest.mark.parametrize("steps", [1, 3])
def test_decode_of_blanks_alone_is_empty(steps):
    scores = np.zeros((steps, 4), np.float32)
    scores[:, 0] = 1
    assert ocr.decode(scores, ["", "a", "b", " "]) == ocr.Text("", 0.0)


def test_find_boxes_scales_to_the_picture():
    probability = np.zeros((64, 128), np.float32)
    probability[10:20, 8:88] = 0.9
    (box,) = ocr.find_boxes(probability, 32, 64)
    assert box.slope == 0
    assert box.middle == pytest.approx(7.5)
    assert box.top < 5 < 10 < box.bottom
    assert box.left < 4 < 44 < box.right


def test_find_boxes_follows_a_tilted_line():
    rows, columns = np.mgrid[:100, :300]
    level = rows - 0.1 * columns
    probability = np.where((level > 40) & (level < 48), 0.9, 0.0).astype(np.float32)
    (box,) = ocr.find_boxes(probability, 100, 300)
    assert box.slope == pytest.approx(0.1, abs=0.005)
    assert box.bottom - box.top < 25


def test_find_boxes_leaves_out_specks_and_doubts():
    probability = np.zeros((64, 128), np.float32)
    probability[10:12, 8:88] = 0.9
    probability[30:40, 8:88] = 0.4
    assert ocr.find_boxes(probability, 64, 128) == []


def test_boxes_come_in_reading_order():
    probability = np.zeros((100, 200), np.float32)
    for row, column in ((12, 110), (10, 10), (60, 10), (61, 110)):
        probability[row : row + 10, column : column + 80] = 0.9
    boxes = ocr.find_boxes(probability, 100, 200)
    assert [(box.middle < 40, box.left < 100) for box in boxes] == [
        (True, True),
        (True, False),
        (False, True),
        (False, False),
    ]


def test_draw_line_makes_a_tilted_line_level():
    rows, columns = np.mgrid[:100, :300]
    picture = np.where(np.abs(rows - 0.1 * columns - 40) < 3, 0, 255).astype(np.uint8)
    picture = np.repeat(picture[:, :, None], 3, axis=2)
    line = np.zeros((48, 1280, 3), np.uint8)
    ocr.draw_line(picture, ocr.Box(20, 280, 42 - 12, 42 + 12, 0.1), line)
    width = round(48 * 260 / 24)
    assert line[23:25, 10 : width - 10].max() < 10
    assert line[:12, 10 : width - 10].min() > 245
    assert (line[:, width:] == ocr.LINE_BACKGROUND).all()


def test_draw_line_at_the_edges_of_the_picture():
    picture = np.full((20, 60, 3), 200, np.uint8)
    line = np.zeros((48, 1280, 3), np.uint8)
    ocr.draw_line(picture, ocr.Box(-8, 75, -5, 26, 0.0), line)
    assert (line[:, :100] == 200).all()


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [(191, 384, (384, 768)), (1000, 1000, (992, 992)), (3000, 4000, (1152, 1536)), (1, 5000, (32, 1536))],
)
def test_detection_size(height, width, expected):
    assert ocr.detection_size(height, width) == expected
