"""Fusion pattern rule: node sets that a compiler would fuse into one kernel, found by walking post-dominators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from collage_evo.graph.ir.graph import Graph, NodeSet, members
from collage_evo.graph.ir.operators import OpKind, edge_kind, kind_of
from collage_evo.patterns.language import Pattern


@dataclass(frozen=True)
class PostDominatorFusion(Pattern):
    """Walks from each operator to its post-dominator, where all paths from it meet again, while the rule allows.

    The rule is that of TVM's pass FuseOps (src/relax/transform/fuse_ops.cc), from which Collage (PACT 2022)
    generates TVM's patterns: a heavy operator takes operators that are elementwise in its output; elementwise
    operators and broadcasts continue up to a reduction; injective ones continue to injective ones. Every step is
    proposed, so that the search may stop early.
    """

    max_nodes: int = 16
    name: str = "fusion"

    def find(self, graph: Graph, supported: NodeSet) -> Iterator[NodeSet]:
        meeting = post_dominators(graph)
        for start in members(supported):
            fused, last, kind = 1 << start, start, kind_of(graph.nodes[start])
            while (sink := meeting[last]) is not None:
                inner = graph.desc[last] & graph.anc[sink]
                grown = fused | inner | 1 << sink
                too_large = grown.bit_count() > self.max_nodes
                if grown & ~supported or too_large or not _may_fuse(graph, kind, last, inner, sink):
                    break
                kind = max(kind, _kind(graph, inner), kind_of(graph.nodes[sink]))
                fused, last = grown, sink
                yield fused


def _may_fuse(graph: Graph, group: OpKind, last: int, inner: NodeSet, sink: int) -> bool:
    """Whether a group of kind ``group`` that ends in ``last`` may take the paths to ``sink``, and ``sink``."""
    between, end = _kind(graph, inner), kind_of(graph.nodes[sink])
    if group is OpKind.OUT_FUSABLE:
        path = inner | 1 << last
        edges = (
            edge_kind(graph, graph.nodes[index], graph.nodes[reader])
            for index in members(path)
            for reader in members(graph.succ[index] & (inner | 1 << sink))
        )
        return max(between, end) <= OpKind.BROADCAST and max(edges) is OpKind.ELEMENTWISE
    if group <= OpKind.BROADCAST:
        return between <= OpKind.INJECTIVE and end <= OpKind.REDUCTION
    return group is OpKind.INJECTIVE and max(between, end) <= OpKind.INJECTIVE


def _kind(graph: Graph, nodes: NodeSet) -> OpKind:
    return max((kind_of(graph.nodes[index]) for index in members(nodes)), default=OpKind.ELEMENTWISE)


def post_dominators(graph: Graph) -> tuple[int | None, ...]:
    """For each node the nearest one that every path from it to the model's end passes; None if there is none.

    Cooper, Harvey and Kennedy, A Simple, Fast Dominance Algorithm (2001); one sweep is enough on a DAG.
    """
    end = len(graph.nodes)
    nearest = [end] * (end + 1)
    depth = [0] * (end + 1)
    final = set(graph.outputs)
    for index in range(end - 1, -1, -1):
        ways = list(members(graph.succ[index]))
        if not ways or final.intersection(graph.nodes[index].outputs):
            ways.append(end)
        meeting = ways[0]
        for other in ways[1:]:
            while meeting != other:
                if depth[meeting] >= depth[other]:
                    meeting = nearest[meeting]
                else:
                    other = nearest[other]
        nearest[index], depth[index] = meeting, depth[meeting] + 1
    return tuple(None if dominator == end else dominator for dominator in nearest[:end])
