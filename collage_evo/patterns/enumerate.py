"""Takes a graph and backends, gives every match, and for each node and backend without one the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collage_evo.backends.base import Backend
from collage_evo.errors import InputError
from collage_evo.graph.ir import Graph, NodeSet
from collage_evo.patterns.match import Match


@dataclass(frozen=True)
class Matches:
    """All matches of a graph, and ``refusals[node][backend]``: why a backend does not take a node."""

    matches: tuple[Match, ...]
    refusals: Mapping[int, Mapping[str, str]]
    cut: tuple[str, ...] = ()
    """Backends whose enumeration stopped at the bound."""


def enumerate_matches(graph: Graph, backends: Sequence[Backend], max_per_backend: int = 20_000) -> Matches:
    """Apply every backend's patterns.

    Args:
        graph: the normalised model.
        backends: the backends that take part, in order of preference.
        max_per_backend: bound on the distinct node sets of one backend; a backend that reaches it is named.

    Raises:
        InputError: some operator is taken by no backend; the message gives each backend's reason.
    """
    found: list[Match] = []
    refusals: dict[int, dict[str, str]] = {}
    cut = []
    for backend in backends:
        supported, refused = _supported(graph, backend)
        for index, reason in refused.items():
            refusals.setdefault(index, {})[backend.name] = reason
        node_sets, complete = _node_sets(graph, backend, supported, max_per_backend)
        if not complete:
            cut.append(backend.name)
        found += [
            Match(nodes, backend.name, variant, pattern)
            for nodes, pattern in node_sets.items()
            for variant in backend.variants_of(graph, nodes)
        ]
    _require_cover(graph, found, refusals)
    return Matches(tuple(found), refusals, tuple(cut))


def _supported(graph: Graph, backend: Backend) -> tuple[NodeSet, dict[int, str]]:
    supported = 0
    refused: dict[int, str] = {}
    for node in graph.nodes:
        verdict = backend.supports_node(graph, node)
        if verdict:
            supported |= 1 << node.index
        else:
            refused[node.index] = verdict.reason
    return supported, refused


def _node_sets(
    graph: Graph, backend: Backend, supported: NodeSet, bound: int
) -> tuple[dict[NodeSet, str], bool]:
    """Distinct node sets with the first pattern that gave each, and whether the bound was not reached."""
    found: dict[NodeSet, str] = {}
    rejected: set[NodeSet] = set()
    for pattern in backend.patterns():
        for nodes in pattern.find(graph, supported):
            if nodes in found or nodes in rejected:
                continue
            if len(found) >= bound:
                return found, False
            fits = graph.is_connected(nodes) and graph.is_convex(nodes)
            if fits and backend.supports(graph, nodes):
                found[nodes] = pattern.name
            else:
                rejected.add(nodes)
    return found, True


def _require_cover(graph: Graph, matches: Sequence[Match], refusals: Mapping[int, Mapping[str, str]]) -> None:
    covered = 0
    for match in matches:
        covered |= match.nodes
    for node in graph.nodes:
        if not covered >> node.index & 1:
            why = "; ".join(f"{name}: {reason}" for name, reason in refusals.get(node.index, {}).items())
            raise InputError(
                f"no backend takes operator {node.op_type} (node '{node.name}'): {why or 'no pattern fits'}; "
                "add a backend that does, or change the model"
            )
