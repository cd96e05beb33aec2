"""Random graphs, with a subset of their nodes that a backend might take."""

from __future__ import annotations

from hypothesis import strategies as st

from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph, NodeSet
from tests.support.models import random_dag


@st.composite
def graphs(draw: st.DrawFn, most: int = 12) -> Graph:
    return build_graph(random_dag(draw(st.integers(0, 2**32 - 1)), draw(st.integers(1, most))))


@st.composite
def supported_parts(draw: st.DrawFn, most: int = 12) -> tuple[Graph, NodeSet]:
    """A graph, and most of its nodes."""
    graph = draw(graphs(most))
    left_out = draw(st.sets(st.integers(0, len(graph.nodes) - 1), max_size=3))
    return graph, graph.all_nodes & ~sum(1 << index for index in left_out)
