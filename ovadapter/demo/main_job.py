"""The main job: a picture from another process goes through two models, and every tensor says whether it was copied."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import openvino as ov

from ovadapter.demo import machine, ocr, producer
from ovadapter.hardware import choose_driver

if TYPE_CHECKING:
    from pathlib import Path

Progress = Callable[[str], None]


@dataclass
class TensorReport:
    """How one tensor of a model was bound. `copied` is None where nobody can tell."""

    route: str
    copied: bool | None
    rule: str
    evidence: str


@dataclass(frozen=True)
class Line:
    """One line of text as the device read it and as the CPU plugin read the same pixels."""

    device: ocr.Text
    cpu: ocr.Text


@dataclass
class Outcome:
    """All that the demo found out.

    `differences` are the largest between a model's raw output and the CPU plugin's in f32.
    """

    device: str
    device_name: str
    driver: str
    loader: dict[str, str]
    picture: producer.Handover
    tensors: dict[str, TensorReport] = field(default_factory=dict)
    differences: dict[str, float] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)

    @property
    def zero_copy(self) -> bool | None:
        """True when no tensor was copied, None when nobody can tell, else False."""
        verdicts = {report.copied for report in self.tensors.values()}
        if True in verdicts:
            return False
        return None if None in verdicts else True


class Stage:
    """A model on the device, bound to its memory for good, and the same model on the CPU plugin beside it."""

    def __init__(self, name: str, model: ov.Model, place: machine.Machine, source: Any, core: ov.Core) -> None:
        self.name = name
        shape_in, shape_out = tuple(model.input().shape), tuple(model.output().shape)
        result = place.allocate(4 * int(np.prod(shape_out)))
        self._compiled = core.compile_model(model, place.device)
        self._binding = place.bind(self._compiled.create_infer_request(), source, result)
        # In f32, as the software NPU computes: where the CPU has bf16, its plugin would take that by itself.
        self._reference = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
        self.source = place.array(source, "u1", shape_in)
        self.result = place.array(result, "f4", shape_out)

    def infer(self, outcome: Outcome) -> ocr.Scores:
        """Runs the model on what lies in `source`; notes verdicts and differences; returns the CPU plugin's output."""
        self._binding.infer()
        expected: ocr.Scores = self._reference.infer([self.source.copy()])[0]
        difference = np.abs(self.result - expected).max()
        outcome.differences[self.name] = float(np.maximum(difference, outcome.differences.get(self.name, 0.0)))
        for tensor in (ocr.INPUT, ocr.OUTPUT):
            self._note_verdict(outcome, tensor)
        return expected

    def _note_verdict(self, outcome: Outcome, tensor: str) -> None:
        verdict = self._binding.verdict(tensor)
        if verdict is None:
            report = TensorReport("plain tensor", None, "the CPU plugin gives no evidence", "none")
        else:
            report = TensorReport(str(verdict.route), verdict.copied, str(verdict.rule), str(verdict.evidence))
        before = outcome.tensors.get(f"{self.name}/{tensor}")
        if before is None or before.copied is False or report.copied:  # one copy among many must not be forgotten
            outcome.tensors[f"{self.name}/{tensor}"] = report

    def close(self) -> None:
        """Lets go of the memory: bound tensors first, then the arrays over it."""
        self._binding.close()
        del self.source, self.result


def run(device: str, image: Path | None, progress: Progress) -> Outcome:
    """Runs the demo on "NPU" or "CPU"; raises when there is no such device, or a route would copy."""
    if device == "NPU":
        choose_driver(progress)
    core = ov.Core()
    with ExitStack() as stack:
        place = stack.enter_context(machine.open_machine(device, core))
        progress("waiting for the picture of another process")
        picture = producer.receive(image, plain=device == "CPU")
        stack.enter_context(picture.fd)
        outcome = Outcome(place.device, place.device_name, place.driver, place.loader, picture)

        progress("compiling the detection model")
        model = ocr.read_detector(core, picture.height, picture.width)
        arrived = place.take(picture.fd, picture.size)
        detection = stack.enter_context(closing(Stage("detection", model, place, arrived, core)))

        progress("compiling the recognition model")
        model, characters = ocr.read_recogniser(core)
        drawn = place.allocate(int(np.prod(model.input().shape)))
        recognition = stack.enter_context(closing(Stage("recognition", model, place, drawn, core)))

        progress("looking for text")
        detection.infer(outcome)
        boxes = ocr.find_boxes(detection.result[0, 0], picture.height, picture.width)
        progress(f"reading {len(boxes)} lines")
        for box in boxes:
            ocr.draw_line(detection.source[0], box, recognition.source[0])
            expected = recognition.infer(outcome)
            line = Line(ocr.decode(recognition.result[0], characters), ocr.decode(expected[0], characters))
            if line.device.score >= ocr.TEXT_THRESHOLD:
                outcome.lines.append(line)
    return outcome
