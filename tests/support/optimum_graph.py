"""The true optimum of a simulated target on any narrow DAG: takes a target, gives its fastest placement, certified.

Each node is a variable whose values are the matches that may cover it. Match costs, layout effects and borders are
tables over few neighbouring variables; eliminating the variables one by one (Bertele and Brioschi, 1972) gives the
cheapest assignment. Assignments may be cyclic, so that it is a lower bound; the certificate is that a placement
attains it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from collage_evo.errors import InputError
from collage_evo.genome.cost_model import Engine, Flow
from collage_evo.genome.encoding import place
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import members
from collage_evo.patterns.match import Placement
from tests.support.optimum import best_backend_set
from tests.support.simulated_target import SimulatedEvaluator

LARGEST_TABLE = 30_000_000
ROUNDING = 1e-9


@dataclass(frozen=True)
class _Table:
    """Costs in ms over the values of some variables; axis ``i`` belongs to ``nodes[i]``, ascending."""

    nodes: tuple[int, ...]
    ms: np.ndarray


def graph_optimum(target: SimulatedEvaluator) -> Placement:
    """The fastest placement where the non-additive effects are layout, contention and ``converted_once``.

    Raises:
        InputError: other effects are set, the graph is too wide, or the certificate fails.
    """
    effects = target.effects
    if effects.region or effects.cache or effects.failures or not effects.converted_once:
        raise InputError("exact elimination knows layout, contention and converted_once only; leave the others at 0")
    return best_backend_set(target, lambda allowed: _solve(target, allowed))


def _solve(target: SimulatedEvaluator, allowed: frozenset[str]) -> Placement | None:
    space = target.space
    values = [[m for m in options if space.matches[m].backend in allowed] for options in space.candidates]
    if not all(values):
        return None
    tables = [_matches(space, values, node) for node in range(len(values))]
    tables += [_edge(target, values, i, j) for i, j in space.edges]
    tables += [_flow(space, values, flow) for flow in space.flows]
    bound, chosen = _eliminate(tables, [len(options) for options in values])
    if not math.isfinite(bound):
        return None
    placement = place(sorted({values[node][value] for node, value in enumerate(chosen)}), space)
    bound *= target.contention(allowed)
    if target.latency_ms(placement) > bound + ROUNDING:
        raise InputError("the optimum is not certified; take another seed")
    return placement


def _matches(space: SearchSpace, values: Sequence[Sequence[int]], node: int) -> _Table:
    """A match is paid at its lowest node."""
    own = [
        space.cost.match_ms[m] if not space.matches[m].nodes & ((1 << node) - 1) else 0.0 for m in values[node]
    ]
    return _Table((node,), np.array(own))


def _edge(target: SimulatedEvaluator, values: Sequence[Sequence[int]], i: int, j: int) -> _Table:
    """Both ends take the same match, or matches that leave the other end out; then layout."""
    matches = target.space.matches
    ms = np.full((len(values[i]), len(values[j])), math.inf)
    for a, one in enumerate(values[i]):
        for b, other in enumerate(values[j]):
            if one == other or not (matches[one].nodes >> j & 1 or matches[other].nodes >> i & 1):
                ms[a, b] = target.layout_ms(i, matches[one].engine, j, matches[other].engine)
    return _Table((i, j), ms)


def _flow(space: SearchSpace, values: Sequence[Sequence[int]], flow: Flow) -> _Table:
    """A tensor crosses once to each other engine that reads it, and to the caller."""
    nodes = tuple(sorted({*members(flow.consumers), *([flow.producer] if flow.producer >= 0 else [])}))
    if math.prod(len(values[node]) for node in nodes) > LARGEST_TABLE:
        raise InputError(f"tensor {flow.name} has too many readers for exact elimination")
    engines = [[space.matches[m].engine for m in values[node]] for node in nodes]
    ms = np.zeros([len(options) for options in engines])
    cost: dict[tuple[Engine, ...], float] = {}
    for index in np.ndindex(*ms.shape):
        taken = tuple(engines[axis][value] for axis, value in enumerate(index))
        if taken not in cost:
            cost[taken] = _crossing(space, flow, dict(zip(nodes, taken, strict=True)))
        ms[index] = cost[taken]
    return _Table(nodes, ms)


def _crossing(space: SearchSpace, flow: Flow, engine: dict[int, Engine]) -> float:
    source = engine[flow.producer] if flow.producer >= 0 else None
    readers = {engine[node] for node in members(flow.consumers)} - {source}
    total = sum(space.cost.crossing_ms(source, reader, flow.nbytes) for reader in readers)
    return total + (space.cost.crossing_ms(source, None, flow.nbytes) if flow.is_output else 0.0)


def _eliminate(tables: list[_Table], sizes: Sequence[int]) -> tuple[float, list[int]]:
    """The least sum of all tables (ms), and a value for each variable that attains it."""
    left = set(range(len(sizes)))
    solved: list[tuple[int, tuple[int, ...], np.ndarray]] = []
    while left:
        node = min(left, key=lambda v: math.prod(sizes[u] for u in _around(tables, v)))
        joined = _sum([table for table in tables if node in table.nodes], sizes)
        axis = joined.nodes.index(node)
        rest = tuple(u for u in joined.nodes if u != node)
        solved.append((node, rest, joined.ms.argmin(axis=axis)))
        tables = [table for table in tables if node not in table.nodes]
        tables.append(_Table(rest, joined.ms.min(axis=axis)))
        left.discard(node)
    chosen = [0] * len(sizes)
    for node, rest, best in reversed(solved):
        chosen[node] = int(best[tuple(chosen[u] for u in rest)])
    return float(sum(table.ms for table in tables)), chosen


def _around(tables: Iterable[_Table], node: int) -> set[int]:
    return {u for table in tables if node in table.nodes for u in table.nodes}


def _sum(tables: Sequence[_Table], sizes: Sequence[int]) -> _Table:
    nodes = tuple(sorted({node for table in tables for node in table.nodes}))
    if math.prod(sizes[node] for node in nodes) > LARGEST_TABLE:
        raise InputError("the graph is too wide for exact elimination")
    total = np.zeros([sizes[node] for node in nodes])
    for table in tables:
        shape = [sizes[node] if node in table.nodes else 1 for node in nodes]
        total = total + table.ms.reshape(shape)
    return _Table(nodes, total)
