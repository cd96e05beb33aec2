"""Matches with rewrites: those in which a site is rewritten before a backend compiles it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from collage_evo.backends.base import Backend, Support
from collage_evo.backends.capabilities import StandsOnOthers
from collage_evo.backends.checks import numerics_in
from collage_evo.backends.select import piece_variants
from collage_evo.backends.variants import TargetLike, Variant, rewritten_name
from collage_evo.errors import InputError
from collage_evo.graph.ir.graph import Graph, Node, NodeSet
from collage_evo.graph.ir.operators import ELEMENTWISE
from collage_evo.multimap import firsts
from collage_evo.patterns.match import Match
from collage_evo.precision.quantise.rules import Ranges
from collage_evo.precision.transforms.edits import Edits, edits_of
from collage_evo.precision.transforms.rewritten import Rewritten
from collage_evo.rewrites.rewrite import Rewrite

MAX_SITES = 200
"""Places where one rewrite is tried in one graph."""
LARGEST_EPILOGUE = 8
"""Elementwise operators that a match takes along behind what is rewritten."""


@dataclass(frozen=True)
class RewrittenMatches:
    """Matches in which a site is rewritten, and for each backend that does not take a rewritten site the reason.

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
    target: TargetLike | None = None,
    tolerance: float = 0.0,
    left_out: Collection[tuple[str, str]] = (),
    ranges: Ranges | None = None,
) -> RewrittenMatches:
    """Each site of each rewrite, and each site with the elementwise operators behind it, on each backend.

    Backends judge the operators after rewriting, and take part in every variant in which they run these.
    ``left_out``: excluded backends and variants. ``ranges``: of the graph's tensors, for int8.
    """
    matches: list[Match] = []
    refusals: list[tuple[NodeSet, str, str, str]] = []
    cut = []
    libraries = [backend for backend in backends if not isinstance(backend, StandsOnOthers)]
    for rewrite in rewrites:
        sites = list(islice(rewrite.sites(graph), MAX_SITES + 1))
        if len(sites) > MAX_SITES:
            cut.append(rewrite.name)
        tried = [(site, nodes) for site in sites[:MAX_SITES] for nodes in (site, with_epilogue(graph, site))]
        for site, nodes in dict.fromkeys(tried):
            sole = (rewrite.name, site)
            try:
                part = Rewritten.of(graph, nodes, (sole,), ranges or {})
            except InputError as error:
                refusals += ((nodes, backend.name, rewrite.name, str(error)) for backend in libraries)
                continue
            for backend in libraries:
                if not (verdict := takes_whole(backend, part.graph)):
                    refusals.append((nodes, backend.name, rewrite.name, verdict.reason))
                    continue
                every = part.graph.all_nodes
                taking = piece_variants(backend, part.graph, every, target, tolerance, ranges is not None, left_out)
                written = ((variant, _edits(graph, nodes, sole, part, variant, ranges)) for variant in taking)
                matches += distinct(
                    Match(nodes, backend.name, rewritten_name(v.name, rewrite.name), edits, rewrite.name, v.base)
                    for v, edits in written
                    if edits
                )
    return RewrittenMatches(tuple(matches), tuple(refusals), tuple(cut))


def distinct(matches: Iterable[Match]) -> list[Match]:
    """``matches`` of the same nodes without those that compile the same model as an earlier one."""
    return list(firsts(((match.family, match.edits), match) for match in matches).values())


def _edits(
    graph: Graph, nodes: NodeSet, sole: tuple[str, NodeSet], part: Rewritten, variant: Variant, ranges: Ranges | None
) -> Edits | None:
    """The edits of a match of ``variant`` in which the single site ``sole`` is rewritten: its precision is written
    into all of the site, and into those of the other nodes that allow it.

    None where no operator in the site can be in that precision.
    """
    if not variant.writes:
        return (sole,)
    (wrote,), (_, site) = part.wrote, sole
    if not part.able(variant.arithmetic, wrote, variant.int8_form):
        return None
    return edits_of((variant.arithmetic, site), *numerics_in(graph, nodes & ~site, variant, ranges), sole)


def takes_whole(backend: Backend, graph: Graph) -> Support:
    """Whether ``backend`` takes all of ``graph`` as one piece. Its operators need not be connected."""
    verdicts = (backend.takes(graph, node) for node in graph.nodes)
    refused = next((verdict for verdict in verdicts if not verdict), None)
    return backend.supports(graph, graph.all_nodes) if refused is None else refused


def with_epilogue(graph: Graph, site: NodeSet) -> NodeSet:
    """``site`` with the elementwise operators behind it that otherwise read only constants."""
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
    """Whether ``node`` is elementwise, and reads only constants and tensors that ``nodes`` make for it only."""
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
