"""Spends a backend's tuning trials where it can win: takes measured costs, gives tuned matches and what they are of.

After Ansor's task scheduler (Zheng et al., 2020): rounds go to the structure with the largest weight times gap, and
the weight shrinks with the rounds it had. The gap lies between the best known time, any backend's, and the hardware's
bound, because that is all that tuning can win.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from collage_evo.backends.tuning import Kernel
from collage_evo.fitness.costs import CostTable
from collage_evo.fitness.roofline import Roofline, heavy_operators
from collage_evo.graph.extract import structural_hash
from collage_evo.graph.ir import Graph, NodeSet, members
from collage_evo.patterns.match import Match

ROUND = 16
"""Trials of one round."""


@dataclass
class Structure:
    """Equal node sets that one backend takes: where they are, how often, and what tuning may win.

    Attributes:
        nodes: one of them.
        places: all of them.
        untuned_ms: the backend's time without tuning.
        other_ms: the best other backend's, as one piece or operator by operator.
        bound_ms: the hardware's.
    """

    key: str
    nodes: NodeSet
    places: list[NodeSet]
    untuned_ms: float
    other_ms: float
    bound_ms: float
    rounds: int = field(default=0, compare=False)

    @property
    def promise(self) -> float:
        """Milliseconds that the next round may win."""
        gap = min(self.untuned_ms, self.other_ms) - self.bound_ms
        return len(self.places) * gap / (1 + self.rounds)


@dataclass(frozen=True)
class Spent:
    """What the trials were: how many on record, how many of them new, and each structure's kernels."""

    trials: int
    new: int
    kernels: Mapping[str, tuple[str, ...]]


def structures(graph: Graph, matches: Sequence[Match], table: CostTable, backend: str) -> list[Structure]:
    """What ``backend`` might tune: its measured matches with one heavy operator at most, equal ones together."""
    others: dict[NodeSet, float] = {}
    timed = [(match.nodes, ms) for match, ms in zip(matches, table.standalone_ms, strict=True) if ms < math.inf]
    roofline = Roofline.seen(graph, timed)
    for match, ms in zip(matches, table.standalone_ms, strict=True):
        if match.backend != backend:
            others[match.nodes] = min(ms, others.get(match.nodes, math.inf))
    found: dict[str, Structure] = {}
    for match, ms in zip(matches, table.standalone_ms, strict=True):
        if match.backend != backend or ms == math.inf or heavy_operators(graph, match.nodes) > 1:
            continue
        key = structural_hash(graph, match.nodes)
        if key in found:
            found[key].places.append(match.nodes)
            continue
        apart = sum(others.get(1 << node, math.inf) for node in members(match.nodes))
        other = min(others.get(match.nodes, math.inf), apart)
        bound = roofline.bound_ms(graph, match.nodes)
        found[key] = Structure(key, match.nodes, [match.nodes], ms, other, bound)
    return list(found.values())


def spend(
    found: Sequence[Structure],
    budget: int,
    tune: Callable[[Structure, int], tuple[str, ...] | None],
    on_record: Callable[[], Mapping[str, Kernel]],
    known: Mapping[str, tuple[str, ...]],
) -> Spent:
    """Tune until ``budget`` trials of these structures' kernels are on record or none is left to try.

    Args:
        found: the structures.
        budget: trials in all, earlier runs' included.
        tune: makes one round on a structure, at most so many trials; gives its kernels, or None if it failed.
        on_record: all kernels that were tried.
        known: kernels of the structures that earlier runs tuned.
    """
    kernels = {structure.key: known[structure.key] for structure in found if structure.key in known}
    before = used = _trials(kernels, on_record())
    left = [structure for structure in found if structure.promise > 0]
    while left and used < budget:
        structure = max(left, key=lambda structure: structure.promise)
        had = sum(kernel.trials for kernel in on_record().values())
        names = tune(structure, min(ROUND, budget - used))
        record = on_record()
        structure.rounds += 1
        if names is not None:
            kernels[structure.key] = names
        if names is None or sum(kernel.trials for kernel in record.values()) == had:
            left.remove(structure)
        used = _trials(kernels, record)
    return Spent(used, used - before, kernels)


def _trials(kernels: Mapping[str, tuple[str, ...]], record: Mapping[str, Kernel]) -> int:
    names = {name for group in kernels.values() for name in group}
    return sum(record[name].trials for name in names if name in record)


def tuned_matches(
    found: Sequence[Structure], matches: Sequence[Match], spent: Spent, better: frozenset[str], variant: str, backend: str
) -> tuple[Match, ...]:
    """``backend``'s matches that hold a structure with a kernel in ``better``, each as ``variant``."""
    gained = 0
    for structure in found:
        if better.intersection(spent.kernels.get(structure.key, ())):
            for nodes in structure.places:
                gained |= nodes
    return tuple(
        Match(match.nodes, backend, variant, match.pattern)
        for match in matches
        if match.backend == backend and match.nodes & gained
    )
