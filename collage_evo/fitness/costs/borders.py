"""Costs of borders: takes placements measured whole, gives what entering and leaving an engine costs.

What a placement takes beyond the kernels in it is the price of its borders, taken as linear in the bytes of each
tensor that is handed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from collage_evo.fitness.costs.model import BYTES_PER_MB, Border, Engine
from collage_evo.graph.ir import Graph, NodeSet

USUAL = Border(0.015, 0.1)
"""What is expected before anything is measured: fitted to networks on a Xeon, 1 and 2 threads, were 0 to 0.07 ms and
0.03 to 0.17 ms per 10^6 bytes. If borders looked free, so would covers of many small pieces."""
UNSURE = Border(0.015, 0.1)
"""Standard deviations of that."""
NOISE = 0.03
"""Standard deviation of a measured placement about its kernels and borders, relative to it."""
DISTURBED = 0.3
"""What is added to it where others were at work on the same cores."""
DRIFT = 0.05
"""The same of all placements together about what was measured minutes before them."""


LEAST_SHARE = 0.05
"""A region keeps at least this share of what it takes alone, however dear its borders look."""


@dataclass(frozen=True)
class Row:
    """A placement: ms as measured, ms of its kernels, and each tensor handed on: its bytes and the two families."""

    measured_ms: float
    inner_ms: float
    handed: tuple[tuple[int, Engine, Engine], ...]
    disturbed: bool = False


def fit_borders(rows: Sequence[Row], families: Iterable[Engine]) -> dict[Engine, Border]:
    """What one side of a border costs each family, nothing below zero; near to the usual where ``rows`` say little.

    A family of which they say nothing is taken to be no better than the worst of the others.

    Errors count in relation to what was measured, and large ones less than by their square (soft L1): some of the
    times were disturbed. What was measured later may be slower or faster altogether, which borders do not explain.
    """
    place = {family: 2 * number for number, family in enumerate(sorted(set(families)))}
    usual, unsure = (np.tile([b.fixed_ms, b.ms_per_mb], len(place)) for b in (USUAL, UNSURE))
    sides = np.zeros((len(rows), 2 * len(place)))
    for row, line in zip(rows, sides, strict=True):
        for nbytes, *both in row.handed:
            for family in both:
                line[place[family]] += 1.0
                line[place[family] + 1] += nbytes / BYTES_PER_MB
    measured, inner = (np.array([getattr(row, name) for row in rows]) for name in ("measured_ms", "inner_ms"))

    noise = np.array([NOISE + DISTURBED * row.disturbed for row in rows])

    def errors(values: np.ndarray) -> np.ndarray:
        drift, borders = values[0], values[1:]
        off = (drift * inner + sides @ borders - measured) / np.maximum(measured, 1e-9) / noise
        return np.concatenate([off, (borders - usual) / unsure, [(drift - 1) / DRIFT]])

    start = np.concatenate([[1.0], usual])
    least = np.concatenate([[0.5], np.zeros(len(usual))])
    scale = np.concatenate([[DRIFT], unsure])
    found = least_squares(errors, start, bounds=(least, np.inf), x_scale=scale, loss="soft_l1")
    fitted = {family: Border(*map(float, found.x[1 + at : 3 + at])) for family, at in place.items()}
    seen = {family for row in rows for _, *both in row.handed for family in both}
    known = [fitted[family] for family in seen] or [USUAL]
    worst = Border(max(border.fixed_ms for border in known), max(border.ms_per_mb for border in known))
    return {family: border if family in seen else worst for family, border in fitted.items()}


def boundary_bytes(graph: Graph, nodes: NodeSet) -> int:
    """Bytes of all tensors that enter or leave ``nodes``."""
    return sum(graph.tensors[name].nbytes for side in graph.boundary(nodes) for name in side)


def border_ms(graph: Graph, nodes: NodeSet, border: Border) -> float:
    """What all tensors that enter or leave ``nodes`` cost at their borders."""
    sides = sum(map(len, graph.boundary(nodes)))
    return sides * border.fixed_ms + boundary_bytes(graph, nodes) / BYTES_PER_MB * border.ms_per_mb


def inner_ms(graph: Graph, nodes: NodeSet, standalone_ms: float, border: Border) -> float:
    """What ``nodes`` cost without their borders, at least ``LEAST_SHARE`` of what they take alone."""
    return max(standalone_ms - border_ms(graph, nodes, border), LEAST_SHARE * standalone_ms)
