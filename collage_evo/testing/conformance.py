"""Conformance suite: checks a backend against the contract, and returns a report."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from collage_evo.backends.base import Backend, Support, Target
from collage_evo.backends.capabilities import closed_reason, refuses_shapes
from collage_evo.backends.checks import numerics_in
from collage_evo.backends.enumerate import propose, supported_nodes
from collage_evo.backends.registry import require_importable
from collage_evo.backends.rewritten import takes_whole
from collage_evo.backends.variants import Arithmetic, Variant
from collage_evo.errors import UnavailableError
from collage_evo.extras import install
from collage_evo.graph.convert.extract import content_hash, extract
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph, NodeSet, disjoint, members
from collage_evo.graph.ir.operators import HEAVY as HEAVY_OPERATORS
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.hardware.target import CPU
from collage_evo.precision.quantise.marks import heavy_in_int8
from collage_evo.precision.quantise.ranges import calibrate
from collage_evo.precision.quantise.rules import Ranges
from collage_evo.precision.transforms.casts import Casts
from collage_evo.precision.transforms.catalogue import transform_of
from collage_evo.precision.transforms.piece import EditedRegion
from collage_evo.precision.transforms.transform import Data
from collage_evo.testing.cases import CASES
from collage_evo.testing.cases.indices import index_cases
from collage_evo.testing.cases.open_shapes import SIZES, open_cases
from collage_evo.testing.contract import HEAVY, UNBUILDABLE, contract_problems, silent_refusal
from collage_evo.testing.examine import Piece
from collage_evo.testing.finding import Finding, Report, raised
from collage_evo.testing.process import CheckProcess, Task
from collage_evo.testing.rounding import rounding_error

__all__ = ["Effort", "check_backend"]
WHOLE = "whole case"
"""Name for the pattern of a piece that the search would make by merging neighbouring matches."""

ROUNDOFFS = 4.0
"""Relative error allowed in a lower precision, in unit roundoffs or in the effect of rounding the inputs."""


def __dir__() -> list[str]:
    return __all__


@dataclass(frozen=True)
class Effort:
    """Effort of the checks. The same effort tries the same cases each time, unless ``seconds`` run out."""

    cases: bool = True
    """Whether the fixed cases are run."""
    examples: int = 8
    """Random models of each family of operators."""
    per_pattern: int = 8
    """Pieces of a case that run in addition to the largest, so that every pattern occurs so often."""
    precisions: int | None = None
    """Lower precisions that are checked on each piece: those that were checked on the fewest so far. None: all."""
    count_threads: bool = True
    """Whether the number of working threads is checked, which takes two more processes."""
    seconds: float = 600.0
    """No new case begins after that."""
    timeout_s: float = 120.0
    threads: int = 2
    tolerance: float = 1e-4
    """Largest relative error in the 2-norm."""


def check_backend(
    backend: Backend, models: Mapping[str, onnx.ModelProto] | None = None, effort: Effort | None = None
) -> Report:
    """Run every check on ``backend``.

    Args:
        backend: an object of a class that another process can import.
        models: the author's own cases in addition to the fixed and the random ones: models as ``normalise`` returns
            them.
        effort: the effort of the checks.

    Raises:
        UnavailableError: the backend cannot be used here, or hypothesis is not installed.
        ConfigError: the backend's class is one that no other process can import.
    """
    require_importable(type(backend))
    probe = backend.probe()
    if not probe.available:
        raise UnavailableError(f"backend {backend.name!r} cannot be used: {probe.reason}")
    if importlib.util.find_spec("hypothesis") is None:
        raise UnavailableError(f"the conformance suite needs hypothesis: {install('testing')}")
    from collage_evo.testing.randomised import random_findings

    effort = effort or Effort()
    findings = [
        Finding("contract", name, "failed" if problem else "passed", problem)
        for name, problem in contract_problems(backend)
    ]
    with Suite(backend, effort) as suite:
        for name, model in (models or {}).items():
            findings += suite.case(name, model)
        for name, make in CASES.items() if effort.cases else ():
            findings += suite.case(name, make())
        findings += random_findings(suite.case, effort.examples)
        findings += suite.indices() if effort.cases else ()
        findings += suite.open_shapes() if effort.cases else ()
        findings += suite.unbuildable()
        findings += suite.thread_counts() if effort.count_threads else ()
        findings += suite.left_out()
        findings += suite.exercised()
        return Report(backend.name, probe.version, tuple(findings), dict(suite.patterns))


class Suite(contextlib.AbstractContextManager["Suite"]):
    """The processes of one backend's checks, and the patterns that occurred so far. Use as a context manager."""

    def __init__(self, backend: Backend, effort: Effort) -> None:
        self.patterns = Counter({pattern.name: 0 for pattern in backend.patterns()})
        self._backend = backend
        self._effort = effort
        self._left_out = {v.name: why for v in backend.variants if (why := _why_not(backend, v, effort.threads))}
        """Variants that cannot run here, and why."""
        self._seen: set[str] = set()
        self._checked = Counter[str]()
        """Pieces on which each lower precision was checked."""
        self._deadline = time.monotonic() + effort.seconds
        # As in a search that measures several backends: with only one, a library would let its threads spin after
        # each piece.
        environment = backend.environment(Target.here(CPU, effort.threads))
        self._main, self._other = (CheckProcess(backend, effort.timeout_s, environment) for _ in range(2))
        self._folder = tempfile.TemporaryDirectory(prefix="conformance-")

    def __exit__(self, *exception: object) -> None:
        self._main.close()
        self._other.close()
        self._folder.cleanup()

    def case(self, name: str, model: onnx.ModelProto) -> Iterator[Finding]:
        """Check every selected piece of one model, on every variant."""
        if time.monotonic() > self._deadline:
            yield Finding("build", name, "declined", "not run: the time was used up")
            return
        graph = build_graph(model)
        try:
            whole = self._backend.supports(graph, graph.all_nodes)
            pieces = self._pieces(graph, whole)
            problem = silent_refusal(self._backend, graph, whole)
            variants = {nodes: self._here(self._backend.variants_of(graph, nodes)) for nodes in pieces}
        except Exception as error:  # foreign code may raise anything: this is what the suite checks
            yield Finding("contract", name, "failed", f"asked what it supports, {raised(error)}")
            return
        if problem:
            yield Finding("contract", name, "failed", problem)
        if not pieces:
            yield Finding("build", name, "declined", whole.reason)
        for nodes, pattern in pieces.items():
            key = content_hash(graph, nodes)
            if key in self._seen:
                continue
            self._seen.add(key)
            part = build_graph(model if nodes == graph.all_nodes else extract(graph, nodes))
            ran = False
            tried = self._tried(graph, nodes, variants[nodes])
            ranges = _ranges(part, tried)
            built: dict[tuple[str, bytes], Path] = {}
            for variant in tried:
                piece = self._as_written(f"{name} [{pattern}, {variant.name}]", part, variant, ranges)
                for finding in self._piece(piece, built):
                    yield finding
                    ran = ran or (finding.check == "build" and finding.status != "declined")
            self.patterns[pattern] += ran
            for folder in built.values():  # hundreds of them would fill a small disk
                shutil.rmtree(folder, ignore_errors=True)

    def _pieces(self, graph: Graph, whole: Support) -> dict[NodeSet, str]:
        """The whole case or else its largest matches, and some of each pattern that occurred too rarely."""
        supported, _ = supported_nodes(graph, self._backend)
        proposed = propose(graph, self._backend, supported).accepted
        chosen: dict[NodeSet, str] = {}
        met = Counter(self.patterns)
        for nodes, pattern in proposed.items():
            if met[pattern] < self._effort.per_pattern:
                chosen[nodes] = pattern
                met[pattern] += 1
        if whole and graph.is_connected(graph.all_nodes):
            chosen.setdefault(graph.all_nodes, WHOLE)
            return chosen
        by_size = sorted(proposed, key=lambda nodes: (-nodes.bit_count(), nodes))
        return chosen | {nodes: proposed[nodes] for nodes in disjoint(by_size, lambda nodes: nodes)}

    def _piece(self, piece: Piece, built: dict[tuple[str, bytes], Path]) -> Iterator[Finding]:
        """Check one piece. ``built``: folders by their content's source; loads of the same files share them."""
        key = self._backend.builder(piece.variant).name, piece.model
        workdir, sound = built.pop(key, None) or self._workdir(), False
        for finding in self._main.do("examine", piece, workdir):
            yield finding
            sound = sound or (finding.check == "instances" and finding.status == "passed")
        if sound:
            built[key] = workdir = workdir.rename(workdir.with_name(f"moved-{workdir.name}"))
            yield from self._other.do("reload", piece, workdir)
        else:
            shutil.rmtree(workdir, ignore_errors=True)

    def _here(self, variants: Iterable[Variant]) -> list[Variant]:
        return [variant for variant in variants if variant.name not in self._left_out]

    def _tried(self, graph: Graph, nodes: NodeSet, variants: Sequence[Variant]) -> list[Variant]:
        """Those that are checked. A lower precision needs arithmetic in the piece: the rest costs time."""
        exact = [variant for variant in variants if variant.exact]
        if not any(graph.nodes[index].op_type in HEAVY_OPERATORS for index in members(nodes)):
            return exact
        lower = [variant for variant in variants if not variant.exact]
        chosen = sorted(lower, key=lambda variant: self._checked[variant.name])[: self._effort.precisions]
        self._checked.update(variant.name for variant in chosen)
        return exact + chosen

    def left_out(self) -> Iterator[Finding]:
        """Variants that were not checked."""
        for name, why in self._left_out.items():
            yield Finding("build", f"variant {name}", "declined", why)

    def indices(self) -> Iterator[Finding]:
        """Check out-of-range indices, for each supported operator where a request contains them."""
        for name, case in index_cases().items():
            graph = build_graph(case.model)
            variants, reason = self._of_whole(graph)
            if reason:
                yield Finding("indices", name, "declined", reason)
            for variant in variants[:1]:
                others = random_inputs(case.model, seed=1, values={"i": case.right})
                feeds = [{**others, "i": value} for value in (case.right, *case.wild())]
                yield from self._on("indices", self._as_piece(name, case.model, variant), graph, feeds)

    def open_shapes(self) -> Iterator[Finding]:
        """Check pieces with open inputs in several shapes, in each variant that the reference runs itself."""
        if reason := closed_reason(self._backend):
            yield Finding("open", "every case", "declined", reason)
            return
        for name, graph, feeds in open_cases():
            variants, reason = self._of_whole(graph)
            if reason:
                yield Finding("open", name, "declined", reason)
            ranges = calibrate(graph, feeds[: len(SIZES)])
            if not refuses_shapes(self._backend):
                del feeds[len(SIZES)]
            for variant in (one for one in variants if not isinstance(transform_of(one.arithmetic), Casts)):
                piece = self._as_written(f"{name} [{variant.name}]", graph, variant, ranges)
                yield from self._on("open", piece, graph, feeds)

    def _of_whole(self, graph: Graph) -> tuple[list[Variant], str]:
        """The variants of ``graph`` as one piece that can run here, and why there is none."""
        verdict = takes_whole(self._backend, graph)
        variants = self._here(self._backend.variants_of(graph, graph.all_nodes)) if verdict else []
        return variants, "" if variants else verdict.reason or "none of the variants can run here"

    def _on(
        self, task: Task, piece: Piece, graph: Graph, feeds: Iterable[Mapping[str, np.ndarray]]
    ) -> Iterator[Finding]:
        """Check ``piece``, a whole ``graph``, on ``feeds``."""
        in_order = tuple([one[name] for name in graph.inputs] for one in feeds)
        return self._main.do(task, replace(piece, feeds=in_order), self._workdir())

    def unbuildable(self) -> Iterator[Finding]:
        """Check models that no backend can build."""
        for variant in self._here(self._backend.variants)[:1]:
            target = Target.here(variant.device, self._effort.threads)
            for name, make in UNBUILDABLE.items():
                piece = Piece(name, make().SerializeToString(), variant, target, self._effort.tolerance)
                yield from self._main.do("errors", piece, self._workdir())

    def thread_counts(self) -> Iterator[Finding]:
        """Check the first supported heavy model, on one thread and on two, each in a fresh process."""
        for name, make in HEAVY.items():
            model = make()
            variants, reason = self._of_whole(build_graph(model))
            if reason:
                continue
            for threads in (1, 2):
                piece = self._as_piece(f"{name}, {threads} thread(s)", model, variants[0], threads)
                # Without any environment variable: the backend itself sets the number, not the library's environment.
                with contextlib.closing(CheckProcess(self._backend, self._effort.timeout_s, {})) as fresh:
                    yield from fresh.do("threads", piece, self._workdir())
            return
        yield Finding("threads", "heavy models", "declined", f"none of {', '.join(HEAVY)} is taken")

    def exercised(self) -> Iterator[Finding]:
        """Whether each declared pattern took part."""
        if not self._here(self._backend.variants):
            yield Finding("patterns", "all of them", "declined", "none of the variants can run here")
            return
        for pattern in self._backend.patterns():
            met = self.patterns[pattern.name]
            reason = "" if met else "no case in which it fits was run: give models of your own"
            yield Finding("patterns", pattern.name, "passed" if met else "failed", reason)

    def _as_piece(self, name: str, model: onnx.ModelProto, variant: Variant, threads: int | None = None) -> Piece:
        target = Target.here(variant.device, threads or self._effort.threads)
        quantised = heavy_in_int8(model) or any(node.op_type == "QuantizeLinear" for node in model.graph.node)
        arithmetic = Arithmetic.INT8 if quantised else variant.arithmetic
        roundoff = max(arithmetic.roundoff, variant.arithmetic.roundoff, rounding_error(model, variant.arithmetic))
        tolerance = max(self._effort.tolerance, ROUNDOFFS * roundoff)
        return Piece(name, model.SerializeToString(deterministic=True), variant, target, tolerance)

    def _as_written(self, name: str, graph: Graph, variant: Variant, ranges: Ranges) -> Piece:
        """The whole of ``graph`` as ``variant`` receives it, in int8 by ``ranges``.

        The reference's own rounding may be needed: such results are compared with a reference that rounds alike. It
        runs no heavy operators in smaller floating types.
        """
        built = self._backend.variant(variant.base)
        numerics = numerics_in(graph, graph.all_nodes, variant, ranges)
        if not numerics:
            return self._as_piece(name, extract(graph, graph.all_nodes) if graph.is_open else graph.model, built)
        model = EditedRegion(graph, graph.all_nodes, numerics, Data(ranges, variant.int8_form)).model()
        if not isinstance(transform_of(variant.arithmetic), Casts):
            return self._as_piece(name, model, built)
        judged = self._as_piece(name, extract(graph, graph.all_nodes), variant)
        return replace(judged, model=model.SerializeToString(deterministic=True), variant=built, plain=judged.model)

    def _workdir(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self._folder.name))


def _why_not(backend: Backend, variant: Variant, threads: int) -> str:
    """Why ``variant`` cannot be checked here; empty if it can."""
    try:
        Target.here(variant.device, threads)
    except UnavailableError as missing:
        return str(missing)
    return backend.declines(variant)


def _ranges(graph: Graph, variants: Sequence[Variant]) -> Ranges:
    """Ranges of random inputs, if one of ``variants`` has quantisers."""
    if all(variant.int8_form is None for variant in variants):
        return {}
    return calibrate(graph, [random_inputs(graph, seed) for seed in (0, 1)])
