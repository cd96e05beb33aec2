"""Checks of one piece on one backend, in this process: yields a finding for each.

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

from collage_evo.backends.base import Backend, BuildFailure, Built, Target
from collage_evo.backends.variants import Variant
from collage_evo.errors import CollageError, one_line
from collage_evo.files import files_in
from collage_evo.graph.check.nonfinite import lost, spoiled
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph, Tensor
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import Reference
from collage_evo.testing.buffers import UNWRITTEN, Buffer, Harness
from collage_evo.testing.finding import Finding, Status
from collage_evo.testing.side_by_side import together

SAME = 1e-6
"""Relative difference allowed between repeated runs: threads may sum in another order."""
BUSY_SECONDS = 0.5
_BUSY_WALL_SECONDS = 60.0
_TURNS = 6
"""Runs of each of two instances at the same time."""
_BUSY_SHARE = 0.1
"""A thread that uses this share of the processor time has worked."""
ADVICE = frozenset({"nonfinite"})
"""Checks of a piece that report a problem without failing it."""


@dataclass(frozen=True)
class Piece:
    """A model to build as one piece, and its variant.

    ``plain``: the model it was written from, if the reference does not run its precision. ``feeds``: its inputs
    in the checks of indices and of open shapes.
    """

    name: str
    model: bytes
    variant: Variant
    target: Target
    tolerance: float
    plain: bytes = b""
    feeds: tuple[Sequence[np.ndarray], ...] = ()

    def reference(self) -> Reference:
        """The model whose reference outputs are correct."""
        return Reference(onnx.load_from_string(self.plain or self.model))

    def graph(self) -> Graph:
        return build_graph(onnx.load_from_string(self.model))

    def build(self, backend: Backend, workdir: Path) -> Built | BuildFailure:
        model = onnx.load_from_string(self.model)
        return backend.build(model, self.target, backend.builder(self.variant), workdir)


def borders(graph: Graph) -> tuple[list[Tensor], list[Tensor]]:
    """The inputs and the outputs of ``graph``."""
    inputs, outputs = ([graph.tensors[name] for name in names] for names in (graph.inputs, graph.outputs))
    return inputs, outputs


class Instance:
    """One load of a piece, bound to buffers of its own; ``aligned`` and ``protected`` apply to those of the host."""

    def __init__(
        self,
        backend: Backend,
        workdir: Path,
        piece: Piece,
        graph: Graph,
        aligned: bool = True,
        protected: bool = False,
    ) -> None:
        variant, self._tensors = piece.variant, borders(graph)
        self._harness: Harness = Harness() if variant.on_host else variant.served_by.harness()
        self._executable: Any = backend.load(workdir, piece.target, variant, *self._tensors)
        self._harness.accept(self._executable)
        self.bind(aligned, protected)

    def bind(self, aligned: bool, protected: bool) -> None:
        """Bind the loaded piece to new buffers; the earlier ones are gone."""
        inputs, outputs = self._tensors
        self.inputs: list[Buffer] = [self._harness.buffer(tensor, aligned, protected) for tensor in inputs]
        self.outputs: list[Buffer] = [self._harness.buffer(tensor, aligned, False) for tensor in outputs]
        self._call = self._executable.bind([b.seen for b in self.inputs], [b.seen for b in self.outputs])

    @property
    def on_host(self) -> bool:
        """Whether its buffers are the host's."""
        return self._harness.on_host

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
        self._harness.wait()

    def capture(self) -> bool:
        """Replay a capture of the call from now on; False if the piece does not declare that it can be captured.

        Raises:
            CollageError: it declares so, and it cannot.
        """
        self._captured = self._call  # it owns the objects that the capture uses
        replay = self._harness.captured(self._executable, self._captured)
        self._call = replay or self._captured
        return replay is not None


Begin = Callable[[str], None]
"""Called with the name of each check before it begins, so that a crash can be attributed to it."""


def examine(backend: Backend, piece: Piece, workdir: Path, begin: Begin) -> Iterator[Finding]:
    """Build, load and run ``piece``; its files stay in ``workdir``.

    If the reference cannot compute the expected outputs, nothing is run, and that is the finding.
    """
    graph = piece.graph()
    feeds = [list(random_inputs(graph, seed).values()) for seed in (0, 1)]
    begin("reference")
    try:
        reference = piece.reference()
        wanted = [reference.run(dict(zip(graph.inputs, values, strict=True))) for values in feeds]
        reason = _no_standard(wanted, graph)
    except Exception as error:  # the models are random: the reference may refuse one in any way
        reason = f"the reference cannot run it: {one_line(error)}"
    yield Finding("reference", piece.name, "declined" if reason else "passed", reason)
    if reason:
        return
    begin("build")
    status, reason = _build(backend, piece, workdir)
    yield Finding("build", piece.name, status, reason)
    if status != "passed":
        return
    built = _BuiltPiece(backend, piece, graph, workdir, feeds, reference, wanted)
    for check, problem in built.runs(begin):
        wrong: Status = "declined" if check in ADVICE else "failed"
        yield Finding(check, piece.name, wrong if problem else "passed", problem)
        if problem:
            return


def _no_standard(wanted: Sequence[Sequence[np.ndarray]], graph: Graph) -> str:
    """Why the reference's outputs for some inputs each are no standard of comparison; empty if they are."""
    if not all(np.isfinite(value.astype(np.float64)).all() for values in wanted for value in values):
        return "the reference gives numbers that are not finite"
    if [value.shape for value in wanted[0]] != [graph.tensors[name].shape for name in graph.outputs]:
        return "the reference gives other shapes than were inferred"
    return ""


def _build(backend: Backend, piece: Piece, workdir: Path) -> tuple[Status, str]:
    if any(workdir.iterdir()):  # by a variant whose files this one loads too
        return "passed", ""
    before = onnx.load_from_string(piece.model)
    built = backend.build(before, piece.target, backend.builder(piece.variant), workdir)
    if isinstance(built, BuildFailure):
        return "declined", built.reason
    if before.SerializeToString(deterministic=True) != piece.model:
        return "failed", "build changed the model it was given"
    if (present := files_in(workdir).keys()) != set(built.files):
        return "failed", f"left the files {sorted(present)}, declared {sorted(built.files)}"
    return "passed", ""


@dataclass(frozen=True)
class _BuiltPiece:
    """A piece that was built, inputs to run it on, and the outputs of ``reference`` for each."""

    backend: Backend
    piece: Piece
    graph: Graph
    workdir: Path
    feeds: Sequence[Sequence[np.ndarray]]
    reference: Reference
    wanted: Sequence[Sequence[np.ndarray]]

    def instance(self, aligned: bool = True, protected: bool = False) -> Instance:
        return Instance(self.backend, self.workdir, self.piece, self.graph, aligned, protected)

    def wrong(self, instance: Instance, index: int) -> str:
        """The problem of a run on the inputs ``index``."""
        instance.feed(self.feeds[index])
        return self.off(instance.run(), index)

    def off(self, outputs: Sequence[np.ndarray], index: int) -> str:
        """The problem of outputs for the inputs ``index``."""
        error = relative_error(list(outputs), list(self.wanted[index])).relative
        return "" if error < self.piece.tolerance else f"relative error {error:.2g}"

    def runs(self, begin: Begin) -> Iterator[tuple[str, str]]:
        """Each check with its problem or an empty text; the later ones presuppose the earlier."""
        begin("numerics")
        one = self.instance()
        one.feed(self.feeds[0])
        first = one.run()
        if unwritten := self._unwritten(one):
            yield "buffers", unwritten
        yield "numerics", self.off(first, 0)
        begin("inputs")
        unchanged = all(np.array_equal(b.read(), value) for b, value in zip(one.inputs, self.feeds[0], strict=True))
        yield "inputs", "" if unchanged else "a run changed an input"
        begin("repeat")
        again = relative_error(one.run(), first).relative
        yield "repeat", "" if again < SAME else f"a second run differs by {again:.2g}"
        begin("fresh")
        problem = self.wrong(one, 1)
        yield "fresh", f"after new inputs: {problem}" if problem else ""
        begin("buffers")
        two, problem = self._elsewhere(one)
        yield "buffers", problem
        begin("instances")
        one.feed(self.feeds[0])
        two.feed(self.feeds[1])
        problem = next(filter(None, [self.off(each.run(), at) for each, at in ((one, 0), (two, 1), (one, 0))]), "")
        yield "instances", f"with two in turns: {problem}" if problem else ""
        if two.on_host:
            begin("rebound")
            two.bind(aligned=True, protected=True)
            problem = self.wrong(two, 0)  # other values than those of its earlier run
            yield "rebound", f"bound to other buffers: {problem}" if problem else ""
            begin("together")
            yield "together", together([partial(self._often, each, at) for at, each in enumerate((one, two))])
        begin("instances")
        del one
        if problem := self.wrong(two, 0):
            yield "instances", f"after another was let go: {problem}"
        if not two.on_host:
            begin("capture")
            yield "capture", self._replayed(two)
        begin("nonfinite")
        yield "nonfinite", self._lost(two)

    def _unwritten(self, instance: Instance) -> str:
        for k, (buffer, expected) in enumerate(zip(instance.outputs, self.wanted[0], strict=True)):
            values = buffer.read()
            if (values == UNWRITTEN).all() and not (expected == UNWRITTEN).all() and values.dtype != bool:
                return f"output {k} was not written into the caller's buffer"
        return ""

    def _elsewhere(self, one: Instance) -> tuple[Instance, str]:
        """Another instance in addition to ``one``, and its problem or that of the guards of all that ran before.

        Its inputs are protected; the host's buffers begin at odd places.
        """
        two = self.instance(aligned=not one.on_host, protected=True)
        if problem := self.wrong(two, 1):
            return two, f"{'unaligned, ' if one.on_host else ''}write-protected buffers: {problem}"
        intact = all(buffer.guarded for each in (one, two) for buffer in (*each.inputs, *each.outputs))
        return two, "" if intact else "memory beside a buffer was written"

    def _often(self, instance: Instance, first: int) -> str:
        """The problem of some runs, on the inputs in turn."""
        for run in range(first, first + _TURNS):
            if problem := self.wrong(instance, run % len(self.feeds)):
                return f"beside another thread: {problem}"
        return ""

    def _replayed(self, instance: Instance) -> str:
        """The problem of a capture of a piece that has run before, on inputs that it was not captured with."""
        instance.feed(self.feeds[0])
        instance.run()
        try:
            if not instance.capture():
                return ""
        except CollageError as error:
            return f"says that it can be captured: {error}"
        problem = self.wrong(instance, 1) or self.wrong(instance, 0)
        return f"a replay: {problem}" if problem else ""

    def _lost(self, instance: Instance) -> str:
        """Which of NaN and infinity are missing where the outputs should have them."""
        gone = []
        for kind, feeds in spoiled(dict(zip(self.graph.inputs, self.feeds[0], strict=True))).items():
            instance.feed(list(feeds.values()))
            if lost(instance.run(), self.reference.run(feeds)):
                gone.append(kind)
        operators = ", ".join(sorted({node.op_type for node in self.graph.nodes}))
        return f"{', '.join(gone)} in {operators}" if gone else ""


def reload(backend: Backend, piece: Piece, workdir: Path) -> Finding:
    """Whether a piece that another process built runs here."""
    graph = piece.graph()
    feeds = list(random_inputs(graph, 0).values())
    reference = piece.reference()
    wanted = reference.run(dict(zip(graph.inputs, feeds, strict=True)))
    built = _BuiltPiece(backend, piece, graph, workdir, [feeds], reference, [wanted])
    problem = built.wrong(built.instance(), 0)
    return Finding("reload", piece.name, "failed" if problem else "passed", problem)


def refuses(backend: Backend, piece: Piece, workdir: Path) -> Finding:
    """Whether a model that no backend can build is returned as a BuildFailure."""
    built = piece.build(backend, workdir)
    if isinstance(built, Built):
        return Finding("errors", piece.name, "failed", "claims to have built a model that is not valid")
    if not isinstance(built, BuildFailure):
        return Finding("errors", piece.name, "failed", f"gave {type(built).__name__}, not a BuildFailure")
    if not built.reason.strip() or len(built.reason.splitlines()) != 1:
        return Finding("errors", piece.name, "failed", f"the reason is not one line: {built.reason!r}")
    return Finding("errors", piece.name, "passed")


def threads(backend: Backend, piece: Piece, workdir: Path) -> Finding:
    """Whether at most ``target.threads`` threads work while the piece runs. Needs a process of its own."""
    built = piece.build(backend, workdir)
    if isinstance(built, BuildFailure):
        return Finding("threads", piece.name, "declined", built.reason)
    graph = piece.graph()
    instance = Instance(backend, workdir, piece, graph)
    instance.feed(list(random_inputs(graph, 0).values()))
    instance.call()
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
