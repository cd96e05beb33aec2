"""A run on one model of the corpus in a process that may die, as a row of the table."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from collage_evo.graph.reference.distance import holds_labels
from collage_evo.hardware.target import Target
from corpus.entry import Entry, Value, load_inputs, run, size_bytes
from corpus.inside import measure_inside

if TYPE_CHECKING:
    from collage_evo.report.result import RegionResult

SLICE_S = 0.5
ANSWER = Path("best.collage", "manifest.json")
"""In a run directory, once there is an answer."""
SERIOUS = 1e-3
"""Relative error, or share of elements that differ, from which an answer is wrong: the tool's own default."""
NOISE = 2.0
"""Or so many times what ONNX Runtime's own optimisations change: quantised models round differently everywhere."""


@dataclass(frozen=True)
class Asking:
    """How the tool is asked: seconds of search, more of its configuration, the bound on one answer's time.

    ``inside``: whether it measures in the asking process itself (:mod:`corpus.inside`).
    """

    runs: Path
    seconds: float
    wall_s: float
    config: Mapping[str, Any] = field(default_factory=dict)
    inside: bool = False

    def directory(self, entry: Entry) -> Path:
        """The run directory for one model."""
        return self.runs / entry.part / entry.name


@dataclass
class Row:
    """What became of one model. Times in seconds, ratios of latencies, None where there is no such figure.

    ``first_s`` is when the first answer lay on disk; ``error`` is the session's largest against ONNX Runtime on the
    model's own inputs; ``whole`` says why a model could not be taken apart; ``sole``
    counts nodes that only one backend supports, with the reasons of the others.
    """

    name: str
    part: str
    mb: float = 0.0
    opset: int = 0
    nodes: int = 0
    answer: str = ""
    first_s: float | None = None
    end_s: float | None = None
    over_onnxruntime: float | None = None
    over_single: float | None = None
    error: float | None = None
    whole: str = ""
    sole: dict[str, int] = field(default_factory=dict)
    message: str = ""


class Asker:
    """A process that answers one model after the other, ended and started anew when it dies or is too slow."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None

    def ask(self, path: Path, entry: Entry) -> Row:
        """The row of one model."""
        directory = self._asking.directory(entry)
        shutil.rmtree(directory, ignore_errors=True)
        if self._process is None or not self._process.is_alive():
            self._start()
        assert self._pipe is not None
        begin, first = time.monotonic(), None
        self._pipe.send((path, entry))
        row, message = None, f"no answer within {self._asking.wall_s:.0f} s"
        try:
            # In short waits, so that a machine put to sleep is no hang.
            for _ in range(int(self._asking.wall_s / SLICE_S)):
                answered = self._pipe.poll(SLICE_S)
                if first is None and (directory / ANSWER).exists():
                    first = time.monotonic() - begin
                if answered:
                    row = self._pipe.recv()
                    break
        except (EOFError, ConnectionResetError):
            message = "the process died"
        if row is None:
            self.close()
            row = Row(*described(path, entry), end_s=time.monotonic() - begin, message=message)
        shutil.rmtree(directory, ignore_errors=True)
        row.first_s = first
        return row

    def close(self) -> None:
        """End the process and all that it started."""
        if self._process is not None and self._process.pid is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:  # before it had a group of its own, or after its end
                self._process.kill()
            self._process.join()
        self._process = self._pipe = None

    def _start(self) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._asking, theirs))
        self._process.start()
        theirs.close()


def described(path: Path, entry: Entry) -> tuple[str, str, float, int, int]:
    """Name, part, MB, opset of the standard operators, and number of nodes with those of subgraphs."""
    model = onnx.load(path, load_external_data=False)
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    return entry.name, entry.part, size_bytes(path) / 1e6, opset, sum(1 for _ in _nodes(model.graph))


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from _nodes(attribute.g)


def _serve(asking: Asking, pipe: Connection) -> None:
    logging.disable(logging.CRITICAL)  # libraries warn about what the row says itself
    os.setsid()  # so that what it starts can be ended with it
    if asking.inside:
        measure_inside()
    while True:
        try:
            path, entry = pipe.recv()
        except EOFError:
            return
        pipe.send(_answer(asking, path, entry))


def _answer(asking: Asking, path: Path, entry: Entry) -> Row:
    from collage_evo.errors import CollageError, one_line

    row = Row(*described(path, entry))
    begin = time.monotonic()
    try:
        _optimize(asking, path, asking.directory(entry), row)
    except CollageError as error:
        row.message = str(error)
    except Exception as error:  # whatever it is, it is this model's row
        row.message = f"raised {one_line(error)}"
    row.end_s = row.end_s or time.monotonic() - begin
    return row


def _optimize(asking: Asking, path: Path, directory: Path, row: Row) -> None:
    """Run the tool and note its answer."""
    import collage_evo

    begin, arrays = time.monotonic(), load_inputs(path)
    answer = collage_evo.optimize(
        path,
        inputs=arrays,
        search_seconds=asking.seconds,
        out=directory,
        config=asking.config,
        progress=lambda *_: None,
    )
    row.end_s = time.monotonic() - begin
    report = answer.report
    row.answer = report.answer if report.answer != "placement" else _engines(report.placement)
    row.whole = report.not_searched
    row.over_single = report.speedup_over_best_single.estimate
    onnxruntime_ms = {baseline.name: baseline.median_ms for baseline in report.baselines}.get("onnxruntime")
    if onnxruntime_ms and report.best.median_ms:
        row.over_onnxruntime = onnxruntime_ms / report.best.median_ms
    # Its own inputs, through the door that a person takes.
    wanted = run(path, arrays)
    row.error = difference(answer.session.run(None, arrays), wanted)
    answer.session.close()
    lower = any(point.answer and not point.exact for point in report.front)
    allowed = report.accuracy.largest or 0.0  # the default leaves room for lower precisions
    noise = NOISE * difference(run(path, arrays, optimised=False), wanted)
    if row.error > max(SERIOUS, allowed if lower else 0.0, noise):
        row.message = f"the answer differs from ONNX Runtime's by {row.error:.2g}"
    if not row.whole:
        row.sole = _single_backends(directory / "work" / "normalised.onnx")


def _engines(placement: Sequence[RegionResult]) -> str:
    """Backends of a placement by their numbers of nodes."""
    count: Counter[str] = Counter()
    for region in placement:
        count[region.backend] += len(region.nodes)
    return f"{len(placement)} regions: " + ", ".join(f"{name} {nodes}" for name, nodes in count.most_common())


def _single_backends(normalised: Path) -> dict[str, int]:
    """How many nodes only one backend takes, by operator, backend and the others' reasons."""
    from collage_evo.backends.enumerate import supported_nodes
    from collage_evo.backends.select import select_backends
    from collage_evo.graph.convert.read import build_graph
    from collage_evo.graph.load.files import read_model

    graph = build_graph(read_model(normalised))
    refused = {backend.name: supported_nodes(graph, backend)[1] for backend in select_backends([], Target())}
    count: Counter[str] = Counter()
    for node in graph.nodes:
        takers = [name for name, reasons in refused.items() if node.index not in reasons]
        if len(takers) == 1:
            others = {name: reasons[node.index] for name, reasons in refused.items() if name not in takers}
            described = "; ".join(f"{name}: {general(reason)}" for name, reason in others.items())
            count[f"{node.op_type} only {takers[0]} ({described})"] += 1
    return dict(count)


def general(reason: str) -> str:
    """The reason without the names of tensors, so that like reasons are counted together."""
    words = reason.split()
    return " ".join("..." if before == "tensor" else word for before, word in zip(["", *words], words, strict=False))


def difference(made: Sequence[Value], wanted: Sequence[Value]) -> float:
    """The largest of any output: relative 2-norm of floats and quantised values, else the share that differs."""
    if len(made) != len(wanted):
        return float("inf")
    return max((_one_difference(a, b) for a, b in zip(made, wanted, strict=True)), default=0.0)


def _one_difference(made: Value, wanted: Value) -> float:
    if not isinstance(wanted, np.ndarray):  # a sequence, a map, or nothing
        if isinstance(wanted, list) and isinstance(made, list):
            return difference(made, wanted)
        if isinstance(wanted, dict) and isinstance(made, dict) and made.keys() == wanted.keys():
            return difference([np.asarray(made[key]) for key in wanted], [np.asarray(wanted[key]) for key in wanted])
        return 0.0 if made == wanted else float("inf")
    made = np.asarray(made)
    if made.shape != wanted.shape or made.dtype != wanted.dtype:
        return float("inf")
    if holds_labels([wanted]) or wanted.dtype.kind not in "iufV":
        return float(np.mean(made != wanted)) if wanted.size else 0.0
    values, right = made.astype(np.float64), wanted.astype(np.float64)
    if not np.array_equal(np.isfinite(values), np.isfinite(right)):
        return float("inf")
    finite = np.isfinite(right)
    norm = float(np.linalg.norm(right[finite]))
    gap = float(np.linalg.norm(values[finite] - right[finite]))
    return gap / norm if norm else gap
