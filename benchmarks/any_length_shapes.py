"""Random shapes through everything that serves an answer: ``shapes``, ``memory`` and ``fixed`` of any_length.py."""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from any_length import CLOCKS, Data, Feeds, samples_of, take_turns
from native import onnxruntime_session

Outputs = list[np.ndarray]
Run = Callable[[Feeds], Outputs]
SESSION, PIPELINE, ONE_FILE, PLUG_IN = "session", "pipeline", "model.onnx in ONNX Runtime", "plug-in"
MOST_ROWS = 4
SAME = 1e-4
"""Relative difference of two ways to run the same pieces: a sum in another order may round to another int8."""
WRONG = 0.5
"""Relative error beyond which an answer in lower precision is no approximation."""
CALLS, THREADS, PART = 10_000, 4, 1_000
GROWS = 1.02


def shapes(options: argparse.Namespace) -> bool:
    """Print what each way makes of random shapes; returns whether all are right."""
    folder, number = options.folder, options.number
    data, rng = Data(folder), np.random.default_rng(0)
    lengths = [data.length(sample) for sample in samples_of(folder / "data")]
    step = int(np.gcd.reduce(lengths))  # of a detector that takes multiples of its stride
    right = onnxruntime_session(folder / "model.onnx", 1, optimised=False)
    with tempfile.TemporaryDirectory() as work:
        ways = _ways(options.artifact, Path(work))
        errors: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(number):
            feeds = _drawn(data, rng, min(lengths), max(lengths), step)
            exact = right.run(None, feeds)
            first = ways[SESSION](feeds)
            for name, run in ways.items():
                made = first if name == SESSION else run(feeds)
                errors[name].append(_apart(made, exact if name == SESSION else first))
        fine = _refused(data, 2 * max(lengths), step, right, ways)
    for name, found in errors.items():
        limit, what = (WRONG, "ONNX Runtime, float32") if name == SESSION else (SAME, SESSION)
        bad = sum(not error <= limit for error in found)
        fine &= not bad
        print(f"{name}: from {what} median {np.median(found):.2g}, largest {max(found):.2g}, wrong {bad} of {number}")
    return fine


def _drawn(data: Data, rng: np.random.Generator, least: int, most: int, step: int = 1) -> Feeds:
    """A request of held-out samples, cut or repeated to one length, more often a short one."""
    length = step * round(least / step * (most / least) ** (rng.random() ** 1.5))
    rows = int(rng.integers(1, MOST_ROWS + 1)) if data.batch else 1
    chosen = [data.of_length(data.samples[k], length) for k in rng.integers(0, len(data.samples), rows)]
    return {name: np.concatenate([one[name] for one in chosen]) for name in chosen[0]}


def _apart(made: Outputs, right: Outputs) -> float:
    """The largest relative difference of an output; infinite for another shape or number of them, or a NaN."""
    if [one.shape for one in made] != [one.shape for one in right]:
        return float("inf")
    pairs = [(a.astype(float), b.astype(float)) for a, b in zip(made, right, strict=True)]
    apart = max(float(np.linalg.norm(a - b) / (np.linalg.norm(b) or 1)) for a, b in pairs)
    return apart if np.isfinite(apart) else float("inf")


def _ways(artifact: Path, work: Path) -> dict[str, Run]:
    """The answer in everything that serves it, on one thread."""
    import collage_evo
    from collage_evo.export.context_model import export_context_model
    from collage_evo.export.plain import MODEL, export_plain

    session = collage_evo.load(artifact)
    names = [value.name for value in session.get_outputs()]
    plain = export_plain(artifact.parent, work / "plain")
    sys.path.insert(0, str(work / "plain"))
    pipeline = importlib.import_module("pipeline").Pipeline()

    def piped(feeds: Feeds) -> Outputs:
        made = pipeline.run(feeds)
        return [made[name] for name in names]

    ways: dict[str, Run] = {SESSION: lambda feeds: session.run(None, feeds), PIPELINE: piped}
    if plain.one_file:
        file = onnxruntime_session(work / "plain" / MODEL, 1)
        ways[ONE_FILE] = lambda feeds: file.run(names, feeds)
    try:
        package = importlib.import_module("onnxruntime_ep_collage")
    except ImportError:
        print("the plug-in is left out: pip install ./plugins/onnxruntime_ep")
        return ways
    import onnxruntime as ort

    export_context_model(artifact.parent, work / "context")
    ort.register_execution_provider_library(package.get_ep_name(), package.get_library_path())
    options = ort.SessionOptions()
    options.log_severity_level = 4
    devices = [one for one in ort.get_ep_devices() if one.ep_name == package.get_ep_name()]
    options.add_provider_for_devices(devices, {})
    provided = ort.InferenceSession(str(work / "context" / MODEL), sess_options=options)
    return {**ways, PLUG_IN: lambda feeds: provided.run(names, feeds)}


def _refused(data: Data, longest: int, step: int, right: Any, ways: Mapping[str, Run]) -> bool:
    """Whether each way refuses what the model does not take, and runs as before after it."""
    good = {name: array[:1] for name, array in data.of_length(data.samples[0], 8 * step).items()}
    wrong = {f"length {longest}": data.of_length(data.samples[0], longest)}
    try:
        right.run(None, next(iter(wrong.values())))
        wrong = {}  # the model takes any
    except Exception as error:
        print(f"ONNX Runtime at length {longest}: {str(error).splitlines()[0][:100]}")
    for name in good if len(good) > 1 else ():
        for length in (1, 7):
            other = data.of_length(data.samples[0], length * step)
            wrong[f"{name} of {length}, others of 8"] = {**good, name: other[name]}
    before = {way: run(good) for way, run in ways.items()}
    fine = True
    for what, feeds in wrong.items():
        for way, run in ways.items():
            try:
                run(feeds)
                said = "taken" if way == ONE_FILE else "NOT REFUSED"
                fine &= way == ONE_FILE
            except Exception as error:
                said = f"{type(error).__name__}: {' '.join(str(error).split())[-110:]}"
            same = _apart(run(good), before[way]) == 0
            fine &= same
            print(f"{what}, {way}: {said}{'' if same else '; OTHER RESULTS AFTER IT'}", flush=True)
    return fine


def memory(options: argparse.Namespace) -> bool:
    """Print the process's memory over ``CALLS`` of small shapes in ``THREADS`` threads, each with a session."""
    import collage_evo

    data, used, numbers = Data(options.folder), np.zeros(CALLS), count()
    least = min(map(data.length, data.samples))

    def serve(seed: int) -> None:
        rng = np.random.default_rng(seed)
        with collage_evo.load(options.artifact) as session:
            for index in iter(numbers):
                if index >= CALLS:
                    return
                session.run(None, _drawn(data, rng, least, 3 * least))
                used[index] = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(serve, range(THREADS)))
    parts = [float(used[k : k + PART].mean()) for k in range(0, CALLS, PART)]
    print(f"MB by thousand calls: {' '.join(f'{part:.1f}' for part in parts)}")
    return parts[-1] <= GROWS * parts[0]


def fixed(options: argparse.Namespace) -> bool:
    """Print how long the session takes at each of the seven lengths over the same pieces fixed to that length."""
    from collage_evo.answer.sequential import Ratio
    from collage_evo.export.plain import MODEL, export_plain

    artifact, data, clock = options.artifact, Data(options.folder), CLOCKS.index(options.clock)
    with tempfile.TemporaryDirectory() as work:
        plain = export_plain(artifact.parent, Path(work) / "plain")
        if not plain.one_file:
            raise SystemExit(f"{artifact} has pieces of several libraries: give an answer of ONNX Runtime's")
        for number, feeds in enumerate(data.at_lengths()):
            _fix(Path(work) / "plain" / MODEL, feeds, Path(work) / f"{number}.onnx")
        file = ("onnxruntime", str(Path(work) / "plain" / MODEL), "")
        sides = {SESSION: ("collage_evo", str(artifact), ""), ONE_FILE: file, "fixed": ("fixed", work)}
        turns = take_turns(options.folder, sides, options.rounds, "lengths")
    ms = {name: np.array([turn["lengths"] for turn in taken])[..., clock] for name, taken in turns.items()}
    for number, length in enumerate(data.lengths):
        times = {name: each[:, number] for name, each in ms.items()}
        over = {name: Ratio.of(np.log(times[name] / times["fixed"]).tolist()) for name in (SESSION, ONE_FILE)}
        said = ", ".join(f"{name} {ratio} times that" for name, ratio in over.items())
        print(f"  length {length}: fixed {np.median(times['fixed']):.3g} ms, {said}")
    return True


def _fix(model: Path, feeds: Feeds, to: Path) -> None:
    """Write ``model`` with its inputs fixed to the shapes of ``feeds``."""
    import onnx
    from onnxruntime.tools.onnx_model_utils import fix_output_shapes, make_input_shape_fixed

    loaded = onnx.load(model)
    for name, array in feeds.items():
        make_input_shape_fixed(loaded.graph, name, list(array.shape))
    fix_output_shapes(loaded)
    onnx.save(loaded, to)


def opened_fixed(folder: Path, data: Data) -> Callable[[Feeds], Mapping[str, np.ndarray]]:
    """The models that ``fixed`` wrote, each for requests of its own length."""
    sessions = {length: onnxruntime_session(folder / f"{k}.onnx", 1) for k, length in enumerate(data.lengths)}
    names = [value.name for value in next(iter(sessions.values())).get_outputs()]
    return lambda feeds: dict(zip(names, sessions[data.length(feeds)].run(names, feeds), strict=True))
