"""Enumeration of matches: every match of a graph, and the reason for each rejected candidate and refused node."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from collage_evo.backends.base import Backend, Support, no
from collage_evo.backends.capabilities import by_values_reason, closed_reason
from collage_evo.backends.checks import numerics_in
from collage_evo.backends.rewritten import distinct, rewritten_matches
from collage_evo.backends.select import piece_variants
from collage_evo.backends.variants import TargetLike
from collage_evo.errors import NotSearchable
from collage_evo.graph.ir.graph import Graph, NodeSet, union
from collage_evo.patterns.match import Match
from collage_evo.patterns.matcher import TooManyWays
from collage_evo.precision.quantise.rules import Ranges
from collage_evo.rewrites.rewrite import Rewrite

MAX_CANDIDATES = 20_000
"""Node sets that one backend's patterns may propose for one graph."""


@dataclass(frozen=True)
class Rejection:
    """A node set that a pattern proposed but that is no match, with the reason."""

    nodes: NodeSet
    backend: str
    pattern: str
    reason: str


@dataclass(frozen=True)
class Matches:
    """All matches of a graph, and the reason why a backend does not take a node as ``refusals[node][backend]``."""

    matches: tuple[Match, ...]
    refusals: Mapping[int, Mapping[str, str]]
    cut: tuple[str, ...] = ()
    """Backends and rewrites whose enumeration stopped at a bound."""
    rejected: tuple[Rejection, ...] = ()


@dataclass(frozen=True)
class Candidates:
    """One backend's proposals: node set to the first pattern that found it, and the rejected ones."""

    accepted: Mapping[NodeSet, str]
    rejected: tuple[Rejection, ...]
    complete: bool
    """Whether no bound was reached."""


def enumerate_matches(
    graph: Graph,
    backends: Sequence[Backend],
    tolerance: float = 0.0,
    target: TargetLike | None = None,
    max_per_backend: int = MAX_CANDIDATES,
    ranges: Ranges | None = None,
    left_out: Collection[tuple[str, str]] = (),
    rewrites: Sequence[Rewrite] = (),
) -> Matches:
    """Apply every backend's patterns.

    Args:
        graph: the normalised model.
        backends: the backends that take part, in order of preference.
        tolerance: relative error that outputs may have; variants of a coarser precision do not take part.
        target: of the placement; None is a host without accelerator.
        max_per_backend: bound on the distinct node sets of one backend; ``cut`` names a backend that reaches it.
        ranges: calibrated, of the graph's tensors; without them static quantisers take no part.
        left_out: excluded backends and variants; variants that compile as one of these are excluded too.
        rewrites: that may be written into pieces.

    Raises:
        NotSearchable: no backend takes some operator; the message gives each backend's reason.
    """
    matches: list[Match] = []
    refusals: dict[int, dict[str, str]] = {}
    rejected: list[Rejection] = []
    cut = []
    for backend in backends:
        supported, refused = supported_nodes(graph, backend)
        for index, reason in refused.items():
            refusals.setdefault(index, {})[backend.name] = reason
        candidates = propose(graph, backend, supported, max_per_backend)
        if not candidates.complete:
            cut.append(backend.name)
        rejected += candidates.rejected
        for nodes, pattern in candidates.accepted.items():
            matches += matches_of(graph, backend, nodes, tolerance, target, ranges, left_out, pattern)
    rewritten = rewritten_matches(graph, backends, rewrites, target, tolerance, left_out, ranges)
    matches += rewritten.matches
    rejected += (Rejection(*refusal) for refusal in rewritten.refusals)
    _require_cover(graph, matches, refusals)
    return Matches(tuple(matches), refusals, (*cut, *rewritten.cut), tuple(rejected))


def matches_of(
    graph: Graph,
    backend: Backend,
    nodes: NodeSet,
    tolerance: float = 0.0,
    target: TargetLike | None = None,
    ranges: Ranges | None = None,
    left_out: Collection[tuple[str, str]] = (),
    pattern: str = "",
) -> list[Match]:
    """Matches of ``nodes``, one piece of ``backend``, in each variant; arguments as in :func:`enumerate_matches`.

    Excludes variants that have nothing to write into these nodes, or write the same as another.
    """
    variants = piece_variants(backend, graph, nodes, target, tolerance, ranges is not None, left_out)
    written = ((variant, numerics_in(graph, nodes, variant, ranges)) for variant in variants)
    matches = (
        Match(nodes, backend.name, v.name, numerics, pattern, "" if v.base == v.name else v.base)
        for v, numerics in written
        if numerics or not v.writes
    )
    return distinct(matches)


def supported_nodes(graph: Graph, backend: Backend) -> tuple[NodeSet, dict[int, str]]:
    """The nodes that ``backend`` takes, and the reason for each other one."""
    if graph.is_open and (lacks := closed_reason(backend)):
        return 0, {node.index: f"the model's inputs have open shapes, and {lacks}" for node in graph.nodes}
    supported = 0
    refused: dict[int, str] = {}
    for node in graph.nodes:
        verdict = backend.takes(graph, node)
        if verdict and (by_values := by_values_reason(backend, graph, 1 << node.index)):
            verdict = no(by_values)
        if verdict:
            supported |= 1 << node.index
        else:
            refused[node.index] = verdict.reason
    return supported, refused


def propose(graph: Graph, backend: Backend, supported: NodeSet, bound: int = MAX_CANDIDATES) -> Candidates:
    """Every distinct node set that a pattern of ``backend`` finds, sorted into accepted and rejected."""
    accepted: dict[NodeSet, str] = {}
    rejected: dict[NodeSet, Rejection] = {}
    complete = True
    for pattern in backend.patterns():
        try:
            for nodes in pattern.find(graph, supported):
                if nodes in accepted or nodes in rejected:
                    continue
                if len(accepted) + len(rejected) >= bound:
                    return Candidates(accepted, tuple(rejected.values()), complete=False)
                if verdict := accepts(graph, backend, nodes):
                    accepted[nodes] = pattern.name
                else:
                    rejected[nodes] = Rejection(nodes, backend.name, pattern.name, verdict.reason)
        except TooManyWays:
            complete = False
    return Candidates(accepted, tuple(rejected.values()), complete)


def accepts(graph: Graph, backend: Backend, nodes: NodeSet) -> Support:
    """Whether ``backend``, which takes each of ``nodes``, takes them together as one piece."""
    if not graph.is_connected(nodes):
        return no("its operators are not connected")
    if not graph.is_convex(nodes):
        return no("a path leaves it and comes back: it could not run in one piece")
    return backend.supports(graph, nodes)


def _require_cover(graph: Graph, matches: Sequence[Match], refusals: Mapping[int, Mapping[str, str]]) -> None:
    covered = union(match.nodes for match in matches)
    for node in graph.nodes:
        if not covered >> node.index & 1:
            why = "; ".join(f"{name}: {reason}" for name, reason in refusals.get(node.index, {}).items())
            raise NotSearchable(
                f"no backend takes operator {node.op_type} (node '{node.name}'): {why or 'no pattern fits'}; "
                "add a backend that does, or change the model"
            )
