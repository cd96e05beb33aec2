"""Variation: crossover and mutation of genomes. Every random draw comes from the generator passed in.

Operators act on regions, because regions, not nodes, are what a backend runs: a single changed node pays two borders,
so steps that move whole regions, or a border by one node, are those that can improve a placement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from collage_evo.genome.cost_model import Engine, bordering
from collage_evo.genome.encoding import decode
from collage_evo.genome.genome import Genome
from collage_evo.genome.settings import GaSettings
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import NodeSet, members, node_set, union
from collage_evo.graph.ir.kinds import kinds_of
from collage_evo.patterns.match import Region

Mutation = Callable[[Genome, SearchSpace, Random], Genome]


def cut_crossover(left: Genome, right: Genome, space: SearchSpace, rng: Random) -> Genome:
    """Genes upstream of a cut from one parent, downstream from the other.

    The cut is a topological position, or all nodes that run before a random node: both are closed under predecessors,
    so regions of either parent away from the cut survive whole.
    """
    return _blend(left, right, _upstream(rng.randrange(len(left.choices)), space, rng), space)


def region_crossover(left: Genome, right: Genome, space: SearchSpace, rng: Random) -> Genome:
    """Each region of ``left`` stays or is replaced by ``right``'s genes, with equal chance."""
    inherited = union(region.nodes for region in decode(left, space).regions if rng.random() < 0.5)
    return _blend(left, right, inherited, space)


def crossover(left: Genome, right: Genome, space: SearchSpace, rng: Random) -> Genome:
    """One of the two crossovers."""
    return (cut_crossover if rng.random() < 0.6 else region_crossover)(left, right, space, rng)


def _upstream(pivot: int, space: SearchSpace, rng: Random) -> NodeSet:
    """The nodes before ``pivot`` in topological order, or all that run before it and itself."""
    return (1 << pivot) - 1 if rng.random() < 0.5 else space.graph.anc[pivot] | 1 << pivot


def _blend(left: Genome, right: Genome, from_left: NodeSet, space: SearchSpace) -> Genome:
    choices = tuple(
        a if from_left >> i & 1 else b
        for i, (a, b) in enumerate(zip(left.choices, right.choices, strict=True))
    )
    merges = tuple(
        a if from_left >> source & 1 else b
        for (source, _), a, b in zip(space.edges, left.merges, right.merges, strict=True)
    )
    return Genome(choices, merges)


def change_engine(genome: Genome, space: SearchSpace, rng: Random) -> Genome:
    """A region, or a connected part of one, moves to another engine."""
    part = _part(_pick_region(genome, space, rng), space, rng)
    engines = sorted({engine for node in members(part) for engine in space.node_engines[node]})
    return _move(genome, part, rng.choice(engines), space, rng)


def change_variant(genome: Genome, space: SearchSpace, rng: Random) -> Genome:
    """A region stays with its backend but runs another variant; another engine when there is no other."""
    regions = [
        region
        for region in decode(genome, space).regions
        if sum(backend == region.backend for backend, _ in space.engines) > 1
    ]
    if not regions:
        return change_engine(genome, space, rng)
    region = rng.choice(regions)
    others = [e for e in space.engines if e[0] == region.backend and e != bordering(region.engine)]
    return _move(genome, region.nodes, rng.choice(others), space, rng)


def merge_neighbour(genome: Genome, space: SearchSpace, rng: Random) -> Genome:
    """A region takes over a neighbouring one: the neighbour moves to its engine and they merge."""
    border = _border_edges(genome, space)
    if not border:
        return change_engine(genome, space, rng)
    first, second = rng.choice(border)[1:]
    if rng.random() < 0.5:
        first, second = second, first
    return _move(genome, second.nodes, bordering(first.engine), space, rng)


def split_region(genome: Genome, space: SearchSpace, rng: Random) -> Genome:
    """A region is split into the nodes that run before a random node of it and the rest; engines stay."""
    region = _pick_region(genome, space, rng, largest=True)
    early = region.nodes & _upstream(rng.choice(list(members(region.nodes))), space, rng)
    merges = list(genome.merges)
    for index, (source, target) in enumerate(space.edges):
        if region.nodes >> source & 1 and region.nodes >> target & 1:
            merges[index] = int((early >> source & 1) == (early >> target & 1))
    return Genome(genome.choices, tuple(merges))


def move_border(genome: Genome, space: SearchSpace, rng: Random) -> Genome:
    """A node next to another region moves to it."""
    border = _border_edges(genome, space)
    if not border:
        return change_engine(genome, space, rng)
    (source, target), first, second = rng.choice(border)
    if rng.random() < 0.5:
        return _move(genome, 1 << source, bordering(second.engine), space, rng)
    return _move(genome, 1 << target, bordering(first.engine), space, rng)


def take_neighbours_choice(genome: Genome, space: SearchSpace, rng: Random) -> Genome:
    """A match takes the engine of a neighbouring node, over all of its nodes."""
    if not space.edges:
        return resample_node(genome, space, rng)
    source, target = rng.choice(space.edges)
    if rng.random() < 0.5:
        source, target = target, source
    options = space.candidates
    giver = space.matches[options[source][genome.choices[source] % len(options[source])]]
    taker = space.matches[options[target][genome.choices[target] % len(options[target])]]
    return _move(genome, taker.nodes, bordering(giver.engine), space, rng)


def resample_node(genome: Genome, space: SearchSpace, rng: Random) -> Genome:
    """One node draws any of its matches, for all nodes of that match."""
    node = rng.randrange(len(genome.choices))
    match = rng.choice(space.candidates[node])
    return _assign(genome, {member: match for member in members(space.matches[match].nodes)}, space)


def change_copies(genome: Genome, space: SearchSpace, rng: Random) -> Genome:
    """A region, or a connected part of one, moves to another engine or stays; its copies elsewhere do the same."""
    region = _pick_region(genome, space, rng)
    part, kinds = _part(region, space, rng), kinds_of(space.graph)
    inside = {kinds[node] for node in members(part)}
    copies = node_set(node for node, kind in enumerate(kinds) if kind in inside)
    engines = sorted({engine for node in members(part) for engine in space.node_engines[node]})
    stays = copies != part and rng.random() < 0.5
    return _move(genome, copies, bordering(region.engine) if stays else rng.choice(engines), space, rng)


MUTATIONS: tuple[Mutation, ...] = (
    change_engine,
    change_variant,
    merge_neighbour,
    split_region,
    move_border,
    take_neighbours_choice,
    resample_node,
    change_copies,
)


def mutation_weights(settings: GaSettings, space: SearchSpace) -> list[float]:
    """The weight of each of ``MUTATIONS``."""
    weights = {mutation: float(getattr(settings, mutation.__name__)) for mutation in MUTATIONS}
    kinds = kinds_of(space.graph)
    if len(set(kinds)) == len(kinds) and any(weights[one] for one in MUTATIONS if one is not change_copies):
        weights[change_copies] = 0.0  # without copies it would be one more change_engine
    return list(weights.values())


def mutate(
    genome: Genome, space: SearchSpace, rng: Random, more: float = 0.3, weights: Sequence[float] | None = None
) -> Genome:
    """One random mutation, then further ones, each with chance ``more``; ``weights`` are those of ``MUTATIONS``."""
    genome = rng.choices(MUTATIONS, weights)[0](genome, space, rng)
    while rng.random() < more:
        genome = rng.choices(MUTATIONS, weights)[0](genome, space, rng)
    return genome


def random_genome(space: SearchSpace, rng: Random) -> Genome:
    """Independent uniform choices; merge genes are 1 in nine of ten, because unmerged neighbours only cost."""
    choices = tuple(rng.randrange(len(options)) for options in space.candidates)
    return Genome(choices, tuple(int(rng.random() < 0.9) for _ in space.edges))


def _pick_region(genome: Genome, space: SearchSpace, rng: Random, largest: bool = False) -> Region:
    regions: Sequence[Region] = decode(genome, space).regions
    if largest:  # by size, so that there is something to split
        return rng.choices(regions, weights=[region.nodes.bit_count() for region in regions])[0]
    return rng.choice(regions)


def _part(region: Region, space: SearchSpace, rng: Random) -> NodeSet:
    """The whole region, or, around a random node of it, the branch or any connected part."""
    kind = rng.random()
    if kind < 0.3:
        return region.nodes
    nodes = list(members(region.nodes))
    if kind < 0.6:
        return space.graph.branch(rng.choice(nodes)) & region.nodes
    wanted = rng.randint(1, max(1, len(nodes) // rng.choice((1, 2, 4, 8))))
    part = 1 << rng.choice(nodes)
    while part.bit_count() < wanted:
        around = union(space.graph.pred[node] | space.graph.succ[node] for node in members(part))
        around &= region.nodes & ~part
        if not around:
            break
        part |= around if part.bit_count() + around.bit_count() <= wanted else around & -around
    return part


def _border_edges(genome: Genome, space: SearchSpace) -> list[tuple[tuple[int, int], Region, Region]]:
    regions = decode(genome, space).regions
    owner = {node: region for region in regions for node in members(region.nodes)}
    crossing = [(i, j) for i, j in space.edges if owner[i] != owner[j]]
    return [((i, j), owner[i], owner[j]) for i, j in crossing]


def _move(genome: Genome, nodes: NodeSet, engine: Engine, space: SearchSpace, rng: Random) -> Genome:
    """``nodes`` choose matches of ``engine`` where it has any: mostly the cheapest inside, sometimes any."""
    chosen: dict[int, int] = {}
    for node in members(nodes):
        if node in chosen:
            continue
        candidates = [m for m in space.by_cost[node] if bordering(space.matches[m].engine) == engine]
        inside = [
            m
            for m in candidates
            if not space.matches[m].nodes & ~nodes and chosen.keys().isdisjoint(members(space.matches[m].nodes))
        ]
        if not candidates:
            continue
        match = inside[0] if inside and rng.random() < 0.8 else rng.choice(inside or candidates)
        for member in members(space.matches[match].nodes):
            chosen.setdefault(member, match)
    return _assign(genome, chosen, space)


def _assign(genome: Genome, chosen: dict[int, int], space: SearchSpace) -> Genome:
    """Set choices, and let the changed nodes merge with everything around them."""
    choices = list(genome.choices)
    for node, match in chosen.items():
        choices[node] = space.candidates[node].index(match)
    merges = tuple(
        1 if source in chosen or target in chosen else gene
        for (source, target), gene in zip(space.edges, genome.merges, strict=True)
    )
    return Genome(tuple(choices), merges)
