"""Checks one piece on one backend, in this process: takes a model, yields a finding for each check.

A native library may crash here, so it runs in a process that may die (see ``process.py``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil

from collage_evo.backends.base import Backend, BuildFailure, Built, DeviceExecutable, Target
from collage_evo.backends.variants import Variant
from collage_evo.devices.device import CaptureError
from collage_evo.devices.open import open_device
from collage_evo.errors import one_line
from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.ir import Graph, Tensor
from collage_evo.graph.nonfinite import lost, spoiled
from collage_evo.graph.read import build_graph
from collage_evo.graph.reference import Reference, relative_error
from collage_evo.target.target import CPU
from collage_evo.testing.buffers import UNWRITTEN, Buffer, DeviceBuffer, HostBuffer
from collage_evo.testing.finding import Finding, Status
from collage_evo.testing.side_by_side import shared_time, together

SAME = 1e-6
"""Relative difference that repeated runs may have: threads may sum in another order."""
BUSY_SECONDS = 0.5
_BUSY_WALL_SECONDS = 60.0
_ENOUGH = 0.5
"""The part of a call during which other Python threads can run, where it lets them."""
_TURNS = 6
"""Runs of each of two instances at the same time."""
_BUSY_SHARE = 0.1
"""A thread that takes this part of the processor time has worked."""


@dataclass(frozen=True)
class Piece:
    """A model to build as one piece, and how.

    ``plain``: what it was written from, where the reference does not run its precision.
    """

    name: str
    model: bytes
    variant: Variant
    target: Target
    tolerance: float
    plain: bytes = b""

    def reference(self) -> Reference:
        """What says which results are right."""
        return Reference(onnx.load_from_string(self.plain or self.model))

    def graph(self) -> Graph:
        return build_graph(onnx.load_from_string(self.model))


class Instance:
    """One load of a piece, bound to buffers of its own; ``aligned`` and ``protected`` are for those of the host."""

    def __init__(
        self,
        backend: Backend,
        workdir: Path,
        piece: Piece,
        graph: Graph,
        aligned: bool = True,
        protected: bool = False,
    ) -> None:
        ins, outs = ([graph.tensors[name] for name in side] for side in (graph.inputs, graph.outputs))
        self._tensors = ins, outs
        on_host = piece.variant.device == CPU
        self._device = None if on_host else open_device(piece.variant.device)
        self.inputs: list[Buffer] = [self._buffer(tensor, aligned, protected) for tensor in ins]
        self.outputs: list[Buffer] = [self._buffer(tensor, aligned, False) for tensor in outs]
        self._executable: Any = backend.load(workdir, piece.target, piece.variant, ins, outs)
        if not on_host and not isinstance(self._executable, DeviceExecutable):
            raise TypeError(f"what runs on {piece.variant.device} must say whether it is capturable")
        self._call = self._executable.bind([b.seen for b in self.inputs], [b.seen for b in self.outputs])

    def move(self) -> None:
        """What is loaded already is bound to other buffers; what it was bound to before is gone."""
        self.inputs, self.outputs = ([self._buffer(tensor, True, False) for tensor in side] for side in self._tensors)
        self._call = self._executable.bind([b.seen for b in self.inputs], [b.seen for b in self.outputs])

    def _buffer(self, tensor: Tensor, aligned: bool, protected: bool) -> Buffer:
        return DeviceBuffer(tensor, self._device) if self._device else HostBuffer(tensor, aligned, protected)

    @property
    def on_host(self) -> bool:
        """Whether its buffers are the host's."""
        return self._device is None

    def feed(self, feeds: Sequence[np.ndarray]) -> None:
        for buffer, value in zip(self.inputs, feeds, strict=True):
            buffer.write(value)

    def run(self) -> list[np.ndarray]:
        """Copies of the outputs after one run into cleared buffers."""
        for buffer in self.outputs:
            buffer.clear()
        self.call()
        return [buffer.read() for buffer in self.outputs]

    def call(self) -> None:
        self._call()
        if self._device:
            self._device.synchronise()

    def capture(self) -> bool:
        """From now on replay what is captured of a call; False if it does not say that it can be.

        Raises:
            CaptureError: it says so, and it cannot.
        """
        if self._device is None or not self._executable.capturable:
            return False
        self._captured = self._call  # it holds what the capture uses
        self._call = self._device.capture(self._captured)
        return True


Begin = Callable[[str], None]
"""Told the name of each check before it begins, so that a crash can be laid to it."""


def examine(backend: Backend, piece: Piece, workdir: Path, begin: Begin) -> Iterator[Finding]:
    """Build, load and run ``piece``; what it left in ``workdir`` is there afterwards.

    Where the reference cannot say what would be right, nothing is run, and that is the finding.
    """
    graph = piece.graph()
    feeds = [list(random_inputs(graph, seed).values()) for seed in (0, 1)]
    begin("reference")
    wanted, reason = _wanted(piece, graph, feeds)
    yield Finding("reference", piece.name, "declined" if reason else "passed", reason)
    if reason:
        return
    begin("build")
    status, reason = _build(backend, piece, workdir)
    yield Finding("build", piece.name, status, reason)
    if status != "passed":
        return
    for check, problem in _runs(backend, piece, graph, workdir, feeds, wanted, begin):
        yield Finding(check, piece.name, "failed" if problem else "passed", problem)
        if problem:
            return
    begin("nonfinite")
    problem = _lost(backend, piece, graph, workdir, feeds[0])
    yield Finding("nonfinite", piece.name, "declined" if problem else "passed", problem)


def _wanted(
    piece: Piece, graph: Graph, feeds: Sequence[Sequence[np.ndarray]]
) -> tuple[list[list[np.ndarray]], str]:
    """What the reference gives for each of ``feeds``, or why that is no standard to go by."""
    try:
        reference = piece.reference()
        wanted = [reference.run(dict(zip(graph.inputs, values, strict=True))) for values in feeds]
    except Exception as error:  # the models are made at random: the reference may refuse one in any way
        return [], f"the reference cannot run it: {one_line(error)}"
    if not all(np.isfinite(value.astype(np.float64)).all() for value in (*wanted[0], *wanted[1])):
        return [], "the reference gives numbers that are not finite"
    if [value.shape for value in wanted[0]] != [graph.tensors[name].shape for name in graph.outputs]:
        return [], "the reference gives other shapes than were inferred"
    return wanted, ""


def _build(backend: Backend, piece: Piece, workdir: Path) -> tuple[Status, str]:
    before = onnx.load_from_string(piece.model)
    built = backend.build(before, piece.target, backend.builder(piece.variant), workdir)
    if isinstance(built, BuildFailure):
        return "declined", built.reason
    if before.SerializeToString(deterministic=True) != piece.model:
        return "failed", "build changed the model it was given"
    present = {str(path.relative_to(workdir)) for path in workdir.rglob("*") if path.is_file()}
    if present != set(built.files):
        return "failed", f"left the files {sorted(present)}, declared {sorted(built.files)}"
    return "passed", ""


def _runs(
    backend: Backend,
    piece: Piece,
    graph: Graph,
    workdir: Path,
    feeds: Sequence[Sequence[np.ndarray]],
    wanted: Sequence[Sequence[np.ndarray]],
    begin: Begin,
) -> Iterator[tuple[str, str]]:
    """Each check of a built piece, with what is wrong or nothing; the later ones take the earlier for granted."""

    def wrong(found: Sequence[np.ndarray], index: int) -> str:
        error = relative_error(list(found), list(wanted[index])).relative
        return "" if error < piece.tolerance else f"relative error {error:.2g}"

    begin("numerics")
    one = Instance(backend, workdir, piece, graph)
    one.feed(feeds[0])
    first = one.run()
    if unwritten := _unwritten(one, wanted[0]):
        yield "buffers", unwritten
    yield "numerics", wrong(first, 0)
    begin("inputs")
    kept = all(np.array_equal(b.read(), value) for b, value in zip(one.inputs, feeds[0], strict=True))
    yield "inputs", "" if kept else "a run changed an input"
    begin("repeat")
    again = relative_error(one.run(), first).relative
    yield "repeat", "" if again < SAME else f"a second run differs by {again:.2g}"
    begin("fresh")
    one.feed(feeds[1])
    problem = wrong(one.run(), 1)
    yield "fresh", f"after new inputs: {problem}" if problem else ""
    begin("buffers")
    problem, two = _elsewhere(backend, piece, graph, workdir, feeds, wrong, one)
    yield "buffers", problem
    begin("instances")
    one.feed(feeds[0])
    two.feed(feeds[1])
    results = (one.run(), two.run(), one.run())
    problem = wrong(results[0], 0) or wrong(results[1], 1) or wrong(results[2], 0)
    del one
    two.feed(feeds[0])
    problem = problem or wrong(two.run(), 0)
    yield "instances", f"with two in turns: {problem}" if problem else ""
    if two.on_host:
        begin("rebound")
        two.move()
        two.feed(feeds[1])
        problem = wrong(two.run(), 1)
        yield "rebound", f"bound to other buffers: {problem}" if problem else ""
        begin("together")
        three = Instance(backend, workdir, piece, graph)
        yield "together", together([partial(_often, each, feeds, wrong, at) for at, each in enumerate((two, three))])
    else:
        begin("capture")
        yield "capture", _replayed(two, feeds, wrong)


def _unwritten(instance: Instance, wanted: Sequence[np.ndarray]) -> str:
    for k, (buffer, expected) in enumerate(zip(instance.outputs, wanted, strict=True)):
        found = buffer.read()
        if (found == UNWRITTEN).all() and not (expected == UNWRITTEN).all() and found.dtype != bool:
            return f"output {k} was not written into the caller's buffer"
    return ""


def _elsewhere(
    backend: Backend,
    piece: Piece,
    graph: Graph,
    workdir: Path,
    feeds: Sequence[Sequence[np.ndarray]],
    wrong: Callable[[Sequence[np.ndarray], int], str],
    aligned: Instance,
) -> tuple[str, Instance]:
    """Bound to memory at odd places and to protected inputs, and the guards of all that ran before.

    Returns:
        What is wrong, or nothing; and the last instance, whose buffers are aligned unless something is wrong.
    """
    places = [aligned]
    for odd in (True, False) if aligned.on_host else (False,):
        places.append(Instance(backend, workdir, piece, graph, aligned=not odd, protected=True))
        places[-1].feed(feeds[1])
        if problem := wrong(places[-1].run(), 1):
            return f"{'unaligned' if odd else 'write-protected'} buffers: {problem}", places[-1]
    intact = all(buffer.guarded for place in places for buffer in (*place.inputs, *place.outputs))
    return "" if intact else "memory beside a buffer was written", places[-1]


def _lost(backend: Backend, piece: Piece, graph: Graph, workdir: Path, feeds: Sequence[np.ndarray]) -> str:
    """Which of NaN and infinity do not come out where they should."""
    reference, instance = piece.reference(), Instance(backend, workdir, piece, graph)
    gone = []
    for kind, given in spoiled(dict(zip(graph.inputs, feeds, strict=True))).items():
        instance.feed(list(given.values()))
        if lost(instance.run(), reference.run(given)):
            gone.append(kind)
    operators = ", ".join(sorted({node.op_type for node in graph.nodes}))
    return f"{', '.join(gone)} in {operators}" if gone else ""


def _often(
    instance: Instance,
    feeds: Sequence[Sequence[np.ndarray]],
    wrong: Callable[[Sequence[np.ndarray], int], str],
    first: int,
) -> str:
    """What is wrong with some runs, on the inputs of ``feeds`` in turn."""
    for run in range(first, first + _TURNS):
        instance.feed(feeds[run % len(feeds)])
        if problem := wrong(instance.run(), run % len(feeds)):
            return f"beside another thread: {problem}"
    return ""


def _replayed(
    instance: Instance, feeds: Sequence[Sequence[np.ndarray]], wrong: Callable[[Sequence[np.ndarray], int], str]
) -> str:
    """What is wrong with a capture of a piece that has run before, on inputs that it was not captured with."""
    instance.feed(feeds[0])
    instance.run()
    try:
        if not instance.capture():
            return ""
    except CaptureError as error:
        return f"says that it can be captured: {error}"
    for index in (1, 0):
        instance.feed(feeds[index])
        if problem := wrong(instance.run(), index):
            return f"a replay: {problem}"
    return ""


def reload(backend: Backend, piece: Piece, workdir: Path) -> Finding:
    """Whether a piece that another process built runs here."""
    graph = piece.graph()
    feeds = list(random_inputs(graph, 0).values())
    wanted = piece.reference().run(dict(zip(graph.inputs, feeds, strict=True)))
    instance = Instance(backend, workdir, piece, graph)
    instance.feed(feeds)
    error = relative_error(instance.run(), wanted).relative
    if error < piece.tolerance:
        return Finding("reload", piece.name, "passed")
    return Finding("reload", piece.name, "failed", f"relative error {error:.2g}")


def refuses(backend: Backend, piece: Piece, workdir: Path) -> Finding:
    """Whether a model that nobody can build comes back as a BuildFailure."""
    built = backend.build(onnx.load_from_string(piece.model), piece.target, backend.builder(piece.variant), workdir)
    if isinstance(built, Built):
        return Finding("errors", piece.name, "failed", "claims to have built a model that is not valid")
    if not isinstance(built, BuildFailure):
        return Finding("errors", piece.name, "failed", f"gave {type(built).__name__}, not a BuildFailure")
    if not built.reason.strip() or len(built.reason.splitlines()) != 1:
        return Finding("errors", piece.name, "failed", f"the reason is not one line: {built.reason!r}")
    return Finding("errors", piece.name, "passed")


def threads(backend: Backend, piece: Piece, workdir: Path) -> Finding:
    """Whether at most ``target.threads`` threads work while the piece runs. Needs a process of its own."""
    built = backend.build(onnx.load_from_string(piece.model), piece.target, backend.builder(piece.variant), workdir)
    if isinstance(built, BuildFailure):
        return Finding("threads", piece.name, "declined", built.reason)
    instance = _called_once(backend, piece, workdir)
    process = psutil.Process()
    before = {thread.id: thread.user_time + thread.system_time for thread in process.threads()}
    begin, deadline = time.process_time(), time.monotonic() + _BUSY_WALL_SECONDS
    while time.process_time() - begin < BUSY_SECONDS and time.monotonic() < deadline:
        instance.call()
    spent = [t.user_time + t.system_time - before.get(t.id, 0.0) for t in process.threads()]
    busy = sum(seconds > _BUSY_SHARE * sum(spent) for seconds in spent)
    allowed = piece.target.threads
    problem = "" if busy <= allowed else f"{busy} threads worked where {allowed} may"
    return Finding("threads", piece.name, "failed" if problem else "passed", problem)


def lets_others_run(backend: Backend, piece: Piece, workdir: Path) -> Finding:
    """Whether other Python threads run during a call of a heavy piece. Who keeps them from it is right, but alone."""
    built = backend.build(onnx.load_from_string(piece.model), piece.target, backend.builder(piece.variant), workdir)
    if isinstance(built, BuildFailure):
        return Finding("release", piece.name, "declined", built.reason)
    instance = _called_once(backend, piece, workdir)
    share = shared_time(instance.call, enough=_ENOUGH)
    if share >= _ENOUGH:
        return Finding("release", piece.name, "passed")
    reason = f"holds Python's lock: others run for {share:.0%} of a call, so that beside it nothing else gets on"
    return Finding("release", piece.name, "declined", reason)


def _called_once(backend: Backend, piece: Piece, workdir: Path) -> Instance:
    """The piece as it was built in ``workdir``, after a first run on random inputs."""
    graph = piece.graph()
    instance = Instance(backend, workdir, piece, graph)
    instance.feed(list(random_inputs(graph, 0).values()))
    instance.call()
    return instance
