"""Scheduler of a backend's tuning trials: they go where tuning can gain the most.

After Ansor's task scheduler (Zheng et al., 2020): rounds go to the structure with the largest weight times gap, and
the weight shrinks with the rounds it had. The gap lies between the best known time, any backend's, and the hardware's
bound, because that is all that tuning can gain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from collage_evo.backends.tuning import Kernel
from collage_evo.costs.matches import CostTable
from collage_evo.genome.cost_model import Engine
from collage_evo.graph.convert.extract import structural_hash
from collage_evo.graph.ir.graph import Graph, NodeSet, members
from collage_evo.graph.ir.roofline import Roofline, heavy_operators
from collage_evo.multimap import multimap
from collage_evo.patterns.match import Match

ROUND = 16
"""Trials of one round."""


@dataclass
class Structure:
    """Equal node sets that one backend takes: their places, and the possible gain of tuning.

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
        """Milliseconds that the next round may gain."""
        gap = min(self.untuned_ms, self.other_ms) - self.bound_ms
        return len(self.places) * gap / (1 + self.rounds)


@dataclass(frozen=True)
class Known:
    """A structure's kernels, and whether all trials on them are done."""

    kernels: tuple[str, ...]
    finished: bool = False


@dataclass(frozen=True)
class Spent:
    """Summary of the trials: how many on record, how many of them new, and results by structure."""

    trials: int
    new: int
    known: Mapping[str, Known]


def structures(
    graph: Graph, matches: Sequence[Match], table: CostTable, backend: str, off_host: Collection[Engine] = ()
) -> list[Structure]:
    """Structures that ``backend`` can tune: its measured matches with at most one heavy operator, equal ones
    together, as they are in the graph.

    If some engines run on an accelerator in addition to the host, matches there are tuned, with a bound from
    measurements there.
    """
    pairs = zip(matches, table.standalone_ms, strict=True)
    costs = [(match, ms) for match, ms in pairs if not match.rewrites]
    tunable = [(match, ms) for match, ms in costs if ms < math.inf and (match.engine in off_host or not off_host)]
    roofline = Roofline.seen(graph, [(match.nodes, ms) for match, ms in tunable])
    others = multimap((match.nodes, ms) for match, ms in costs if match.backend != backend)

    def best(nodes: NodeSet) -> float:
        return min(others.get(nodes, ()), default=math.inf)

    own = ((match.nodes, ms) for match, ms in tunable if match.backend == backend)
    light = ((nodes, ms) for nodes, ms in own if heavy_operators(graph, nodes) <= 1)
    found = []
    for key, alike in multimap((structural_hash(graph, nodes), (nodes, ms)) for nodes, ms in light).items():
        nodes, ms = alike[0]
        other = min(best(nodes), sum(best(1 << node) for node in members(nodes)))
        places = [each for each, _ in alike]
        found.append(Structure(key, nodes, places, ms, other, roofline.bound_ms(graph, nodes)))
    return found


def spend(
    tunable: Sequence[Structure],
    budget: int,
    tune: Callable[[Structure, int], tuple[str, ...] | None],
    on_record: Callable[[], Mapping[str, Kernel]],
    earlier: Mapping[str, Known],
) -> Spent:
    """Tune until ``budget`` trials of these structures' kernels are on record or none is left to try.

    Args:
        tunable: the structures.
        budget: trials in all, including earlier runs'.
        tune: runs one round on a structure, at most so many trials; returns its kernels, or None if it failed.
        on_record: all kernels that were tried, by key.
        earlier: results of earlier runs, by structure.
    """
    now = {structure.key: earlier[structure.key] for structure in tunable if structure.key in earlier}
    before = used = _trials(now, on_record())
    left = [s for s in tunable if s.promise > 0 and not (s.key in now and now[s.key].finished)]
    while left and used < budget:
        structure = max(left, key=lambda structure: structure.promise)
        had = _total(on_record())
        kernels = tune(structure, min(ROUND, budget - used))
        structure.rounds += 1
        finished = _total(on_record()) == had
        if kernels is None or finished:
            left.remove(structure)
        if kernels is not None:
            now[structure.key] = Known(kernels, finished)
        used = _trials(now, on_record())
    return Spent(used, used - before, now)


def _trials(results: Mapping[str, Known], record: Mapping[str, Kernel]) -> int:
    names = {name for result in results.values() for name in result.kernels}
    return sum(record[name].trials for name in names if name in record)


def _total(record: Mapping[str, Kernel]) -> int:
    return sum(kernel.trials for kernel in record.values())
