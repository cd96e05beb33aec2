"""A task of the contest on disk: a model of fixed shapes, data that everybody is given, data that nobody is given.

``model.onnx``, ``given.npz`` and ``held_out.npz`` (arrays with a leading samples axis: one for each input of the
model, and labels under names that are no inputs), ``task.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from collage_evo.graph.load.data import write_npz

Sample = dict[str, Any]
"""Arrays by name: inputs, and labels if there are any."""
Arrays = Mapping[str, np.ndarray]

METRICS = Path(__file__).resolve().parents[1] / "precision_metrics.py"
DROPS = (0.001, 0.005, 0.01)
"""Budgets of a task with a metric: largest absolute drop of it."""
ERRORS = (0.01, 0.02, 0.05)
"""Budgets of a task without: largest relative 2-norm error of an output."""
CALIBRATION = 300
"""Most samples that a quantiser takes its ranges from."""


@dataclass(frozen=True)
class Task:
    """What is asked of the contestants. ``metric`` names a function in ``precision_metrics.py``, or is empty."""

    name: str
    folder: Path
    metric: str = ""
    transformer: bool = False
    """What NNCF wants to be told of a model."""
    only: tuple[float, ...] = ()
    """Those of its budgets that are asked for; all if empty."""

    @property
    def model(self) -> Path:
        return self.folder / "model.onnx"

    @property
    def samples(self) -> Path:
        """Data for calibration and for choosing."""
        return self.folder / "given.npz"

    @property
    def held_out(self) -> Path:
        """Data on which contestants are judged, and which none of them sees before."""
        return self.folder / "held_out.npz"

    @property
    def budgets(self) -> tuple[float, ...]:
        usual = DROPS if self.metric else ERRORS
        return tuple(budget for budget in usual if not self.only or budget in self.only)

    def inputs(self) -> tuple[str, ...]:
        """Names of the model's inputs, in its order."""
        graph = onnx.load(self.model, load_external_data=False).graph
        constants = {tensor.name for tensor in graph.initializer}
        return tuple(value.name for value in graph.input if value.name not in constants)

    def outputs(self) -> tuple[str, ...]:
        """Names of the model's outputs, in its order."""
        return tuple(value.name for value in onnx.load(self.model, load_external_data=False).graph.output)


def write_task(task: Task, model: onnx.ModelProto, samples: Arrays, held_out: Arrays) -> None:
    """Put a task into its folder; ``task.json`` comes last, so that a task that is there is whole."""
    task.folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, task.model)
    write_npz(task.samples, samples)
    write_npz(task.held_out, held_out)
    _write_about(task)


def _write_about(task: Task) -> None:
    (task.folder / "task.json").write_text(json.dumps({**asdict(task), "folder": ""}, indent=1))


def read_task(folder: Path) -> Task:
    """The task in ``folder``.

    Raises:
        FileNotFoundError: there is none, or not the whole of it.
    """
    fields = json.loads((folder / "task.json").read_text())
    return Task(**{**fields, "folder": folder})


def without_metric(task: Task) -> Task:
    """The same model and data in a folder ``NAME_error`` of their own, judged by the relative error."""
    folder = task.folder.parent.with_name(f"{task.folder.parent.name}_error") / task.folder.name
    if not (folder / "task.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / task.model.name).unlink(missing_ok=True)
        (folder / task.model.name).symlink_to(task.model.resolve())
        inputs = task.inputs()
        for file in (task.samples, task.held_out):  # nobody is given labels
            with np.load(file, allow_pickle=False) as data:
                write_npz(folder / file.name, {name: data[name] for name in inputs})
        _write_about(replace(task, name=f"{task.name}_error", folder=folder, metric=""))
    return read_task(folder)


def read_samples(path: Path) -> list[Sample]:
    """The samples of an ``.npz`` with a leading samples axis."""
    with np.load(path, allow_pickle=False) as data:
        arrays = {name: data[name] for name in data.files}
    count = len(next(iter(arrays.values())))
    return [{name: array[index] for name, array in arrays.items()} for index in range(count)]


def feeds_of(sample: Sample, inputs: Sequence[str]) -> dict[str, np.ndarray]:
    """What the model takes of a sample."""
    return {name: sample[name] for name in inputs}
