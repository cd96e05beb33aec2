"""Costs from profiles: libraries profile the whole model, which gives ms by node and engine.

A library reports the time of each of its kernels while the model runs in it, including warm caches and fused
operators. A kernel's time belongs to the heavy operators in it: an operator that is fused into a convolution costs
nothing there. All nodes of an engine together take as long as its whole part of the model without the profiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from collage_evo.backends.base import Backend
from collage_evo.backends.profiled import HasProfiler
from collage_evo.backends.variants import plain_name
from collage_evo.fitness.builders import build_job
from collage_evo.fitness.jobs import KernelsJob, KernelTimes, bare
from collage_evo.fitness.machine import Regions
from collage_evo.genome.cost_model import Engine
from collage_evo.genome.failure import Failure
from collage_evo.graph.ir.graph import Graph, NodeSet, disjoint, members, union, unions
from collage_evo.graph.ir.roofline import multiply_adds, touched_bytes
from collage_evo.multimap import multimap
from collage_evo.patterns.match import Match, Region
from collage_evo.precision.transforms.edits import joined, within
from collage_evo.runtime.timing import Timing, TimingSettings

SITE_ROUNDS = 3
"""Regions that are profiled for the rewrites on one engine, if their sites overlap."""

PROFILED_TOGETHER = 3
"""Regions that are compiled together before they are profiled."""
PROFILE_S = 0.5
"""Timing settings of a region's runs with the profiler."""

NodeMs = Mapping[int, float]


@dataclass(frozen=True)
class ProfileRequest:
    """A region to be profiled on ``engine``, and the engines whose costs it gives.

    ``sites``: where something is rewritten, with the engines whose costs those are; a profile with sites covers no
    other nodes.
    """

    engine: Engine
    region: Region
    sites: tuple[tuple[Engine, NodeSet], ...] = ()

    @property
    def tells(self) -> Mapping[Engine, NodeSet]:
        """The nodes by engine whose costs the profile gives."""
        return unions(self.sites or ((self.engine, self.region.nodes),))


def to_profile(graph: Graph, matches: Sequence[Match], backends: Mapping[str, Backend]) -> list[ProfileRequest]:
    """Each engine's part of the model, as large as it is supported, on backends whose libraries have a profiler.

    An engine that writes a lower precision writes all of it that its matches have. Then the same parts rewritten: at
    as many sites as do not overlap, from any rewrites.
    """
    supported = unions(
        ((match.backend, backends[match.backend].variant(match.variant).on_host), match.nodes) for match in matches
    )

    def profiled(match: Match) -> bool:
        backend = backends[match.backend]
        return isinstance(backend, HasProfiler) and backend.profiles(backend.variant(match.variant))

    pairs = [((match.backend, plain_name(match.variant)), match) for match in matches if profiled(match)]
    plain = multimap((engine, match) for engine, match in pairs if not match.rewrites)
    rewritten = multimap((engine, match) for engine, match in pairs if match.rewrites)
    requests = []

    def parts(engine: Engine) -> list[NodeSet]:
        return convex_parts(graph, supported[engine[0], backends[engine[0]].variant(engine[1]).on_host])

    for engine, of_engine in plain.items():
        for nodes in parts(engine):
            written = joined(within(match.numerics, nodes) for match in of_engine)
            if written or not any(match.numerics for match in of_engine):
                region = Region(nodes, engine[0], of_engine[0].family[1], edits=written)
                requests.append(ProfileRequest(engine, region))
    for engine, of_engine in rewritten.items():
        for nodes in parts(engine):
            for chosen in _rounds(of_engine, nodes):
                inside = union(site for _, site in chosen)
                numerics = [within(match.numerics, site) for (_, site), match in chosen.items()]
                numerics += [within(match.numerics, nodes & ~inside) for match in plain.get(engine, ())]
                region = Region(nodes, engine[0], of_engine[0].family[1], edits=joined([*numerics, tuple(chosen)]))
                sites = tuple((match.engine, site) for (_, site), match in chosen.items())
                requests.append(ProfileRequest(engine, region, sites))
    return requests


def _rounds(matches: Iterable[Match], nodes: NodeSet) -> Iterator[Mapping[tuple[str, NodeSet], Match]]:
    """The sites of ``matches`` inside ``nodes``, each with a match, in as few rounds without overlapping sites as
    possible."""
    remaining = {sites: match for match in matches for sites in match.rewrites if not sites[1] & ~nodes}
    for _ in range(SITE_ROUNDS):
        if chosen := disjoint(sorted(remaining), itemgetter(1)):
            yield {sites: remaining.pop(sites) for sites in chosen}


def convex_parts(graph: Graph, nodes: NodeSet) -> list[NodeSet]:
    """``nodes`` in connected convex parts: all of them together, where no path leaves them and comes back."""
    level: list[int] = []
    for index in range(len(graph.nodes)):
        here = nodes >> index & 1
        level.append(max((level[i] + ((nodes >> i & 1) != here) for i in members(graph.pred[index])), default=0))
    parts = []
    for depth in sorted({level[index] for index in members(nodes)}):
        left = sum(1 << index for index in members(nodes) if level[index] == depth)
        while left:
            parts.append(graph.connected_part(left))
            left &= ~parts[-1]
    return parts


def node_ms(graph: Graph, request: ProfileRequest, answer: KernelTimes) -> dict[Engine, dict[int, float]]:
    """Time of each node of the region, by the engine whose cost it is: together the time of the region without the
    profiler.

    If that was contended, the kernels' own medians are more reliable: few of such short runs are contended.
    """
    times = dict.fromkeys(members(request.region.nodes), 0.0)
    for nodes, ms in answer.kernels:
        for node, share in _shares(graph, nodes & request.region.nodes).items():
            times[node] += ms * share
    together = sum(times.values())
    scale = 1.0 if answer.contended or not together else Timing(answer.times_ms).median_ms / together
    return {who: {node: times[node] * scale for node in members(nodes)} for who, nodes in request.tells.items()}


def _shares(graph: Graph, nodes: NodeSet) -> dict[int, float]:
    """How a kernel's time is apportioned: by multiply-adds; without any, by the bytes touched."""
    weights = {node: float(multiply_adds(graph, 1 << node)) for node in members(nodes)}
    if not any(weights.values()):
        weights = {node: 1.0 + touched_bytes(graph, 1 << node) for node in members(nodes)}
    total = sum(weights.values())
    return {node: weight / total for node, weight in weights.items()}


def profile_regions(
    regions: Regions,
    timing: TimingSettings,
    requests: Sequence[ProfileRequest],
    needed: int,
    over: Callable[[], bool],
) -> Iterator[tuple[ProfileRequest, KernelTimes | Failure]]:
    """Compile regions, some at a time, and profile each, in order, until the time is ``over``.

    The first ``needed`` are always profiled.
    """
    first, then = 0, needed
    while first < len(requests) and not (first and over()):
        batch = requests[first:then]
        first, then = then, then + PROFILED_TOGETHER
        failed = regions.build(build_job(request.region) for request in batch)
        able = [request for request in batch if build_job(request.region) not in failed]
        yield from ((request, failed[build_job(request.region)]) for request in batch if request not in able)
        jobs = [KernelsJob(bare(request.region), timing, PROFILE_S) for request in able]
        for request, reply in zip(able, regions.map(jobs), strict=True):
            yield request, reply.answer
