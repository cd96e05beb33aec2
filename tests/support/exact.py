"""The same optimum as an exact 0-1 program (HiGHS): an independent check of the dynamic program."""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

from collage_evo.errors import InputError
from collage_evo.genome.cost_model import Engine, bordering
from collage_evo.genome.cover.dynamic_program import Cover
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import members


class _IntegerProgram:
    """Rows and columns of a sparse 0-1 program, filled one constraint at a time."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.rows: list[dict[int, float]] = []
        self.low: list[float] = []
        self.high: list[float] = []

    def column(self, cost: float) -> int:
        self.cost.append(cost)
        return len(self.cost) - 1

    def row(self, coefficients: dict[int, float], low: float, high: float) -> None:
        self.rows.append(coefficients)
        self.low.append(low)
        self.high.append(high)

    def solve(self, whole: int) -> np.ndarray:
        """Values of all columns; the first ``whole`` are integers, the others follow from them."""
        triples = [(v, i, j) for i, coefficients in enumerate(self.rows) for j, v in coefficients.items()]
        values, rows, columns = zip(*triples, strict=True)
        table = csr_matrix((values, (rows, columns)), shape=(len(self.rows), len(self.cost)))
        integral = np.zeros(len(self.cost))
        integral[:whole] = 1
        solved = milp(
            np.asarray(self.cost),
            constraints=LinearConstraint(table, np.asarray(self.low), np.asarray(self.high)),
            integrality=integral,
            bounds=Bounds(0, 1),
            options={"mip_rel_gap": 0.0},
        )
        if solved.x is None:
            raise InputError(f"no exact cover of the graph exists: {solved.message}")
        return np.asarray(solved.x)


def exact_cover(space: SearchSpace) -> Cover:
    """The cheapest acyclic cover by matches, as :func:`cheapest_covers` defines its cost (ms).

    One binary variable a match, one continuous one for each tensor, source engine and reading engine, and for each
    tensor that may be copied to the device or back.
    Cycles in the contracted graph are cut off as they appear.

    Raises:
        InputError: no acyclic exact cover exists.
    """
    program = _IntegerProgram()
    column = {match: program.column(space.cost.match_ms[match]) for match in space.usable}
    for options in space.candidates:
        program.row({column[match]: 1.0 for match in options}, 1.0, 1.0)
    _add_crossings(program, column, space)
    if space.cost.off_host:
        _add_copies(program, column, space)
    while True:
        values = program.solve(len(column))
        order, cycle = _runnable([match for match, index in column.items() if values[index] > 0.5], space)
        if not cycle:
            # Recomputed, because the solver's own objective carries its tolerances.
            return Cover(tuple(order), float(np.asarray(program.cost) @ np.round(values, 9)))
        program.row({column[match]: 1.0 for match in cycle}, -np.inf, len(cycle) - 1.0)


def _add_crossings(program: _IntegerProgram, column: dict[int, int], space: SearchSpace) -> None:
    def charge(source: Engine | None, engine: Engine, nbytes: int) -> float:
        if source is not None and space.cost.family(source) == space.cost.family(engine):
            return space.cost.joint_ms(source, engine, nbytes)
        return space.cost.crossing_ms(source, engine, nbytes)

    def choices(node: int, engine: Engine) -> dict[int, float]:
        return {column[m]: 1.0 for m in space.candidates[node] if bordering(space.matches[m].engine) == engine}

    for flow in space.flows:
        makers = space.node_engines[flow.producer] if flow.producer >= 0 else (None,)
        readers = list(members(flow.consumers))
        for source in makers:
            made = choices(flow.producer, source) if source is not None else {}
            if flow.is_output:
                for index in made:
                    program.cost[index] += space.cost.crossing_ms(source, None, flow.nbytes)
            for engine in sorted({e for node in readers for e in space.node_engines[node]} - {source}):
                pays = program.column(charge(source, engine, flow.nbytes))
                for node in readers:
                    coefficients = choices(node, engine)
                    if coefficients:  # pays >= made + read - 1 (the caller's buffer is always made)
                        row = {pays: -1.0}
                        for index in [*coefficients, *made]:
                            row[index] = row.get(index, 0.0) + 1.0
                        program.row(row, -np.inf, 1.0 if source is not None else 0.0)


def _add_copies(program: _IntegerProgram, column: dict[int, int], space: SearchSpace) -> None:
    def choices(node: int, there: bool) -> dict[int, float]:
        found = (m for m in space.candidates[node] if (space.matches[m].engine in space.cost.off_host) == there)
        return {column[m]: 1.0 for m in found}

    for flow in space.flows:
        for there in (True, False):  # made in the other memory, read in this one
            made = choices(flow.producer, not there) if flow.producer >= 0 else {}
            ms = space.cost.copy_ms(there, flow.nbytes)
            if flow.is_output and not there:  # it comes back, whoever reads it besides
                for index in made:
                    program.cost[index] += ms
                continue
            if flow.producer < 0 and not there:
                continue
            pays = program.column(ms)
            for node in members(flow.consumers):
                row = {pays: -1.0}
                for index in [*choices(node, there), *made]:
                    row[index] = row.get(index, 0.0) + 1.0
                program.row(row, -np.inf, 1.0 if flow.producer >= 0 else 0.0)


def _runnable(chosen: list[int], space: SearchSpace) -> tuple[list[int], list[int]]:
    """Matches in an order that runs, and those of a cycle (empty when all can run)."""
    done, order, left = 0, [], list(chosen)
    while left:
        ready = [match for match in left if not space.before[match] & ~done]
        if not ready:
            break
        for match in ready:
            done |= space.matches[match].nodes
        order += ready
        left = [match for match in left if match not in ready]
    if not left:
        return order, []
    owner = {node: match for match in left for node in members(space.matches[match].nodes)}
    path = [left[0]]
    while True:  # walk upstream inside what is stuck until a match repeats
        into = {node for node, _ in space.entering[path[-1]]}
        waits_for = next(owner[node] for node in sorted(into) if node in owner)
        if waits_for in path:
            return [], path[path.index(waits_for) :]
        path.append(waits_for)
