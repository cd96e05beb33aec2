"""The contestants, as functions from a task and a budget to a model and the engine that runs it.

Each follows its documentation for a user with a model, data and a budget: it calibrates ranges on the first
``CALIBRATION`` samples, by MinMax unless its name says otherwise, and chooses by all samples.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from contest.elsewhere import elsewhere
from contest.engines import ONNXRUNTIME, OPENVINO, OURS, Served
from contest.quantize_static import MIN_MAX, quantize
from contest.question import Finder, Question, Result, answer_folder, read_result
from contest.task import CALIBRATION, METRICS, feeds_of, read_samples

_HEAVY = {"Convolution", "GroupConvolution", "ConvolutionBackpropData", "MatMul"}
AT_ONCE = "ours at once"
"""One run for the largest of a task's budgets, of which the answers for the others are picked."""


def _as_it_is(engine: str, hint: str = "") -> Finder:
    return lambda question: Served(engine, str(question.task.model), hint)


def _again(name: str, engine: str, hint: str) -> Finder:
    """The model that the contestant ``name`` found, on ``engine``."""

    def find(question: Question) -> Result:
        result = read_result(answer_folder(question.folder.parent, name, None))
        if result is None or result.served is None:
            raise RuntimeError(f"{name}: {result.reason if result else 'takes no part'}")
        return Result(result.seconds, Served(engine, result.served.path, hint))

    return find


def _static(ranges: str = MIN_MAX) -> Mapping[str, Finder]:
    """``quantize_static`` in both engines, by ``ranges`` of a calibration method."""
    name = "quantize_static" if ranges == MIN_MAX else f"quantize_static {ranges.lower()}"
    first = f"{name}, onnxruntime"
    return {
        first: lambda question: Served(ONNXRUNTIME, str(quantize(question.task, question.folder, ranges))),
        f"{name}, openvino": _again(first, OPENVINO, "f32"),
        f"{name}, openvino bf16": _again(first, OPENVINO, "bf16"),
    }


def _nncf(question: Question, heavy: bool = False, transformer: bool = False) -> Served:
    """With ``heavy`` quantisers stand at convolutions and products only; ``transformer`` smooths any task's."""
    # Both report their use over the network unless this package is missing.
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
    import nncf
    import openvino

    task, inputs = question.task, question.task.inputs()
    data = nncf.Dataset([feeds_of(sample, inputs) for sample in read_samples(task.samples)[:CALIBRATION]])
    model = openvino.Core().read_model(str(task.model))
    others = sorted({node.get_type_name() for node in model.get_ops()} - _HEAVY) if heavy else []
    ignored = nncf.IgnoredScope(types=others, validate=False)
    kind = nncf.ModelType.TRANSFORMER if transformer or task.transformer else None
    made = nncf.quantize(model, data, subset_size=CALIBRATION, model_type=kind, ignored_scope=ignored)
    path = question.folder / "model.xml"
    openvino.save_model(made, str(path), compress_to_fp16=False)
    return Served(OPENVINO, str(path), "f32")


def _ours(*settings: str) -> Callable[[Question], Served]:
    def find(question: Question) -> Served:
        task = question.task
        wanted = [f"target.threads={question.threads}", *settings, *question.settings]
        if task.metric:
            wanted.append(f"accuracy.metric={METRICS}:{task.metric}")
        run = question.folder / "run"
        _collage_evo(
            *("run", task.model, "--data", task.samples, "--budget", question.budget, "--out", run, "--overwrite"),
            *(part for setting in wanted for part in ("-s", setting)),
        )
        return Served(OURS, str(run / "best.collage"))

    return find


def _picked(question: Question) -> Served:
    """Of one run, for the largest budget, what it says to the others."""
    largest = max(question.task.budgets)
    if question.budget == largest:
        return _ours()(question)
    first = read_result(answer_folder(question.folder.parent, AT_ONCE, largest))
    if first is None or first.served is None:
        raise RuntimeError(f"the run for {largest:g} has no answer")
    run, budget = Path(first.served.path).parent, f"{question.budget:g}"
    _collage_evo("pick", run, "--budget", budget)
    return Served(OURS, str(run / "picked" / budget / "best.collage"))


def _collage_evo(*arguments: object) -> None:
    command = [sys.executable, "-m", "collage_evo", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(" ".join(done.stdout.split())[-300:])


PLAIN: Mapping[str, Finder] = {
    "onnxruntime f32": _as_it_is(ONNXRUNTIME),
    "openvino f32": _as_it_is(OPENVINO, "f32"),
    "openvino as it comes": _as_it_is(OPENVINO),
    "openvino f16": _as_it_is(OPENVINO, "f16"),
    "openvino bf16": _as_it_is(OPENVINO, "bf16"),
    **_static(),
    **_static("Percentile"),
    **_static("Entropy"),
    "nncf": _nncf,
    "nncf, bf16": _again("nncf", OPENVINO, "bf16"),
    "nncf heavy": partial(_nncf, heavy=True),
    "nncf heavy, bf16": _again("nncf heavy", OPENVINO, "bf16"),
    "nncf transformer": partial(_nncf, transformer=True),
    "nncf transformer, bf16": _again("nncf transformer", OPENVINO, "bf16"),
    "olive": elsewhere("olive"),
    "olive, openvino": _again("olive", OPENVINO, "f32"),
    "quark": elsewhere("quark"),
    "quark, openvino": _again("quark", OPENVINO, "f32"),
}
"""Who gives the same whatever the budget is."""
FOR_A_BUDGET: Mapping[str, Finder] = {
    "ours, onnxruntime": _ours('backends.use=["onnxruntime"]'),
    "ours, openvino": _ours('backends.use=["openvino"]'),
    "ours": _ours(),
    AT_ONCE: _picked,
}
"""Who is asked anew for each budget."""
