"""Every rewrite of the catalogue computes what the operators compute that it replaces, or declines them."""

from __future__ import annotations

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.ir import Graph, NodeSet
from collage_evo.graph.read import build_graph
from collage_evo.graph.reference import Reference, relative_error
from collage_evo.graph.values import plain
from collage_evo.rewrites.catalogue import REWRITES
from collage_evo.rewrites.rewrite import Rewrite
from collage_evo.rewrites.write import write_rewrites
from collage_evo.testing.rewritable import rewritable

ROUNDING = 1e-5


def error_of(graph: Graph, nodes: NodeSet, model: onnx.ModelProto) -> float:
    """How far ``model``, which stands for ``nodes``, is from the graph as it is."""
    feeds = random_inputs(graph, 0)
    original = plain(Reference(write_rewrites(graph, nodes, ())).run(feeds_of(graph, nodes, feeds)))
    return relative_error(plain(Reference(model).run(feeds_of(graph, nodes, feeds))), original).relative


def feeds_of(graph, nodes, feeds):
    return {f"i{place}": feeds[name] for place, name in enumerate(graph.boundary(nodes)[0])}


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.name)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_rewrite_computes_the_same_inside_the_graph(rewrite: Rewrite, data: st.DataObject) -> None:
    graph = build_graph(data.draw(rewritable(rewrite.name)))
    for site in rewrite.sites(graph):
        assert graph.is_convex(site)
        model = write_rewrites(graph, graph.all_nodes, ((rewrite.name, site),))
        onnx.checker.check_model(model, full_check=True)
        assert error_of(graph, graph.all_nodes, model) < ROUNDING
