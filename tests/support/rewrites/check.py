"""Check of a rewrite on a model: reports its problems."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from collage_evo.errors import InputError
from collage_evo.graph.convert.extract import extract
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph, NodeSet
from collage_evo.graph.ir.values import plain
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import Reference
from collage_evo.rewrites.rewrite import Rewrite
from collage_evo.rewrites.sites import Sites
from collage_evo.rewrites.write import rewriting_key, write_rewrites

ROUNDING = 2e-5
"""Largest relative error (2-norm): sums in another order."""


def rewrite_problems(rewrite: Rewrite, model: onnx.ModelProto, seed: int = 0) -> Iterator[str]:
    """Problems of ``rewrite``: at each site by itself, inside the whole model, and at all disjoint sites at once.

    Args:
        rewrite: one of the catalogue.
        model: normalised, with static shapes.
        seed: of the inputs.
    """
    graph = build_graph(model)
    sites = list(rewrite.sites(graph))
    if len(set(sites)) < len(sites):
        yield "a site is given twice"
    for site in sites:
        if not site or not graph.is_convex(site):
            yield f"site {site:x} is empty, or a path leaves it and comes back"
            return
        own = ((rewrite.name, site),)
        if rewriting_key(graph, site, own) != rewriting_key(build_graph(model), site, own):
            yield f"site {site:x} is written in another way each time"
        for nodes in dict.fromkeys((site, graph.all_nodes)):
            yield from _differences(rewrite, graph, nodes, own, seed)
    together = tuple((rewrite.name, site) for site in _disjoint(graph, sites))
    if len(together) > 1:
        yield from _differences(rewrite, graph, graph.all_nodes, together, seed)


def _differences(rewrite: Rewrite, graph: Graph, nodes: NodeSet, sites: Sites, seed: int) -> Iterator[str]:
    where = f"{rewrite.name} at {', '.join(f'{site:x}' for _, site in sites)} in {nodes:x}"
    original = extract(graph, nodes)
    try:
        written = write_rewrites(graph, nodes, sites)
        onnx.checker.check_model(written, full_check=True)
        feeds = random_inputs(build_graph(original), seed)
        found, expected = plain(Reference(written).run(feeds)), plain(Reference(original).run(feeds))
    except (InputError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        yield f"{where}: {' '.join(str(error).split())}"
        return
    off = relative_error(found, expected).relative
    if not off <= ROUNDING:
        yield f"{where}: relative error {off:.1e}"


def _disjoint(graph: Graph, sites: list[NodeSet]) -> Iterator[NodeSet]:
    """Sites that share no node and do not wait for each other in both directions; the first of them come first."""
    taken: list[NodeSet] = []
    for site in sites:
        apart = all(not site & other for other in taken)
        if apart and not any(_entwined(graph, site, other) for other in taken):
            taken.append(site)
            yield site


def _entwined(graph: Graph, one: NodeSet, other: NodeSet) -> bool:
    return bool(graph.ancestors(one) & other and graph.descendants(one) & other)
