"""Takes a graph, backends and rewrites, gives the matches in which something is rewritten."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from collage_evo.backends.base import Backend, Support
from collage_evo.backends.capabilities import StandsOnOthers
from collage_evo.backends.select import piece_variants
from collage_evo.backends.variants import Variant, rewritten_name
from collage_evo.errors import InputError
from collage_evo.graph.ir import Graph, Node, NodeSet
from collage_evo.graph.operators import ELEMENTWISE
from collage_evo.graph.read import build_graph
from collage_evo.patterns.match import Match
from collage_evo.rewrites.rewrite import Rewrite
from collage_evo.rewrites.write import write_rewrites

MAX_SITES = 200
"""Places where one rewrite is tried in one graph."""
LARGEST_EPILOGUE = 8
"""Elementwise operators that a match takes along behind what is rewritten."""


@dataclass(frozen=True)
class Rewritten:
    """Matches in which something is rewritten, and for each backend that does not take a rewritten site the reason.

    ``cut``: names of rewrites that have more sites than were tried.
    """

    matches: tuple[Match, ...]
    refusals: tuple[tuple[NodeSet, str, str, str], ...]
    """Node set, backend, rewrite, reason."""
    cut: tuple[str, ...]


def rewritten_matches(
    graph: Graph,
    backends: Sequence[Backend],
    rewrites: Sequence[Rewrite],
    device: str = "cpu",
    tolerance: float = 0.0,
    left_out: Collection[tuple[str, str]] = (),
) -> Rewritten:
    """Each site of each rewrite, and each site with the elementwise operators behind it, on each backend.

    Backends are asked about what stands there after rewriting, and take part in their variants of float32 that
    compile a piece as it is. ``left_out``: backends and variants that take no part.
    """
    matches: list[Match] = []
    refusals: list[tuple[NodeSet, str, str, str]] = []
    cut = []
    libraries = [backend for backend in backends if not isinstance(backend, StandsOnOthers)]
    for rewrite in rewrites:
        sites = list(islice(rewrite.sites(graph), MAX_SITES + 1))
        if len(sites) > MAX_SITES:
            cut.append(rewrite.name)
        for site in sites[:MAX_SITES]:
            for nodes in dict.fromkeys((site, with_epilogue(graph, site))):
                sole = ((rewrite.name, site),)
                try:
                    part = build_graph(write_rewrites(graph, nodes, sole))
                except InputError as error:
                    refusals += ((nodes, backend.name, rewrite.name, str(error)) for backend in libraries)
                    continue
                for backend in libraries:
                    if not (verdict := _takes(backend, part)):
                        refusals.append((nodes, backend.name, rewrite.name, verdict.reason))
                        continue
                    for variant in _plain_variants(backend, part, device, tolerance, left_out):
                        name = rewritten_name(variant.name, rewrite.name)
                        matches.append(Match(nodes, backend.name, name, rewrite.name, variant.name, rewrites=sole))
    return Rewritten(tuple(matches), tuple(refusals), tuple(cut))


def _takes(backend: Backend, part: Graph) -> Support:
    """Whether ``backend`` takes a whole rewritten piece. Its operators need not be connected."""
    for node in part.nodes:
        if not (verdict := backend.takes(part, node)):
            return verdict
    return backend.supports(part, part.all_nodes)


def _plain_variants(
    backend: Backend, part: Graph, device: str, tolerance: float, left_out: Collection[tuple[str, str]]
) -> Iterator[Variant]:
    for variant in piece_variants(backend, part, part.all_nodes, device, tolerance):
        plain = variant.base == variant.name and not variant.writes
        if plain and variant.exact and (backend.name, variant.name) not in left_out:
            yield variant


def with_epilogue(graph: Graph, site: NodeSet) -> NodeSet:
    """``site`` with the elementwise operators behind it that need nothing else but constants."""
    nodes, added = site, True
    while added:
        added = False
        _, leaving = graph.boundary(nodes)
        for name in leaving:
            for reader in graph.consumers.get(name, ()):
                room = (nodes & ~site).bit_count() < LARGEST_EPILOGUE
                if room and not nodes >> reader & 1 and _follows(graph, graph.nodes[reader], nodes):
                    nodes |= 1 << reader
                    added = True
    return nodes


def _follows(graph: Graph, node: Node, nodes: NodeSet) -> bool:
    """Whether ``node`` is elementwise, and all that it reads is a constant or made in ``nodes`` for it alone."""
    if node.op_type not in ELEMENTWISE or node.domain not in ("", "ai.onnx"):
        return False
    for name in node.inputs:
        if name and name not in graph.constants:
            maker = graph.producer.get(name)
            if maker is None or not nodes >> maker & 1:
                return False
            if name in graph.outputs or any(r != node.index for r in graph.consumers[name] if not nodes >> r & 1):
                return False
    return True
