"""One side of a comparison in a process of its own.

    python benchmarks/side.py CORES KIND ARGUMENT...

    session ARTIFACT                 the runtime, from the caller's arrays to arrays of the caller's own
    execute ARTIFACT                 the runtime's loop over regions alone, inputs fed before
    bound ARTIFACT                   the same regions called in a hand-written loop, buffers bound (no runtime)
    opened PATH SHAPES               a file in ONNX Runtime, or an artifact, on so many shapes of open inputs in turn
    native BACKEND PATH THREADS ARTIFACT   a backend's own API; the artifact only tells inputs and outputs
    pytorch WAY EXACT MODEL REFERENCE ARTIFACT   PyTorch on the ONNX file, ``pytorch.py``; EXACT is yes or no
    contestant TASK FOLDER THREADS   what a contestant of ``precision.py`` found, on the task's first held-out sample
    ordinary LIBRARY PATH DATA       a file in a library, or an artifact, on the first sample: ``ordinary.py``

Reads one JSON line for each turn, {"seconds": 0.5, "warm_s": 0.2}: for how long to run, and how long to run untimed
before. Answers with one: {"times_ms": [...], "page_faults": 3}.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import numpy as np
from native import Arrays, onnxruntime_session, open_bound, open_native

import collage_evo
from collage_evo.runtime.artifact import Artifact, read_artifact

Call = Callable[[], object]
WARM_UP = 5


def feeds_of(artifact: Artifact) -> dict[str, np.ndarray]:
    """Inputs of the artifact's model, the same on every side: random floats; integers all 1."""
    rng = np.random.default_rng(0)
    feeds = {}
    for name in artifact.program.inputs:
        tensor = artifact.program.tensors[name]
        floats = tensor.dtype.startswith("float")
        feeds[name] = (rng.standard_normal(tensor.shape) if floats else np.ones(tensor.shape)).astype(tensor.dtype)
    return feeds


def session(path: str) -> Call:
    loaded, feeds = collage_evo.load(path), feeds_of(read_artifact(Path(path)))
    return lambda: loaded.run(None, feeds)


def execute(path: str) -> Call:
    loaded = collage_evo.load(path)
    loaded.feed(feeds_of(read_artifact(Path(path))))
    return loaded.execute


def bound(path: str) -> Call:
    artifact = read_artifact(Path(path))
    tensors = {t.name: np.zeros(t.shape, t.dtype) for t in artifact.program.tensors.values()}
    for name, array in feeds_of(artifact).items():
        tensors[name][...] = array
    calls = []
    for piece in artifact.program.pieces:
        arrays: list[Arrays] = [[tensors[n] for n in names] for names in (piece.inputs, piece.outputs)]
        calls.append(open_bound(piece.backend, piece.directory, artifact.target.threads, *arrays))

    def run() -> dict[str, np.ndarray]:
        for call in calls:
            call()
        return tensors  # keeps the buffers, of which the libraries know only the addresses

    return run


def opened(path: str, shapes: str) -> Call:
    is_artifact = path.endswith(".collage")
    loaded = collage_evo.load(path) if is_artifact else onnxruntime_session(Path(path), 1)
    inputs = loaded.get_inputs()
    feeds = cycle([{one.name: np.ones((1, 16 + k), np.float32) for one in inputs} for k in range(int(shapes))])
    return lambda: loaded.run(None, next(feeds))


def native(backend: str, path: str, threads: str, artifact: str) -> Call:
    call, feeds = open_native(backend, Path(path), int(threads)), feeds_of(read_artifact(Path(artifact)))
    return lambda: call(list(feeds.values()))


def pytorch(way: str, exact: str, model: str, reference: str, artifact: str) -> Call:
    from pytorch import open_torch

    loaded = read_artifact(Path(artifact))
    run = open_torch(way, exact == "yes", Path(model), Path(reference), loaded.target)
    feeds = feeds_of(loaded)
    return lambda: run(feeds)


def contestant(task: str, folder: str, threads: str) -> Call:
    from contest.worker import opened

    run, feeds = opened(Path(task), Path(folder), int(threads))
    return lambda: run(feeds)


def ordinary(library: str, path: str, data: str) -> Call:
    from ordinary import opened, rows_of

    run, row = opened(library, path), rows_of(data)[0]
    return lambda: run(row)


def warm_up(call: Call, least_s: float, most_s: float) -> None:
    """Some calls, fewer where they take as long as the turn, more where a device asks for it."""
    began, calls, spent = time.perf_counter(), 0, 0.0
    while spent < least_s or (calls < WARM_UP and spent < most_s):
        call()
        calls, spent = calls + 1, time.perf_counter() - began


def page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def main() -> None:
    cores, kind, *arguments = sys.argv[1:]
    os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sides = (session, execute, bound, opened, native, pytorch, contestant, ordinary)
    kinds: dict[str, Callable[..., Call]] = {side.__name__: side for side in sides}
    call = kinds[kind](*arguments)
    for line in sys.stdin:
        request = json.loads(line)
        warm_up(call, request["warm_s"], request["seconds"])
        times: list[float] = []
        before, end = page_faults(), time.perf_counter() + request["seconds"]
        while not times or time.perf_counter() < end:
            start = time.perf_counter()
            call()
            times.append((time.perf_counter() - start) * 1e3)
        answers.write(json.dumps({"times_ms": times, "page_faults": page_faults() - before}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
