"""Reading the text in a picture: PP-OCRv6's two models, and what goes between and after them.

The models are those that the package rapidocr carries. Their pre-processing (size, layout, colour order, mean, scale)
is built into them here, so that the tensor they take is the picture itself: u8, height x width x RGB, as a camera or
a decoder leaves it in memory.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import openvino as ov
from openvino.preprocess import ColorFormat, PrePostProcessor, ResizeAlgorithm
from skimage.measure import label, regionprops
from skimage.transform import AffineTransform, warp

if TYPE_CHECKING:
    from collections.abc import Sequence

DETECTION_FILE = "PP-OCRv6_det_small.onnx"
RECOGNITION_FILE = "PP-OCRv6_rec_small.onnx"

INPUT = "x"
OUTPUT = "fetch_name_0"

LINE_HEIGHT = 48
"""Rows of the recognition model's picture: fixed by the model."""
LINE_WIDTH = 1280
"""Columns of it: a line of about 26 times its own height; longer ones are squeezed."""
LINE_BACKGROUND = 127
"""What fills the columns behind a short line: the models' mean, that is, zero to them."""

PIXEL_THRESHOLD = 0.3
BOX_THRESHOLD = 0.5
TEXT_THRESHOLD = 0.5
BOX_MARGIN = 0.8
"""The detector marks the core of a line only; its box is this part of the core's height bigger on each side."""

Picture = npt.NDArray[np.uint8]
Scores = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Box:
    """A line of text in pixels of the picture. `top` and `bottom` are those at `left`, and fall by `slope` a column."""

    left: float
    right: float
    top: float
    bottom: float
    slope: float = 0.0

    @property
    def middle(self) -> float:
        """The row of the box's centre."""
        return (self.top + self.bottom + self.slope * (self.right - self.left)) / 2


@dataclass(frozen=True)
class Text:
    """What was read in one line, and how sure the model is of it (0 to 1)."""

    text: str
    score: float


def model_path(file: str) -> Path:
    """Where rapidocr keeps a model, found without importing it. Raises ModuleNotFoundError or FileNotFoundError."""
    spec = importlib.util.find_spec("rapidocr")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the models are in the package rapidocr, which is not installed", name="rapidocr")
    path = Path(spec.origin).parent / "models" / file
    if not path.is_file():
        raise FileNotFoundError(f"this release of rapidocr does not carry {file}: 3.10 does")
    return path


def detection_size(height: int, width: int) -> tuple[int, int]:
    """The size that the detector works at: 768 to 1536 pixels on the long side, both sides multiples of 32."""
    scale = min(max(max(height, width), 768), 1536) / max(height, width)
    return max(32, round(height * scale / 32) * 32), max(32, round(width * scale / 32) * 32)


def read_detector(core: ov.Core, height: int, width: int) -> ov.Model:
    """The detection model for pictures of one size: u8 (1, height, width, 3) in, f32 (1, 1, rows, columns) out."""
    return _with_preprocessing(core, DETECTION_FILE, (height, width), detection_size(height, width))


def read_recogniser(core: ov.Core) -> tuple[ov.Model, list[str]]:
    """The recognition model, u8 (1, 48, 1280, 3) in and f32 (1, steps, classes) out, and each class's character."""
    size = (LINE_HEIGHT, LINE_WIDTH)
    model = _with_preprocessing(core, RECOGNITION_FILE, size, size)
    dictionary = model.get_rt_info(["framework", "character"]).astype(str)
    characters = ["", *dictionary.split("\n"), " "]
    classes = model.output(0).shape[2]
    if len(characters) != classes:
        raise ValueError(f"{RECOGNITION_FILE}: {classes} classes, but a dictionary of {len(characters)}")
    return model, characters


def _with_preprocessing(core: ov.Core, file: str, picture: tuple[int, int], inside: tuple[int, int]) -> ov.Model:
    model = core.read_model(model_path(file))
    for operation in model.get_ops():  # they hide from the shape inference that the model becomes static
        if operation.get_type_name() == "Identity":
            operation.output(0).replace(operation.input_value(0))
    model.reshape([1, 3, *inside])
    processor = PrePostProcessor(model)
    entry = processor.input()
    entry.tensor().set_element_type(ov.Type.u8).set_layout(ov.Layout("NHWC")).set_shape([1, *picture, 3])
    entry.tensor().set_color_format(ColorFormat.RGB)
    steps = entry.preprocess().convert_element_type(ov.Type.f32).convert_color(ColorFormat.BGR)
    if picture != inside:
        steps.resize(ResizeAlgorithm.RESIZE_LINEAR)
    steps.mean([127.5] * 3).scale([127.5] * 3)
    entry.model().set_layout(ov.Layout("NCHW"))
    return processor.build()


def find_boxes(probability: Scores, height: int, width: int) -> list[Box]:
    """The lines of text in a map (rows, columns) of text probability over a whole picture, in reading order."""
    down, across = height / probability.shape[0], width / probability.shape[1]
    boxes = []
    for region in regionprops(label(probability > PIXEL_THRESHOLD, connectivity=2), intensity_image=probability):
        first_row, first_column, end_row, end_column = region.bbox
        if min(end_row - first_row, end_column - first_column) < 3 or region.intensity_mean < BOX_THRESHOLD:
            continue
        rows, columns = region.coords.T
        boxes.append(_fit_box((rows + 0.5) * down, (columns + 0.5) * across))
    return _reading_order(boxes)


def _fit_box(y: npt.NDArray[np.float64], x: npt.NDArray[np.float64]) -> Box:
    """The box around a region's points, tilted as the region is when it is long enough to show it."""
    slope = 0.0
    if np.ptp(x) > 3 * np.ptp(y):
        distance = x - x.mean()
        slope = float((distance * y).sum() / (distance**2).sum())
    left, right = float(x.min()), float(x.max())
    level = y - slope * (x - left)
    top, bottom = float(level.min()), float(level.max())
    margin = BOX_MARGIN * (bottom - top)
    return Box(left - margin, right + margin, top - margin * (1 + slope), bottom + margin * (1 - slope), slope)


def _reading_order(boxes: list[Box]) -> list[Box]:
    """Row by row from the top, each from the left; boxes whose middles are near are of one row."""
    rows: list[list[Box]] = []
    for box in sorted(boxes, key=lambda box: box.middle):
        if rows and abs(box.middle - rows[-1][0].middle) < (rows[-1][0].bottom - rows[-1][0].top) / 3:
            rows[-1].append(box)
        else:
            rows.append([box])
    return [box for row in rows for box in sorted(row, key=lambda box: box.left)]


def draw_line(picture: Picture, box: Box, line: Picture) -> None:
    """Draws the picture's pixels inside a box, made level, into `line` (48, 1280, 3): the recogniser's picture."""
    tall, long = box.bottom - box.top, box.right - box.left
    columns = min(line.shape[1], max(1, round(line.shape[0] * long / tall)))
    across, down = long / columns, tall / line.shape[0]

    # Only the pixels around the box: warp makes floats of all that it is given.
    fall = box.slope * long
    first_row = max(0, int(box.top + min(0.0, fall)) - 2)
    first_column = max(0, int(box.left) - 2)
    piece = picture[first_row : int(box.bottom + max(0.0, fall)) + 3, first_column : int(box.right) + 3]

    to_piece = AffineTransform(
        matrix=np.array(
            [
                [across, 0.0, box.left - first_column + across / 2 - 0.5],
                [across * box.slope, down, box.top - first_row + down / 2 - 0.5],
                [0.0, 0.0, 1.0],
            ]
        )
    )
    shape = (line.shape[0], columns)
    level = warp(piece, to_piece, output_shape=shape, order=3, mode="edge", preserve_range=True)
    line[:, :columns] = np.clip(level.round(), 0, 255)
    line[:, columns:] = LINE_BACKGROUND


def decode(scores: Scores, characters: Sequence[str]) -> Text:
    """Greedy CTC: the best class of each step (steps, classes), repeats drawn together, blanks (class 0) left out."""
    best = scores.argmax(axis=1)
    keep = best != 0
    keep[1:] &= best[1:] != best[:-1]
    if not keep.any():
        return Text("", 0.0)
    return Text("".join(characters[index] for index in best[keep]), float(scores.max(axis=1)[keep].mean()))
