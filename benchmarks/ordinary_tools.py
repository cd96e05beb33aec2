"""The quantised models of ``ordinary.py``, and its race."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from contest.engines import ONNXRUNTIME, OPENVINO, OURS, Served
from contest.entrants import run_bounded
from contest.found import Found, read_found, write_found
from contest.judge import keeps, lost
from contest.quantize_static import Reader
from contest.task import Task, read_samples, write_task
from rows import markdown, show
from turns import Rounds, median_ms, ratio, take_turns

from collage_evo.files import write_whole
from collage_evo.graph.data import write_npz
from collage_evo.target.processor import this_machine
from collage_evo.target.slots import usable_cores

SCORE_S = 600.0
"""Bound on the time in which a side opens its model and runs over the held-out samples."""
_HEAVY = {"Convolution", "GroupConvolution", "ConvolutionBackpropData", "MatMul"}
FLOAT32 = {"onnxruntime": ONNXRUNTIME, "openvino": OPENVINO}


@dataclass(frozen=True)
class Race:
    """How long each side runs, and the error that a rival may have."""

    output: Path
    rounds: int
    seconds: float
    budget: float


def quantise(folder: Path, transformer: bool) -> None:
    """Let each tool whose model is missing quantise the network in ``folder``; ``failed.json`` keeps why one failed."""
    made, failed = folder / "tools", {}
    made.mkdir(exist_ok=True)
    model, samples = folder / "model.onnx", read_samples(folder / "data.npz")
    for name, tool in _tools(transformer).items():
        if any(made.glob(f"{name}.*")):
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory(dir=made) as scratch:
            try:
                files = tool(model, samples, Path(scratch) / name)
            except Exception as error:  # the tools raise whatever their libraries raise
                failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
            else:
                for file in files:
                    shutil.move(file, made / file.name)
        print(f"{folder.name}, {name}: {failed.get(name, 'made')}, {time.monotonic() - began:.0f} s", flush=True)
    (made / "failed.json").unlink(missing_ok=True)
    if failed:
        write_whole(made / "failed.json", json.dumps(failed, indent=1))


Tool = Callable[[Path, Sequence[Mapping[str, Any]], Path], list[Path]]
"""Takes a model, samples, and a path to which it adds suffixes; gives the files to keep."""


def _tools(transformer: bool) -> dict[str, Tool]:
    return {
        "nncf": partial(_nncf, transformer=transformer),
        "nncf_fix": partial(_nncf, transformer=transformer, fix=True),
        "nncf_heavy_fix": partial(_nncf, transformer=transformer, fix=True, heavy=True),
        "static": _static,
        "static_reduced": partial(_static, reduced=True),
    }


def _nncf(
    model: Path, samples: Sequence[Any], to: Path, transformer: bool, fix: bool = False, heavy: bool = False
) -> list[Path]:
    """With ``fix`` weights take 7 bits, so that sums of AVX2 cannot overflow; ``heavy`` as in ``contest/finders.py``."""
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # it reports use over the network
    import nncf
    import openvino
    from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters, OverflowFix

    read = openvino.Core().read_model(str(model))
    others = sorted({node.get_type_name() for node in read.get_ops()} - _HEAVY) if heavy else []
    made = nncf.quantize(
        read,
        nncf.Dataset(samples),
        subset_size=len(samples),
        model_type=nncf.ModelType.TRANSFORMER if transformer else None,
        ignored_scope=nncf.IgnoredScope(types=others, validate=False),
        advanced_parameters=AdvancedQuantizationParameters(overflow_fix=OverflowFix.ENABLE) if fix else None,
    )
    openvino.save_model(made, str(to.with_suffix(".xml")), compress_to_fp16=False)
    return [to.with_suffix(".bin"), to.with_suffix(".xml")]


def _static(model: Path, samples: Sequence[Any], to: Path, reduced: bool = False) -> list[Path]:
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared, path = to.with_suffix(".prepared.onnx"), to.with_suffix(".onnx")
    quant_pre_process(model, prepared, skip_symbolic_shape=True)  # all shapes are fixed
    quantize_static(
        prepared,
        path,
        Reader(samples),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        reduce_range=reduced,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    return [path]


def race(folder: Path, answers: Mapping[str, Sequence[Path]], how: Race) -> None:
    """Let the sides of each network take turns; ``answers`` are those that replace the one in its folder."""
    cores = usable_cores()[:1]
    about: dict[str, Any] = {"cpu": this_machine().cpu, "threads": 1, "budget": how.budget, "networks": {}}
    print(f"{about['cpu']}, core {cores[0]}", flush=True)
    for name, given in answers.items():
        # The worker has a directory of its own, so paths must be absolute.
        place = (folder / name).resolve()
        task = _task(place)
        sides = _judged(task, _sides(place, given), cores)
        running = {side: found for side, (found, _) in sides.items() if found.answer}
        errors = {side: error for side, (_, error) in sides.items()}
        turns = take_turns(
            {side: ["contestant", str(task.folder), str(_folder(task, side)), "1"] for side in running},
            cores, how.rounds, how.seconds, may_die=running,
        )  # fmt: skip
        about["networks"][name] = {
            side: {
                "path": found.served.path if found.served else "",
                "reason": found.reason,
                "error": error,
                "times_ms": [turn.times_ms for turn in turns.get(side, ())],
            }
            for side, (found, error) in sides.items()
        }
        write_whole(how.output, json.dumps(about))
        _show(name, turns, errors, how.budget)


def _sides(folder: Path, given: Sequence[Path]) -> dict[str, Served]:
    sides = {name: Served(engine, str(folder / "model.onnx")) for name, engine in FLOAT32.items()}
    for path in sorted((folder / "tools").glob("*.xml")):
        sides[f"{path.stem}, openvino"] = Served(OPENVINO, str(path))
    for path in sorted((folder / "tools").glob("*.onnx")):
        sides[f"{path.stem}, onnxruntime"] = Served(ONNXRUNTIME, str(path))
        sides[f"{path.stem}, openvino"] = Served(OPENVINO, str(path))
    own = folder / "run" / "best.collage"
    for index, path in enumerate(given or [own] * own.exists()):
        sides["answer" if index == 0 else f"answer {index + 1}"] = Served(OURS, str(path.resolve()))
    return sides


def _task(folder: Path) -> Task:
    """The network as a task of the contest, whose worker then runs each side; references come from plain kernels."""
    import onnxruntime

    shutil.rmtree(folder / "race", ignore_errors=True)
    task = Task(folder.name, folder / "race" / "task")
    data, held_out = (dict(np.load(folder / name)) for name in ("data.npz", "heldout.npz"))
    write_task(task, onnx.load(folder / "model.onnx"), data, held_out)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
    made = [session.run(None, sample) for sample in read_samples(task.held_out)]
    references = {name: np.stack(arrays) for name, arrays in zip(task.outputs(), zip(*made, strict=True), strict=True)}
    write_npz(task.held_out.with_name(f"{task.held_out.stem}_reference.npz"), references)
    return task


def _folder(task: Task, side: str) -> Path:
    return task.folder.with_name(side.replace(", ", "_").replace(" ", "_"))


def _judged(
    task: Task, sides: Mapping[str, Served], cores: Sequence[int]
) -> dict[str, tuple[Found, float | None]]:
    """Each side as its worker left it, and its error; None where it does not run."""
    judged: dict[str, tuple[Found, float | None]] = {}
    for side, served in sides.items():
        folder, error = _folder(task, side), None
        write_found(folder, Found(0.0, served))
        run_bounded(["-m", "contest.worker", "score", str(task.folder), str(folder), "1"], SCORE_S, cores)
        found = read_found(folder)
        assert found is not None
        if (folder / "scores.npy").exists():
            scores = np.load(folder / "scores.npy")
            error = lost(scores, np.zeros_like(scores))
        elif not found.reason:
            found = Found(0.0, served, "its process died or took too long")
        if found.reason:
            print(f"{task.name}, {side}: left out, {found.reason}", flush=True)
        judged[side] = found, error
    return judged


def _show(name: str, turns: Rounds, errors: Mapping[str, float | None], budget: float) -> None:
    table = markdown(name, "ms", "error")
    times = {side: median_ms(turns, side) for side in turns}
    for side in sorted(times, key=times.__getitem__):
        table.add_row(side, f"{times[side]:.2f}", f"{errors[side]:.2g}")
    show(table)
    answers = [side for side in times if side.startswith("answer")]
    within = [side for side in times if side not in answers and keeps(errors[side] or 0.0, budget)]
    for answer in answers:
        for what, rivals in ((f"best within {budget:g}", within), ("best in float32", [*FLOAT32])):
            rivals = [side for side in rivals if side in times]
            if rivals:
                rival = min(rivals, key=times.__getitem__)
                print(f"{name}: {answer} is {ratio(turns, rival, answer)} times as fast as {rival} ({what})", flush=True)
