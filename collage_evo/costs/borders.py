"""Costs of borders, fitted to placements measured as whole models.

The time of a placement beyond its kernels is the price of its borders, taken as linear in the bytes of each tensor
that crosses one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from collage_evo.graph.ir import Graph, NodeSet
from collage_evo.placement.cost_model import BYTES_PER_MB, Border, Engine
from collage_evo.policy import DEFAULT_POLICY, Policy

UNSURE = Border(0.015, 0.1)
"""Standard deviations of the prior on border costs."""
NOISE = 0.03
"""Standard deviation of a measured placement about its kernels and borders, relative to it."""
CONTENDED_NOISE = 0.3
"""Added to that where other programs used the same cores."""
DRIFT = 0.05
"""Relative standard deviation that all placements together have about measurements made minutes before them."""


LEAST_SHARE = 0.05
"""A region costs at least this share of its standalone time, however expensive its borders seem."""


Sides = Mapping[Engine, tuple[float, float]]
"""Numbers of border sides that tensors cross, and their bytes: for each family those of regions, and for each engine
that differs from its family those where its operators begin or end, inside a region too."""


@dataclass(frozen=True)
class BorderSample:
    """A placement: ms as measured, ms of its kernels, and the borders that these do not include."""

    measured_ms: float
    inner_ms: float
    sides: Sides
    contended: bool = False


@dataclass(frozen=True)
class WholeModel:
    """An engine that runs the whole model: its ms, and the borders that these include."""

    ms: float
    sides: Sides

    def share(self, borders: Mapping[Engine, Border]) -> float:
        """The share of the time that is not due to borders."""
        less = sum(n * borders[who].fixed_ms + b / BYTES_PER_MB * borders[who].ms_per_mb
                   for who, (n, b) in self.sides.items())  # fmt: skip
        return max(1.0 - less / self.ms, LEAST_SHARE) if self.ms else 1.0


def fit_borders(
    rows: Sequence[BorderSample],
    families: Iterable[Engine],
    inside: Iterable[Engine] = (),
    policy: Policy = DEFAULT_POLICY,
) -> dict[Engine, Border]:
    """Fit the cost of one side of a border, at least zero; near the prior of ``policy`` where ``rows`` carry little
    information.

    For each of ``families`` it is the whole border, for each engine ``inside`` one the additional cost, such as
    writing integers. Those that ``rows`` do not contain are taken to be no better than the worst of the others.
    """
    outer = sorted(set(families))
    engines = [*outer, *sorted(set(inside) - set(outer))]
    expected = Border(policy.border_ms, policy.border_ms_per_mb)
    usual = np.concatenate([_pair(expected if who in outer else Border(0.0, 0.0)) for who in engines])
    unsure = np.tile(_pair(UNSURE), len(engines))
    sides = np.array([[part for who in engines for part in row.sides.get(who, (0.0, 0.0))] for row in rows])
    sides = sides.reshape(len(rows), len(usual)) / np.tile([1.0, BYTES_PER_MB], len(engines))
    measured, inner = (np.array([getattr(row, name) for row in rows]) for name in ("measured_ms", "inner_ms"))
    noise = np.array([NOISE + CONTENDED_NOISE * row.contended for row in rows])

    def errors(values: np.ndarray) -> np.ndarray:
        # Later measurements may be slower or faster as a whole, which borders do not explain.
        drift, borders = values[0], values[1:]
        off = (drift * inner + sides @ borders - measured) / np.maximum(measured, 1e-9) / noise
        return np.concatenate([off, (borders - usual) / unsure, [(drift - 1) / DRIFT]])

    start = np.concatenate([[1.0], usual + unsure / 10])
    least = np.concatenate([[0.5], np.zeros(len(usual))])
    scale = np.concatenate([[DRIFT], unsure])
    # Errors are relative to the measurement. Large ones count less than by their square, because some of the times
    # were contended.
    found = least_squares(errors, start, bounds=(least, np.inf), x_scale=scale, loss="soft_l1").x[1:]
    fitted = {who: Border(float(found[2 * at]), float(found[2 * at + 1])) for at, who in enumerate(engines)}
    seen = {who for row in rows for who, (number, _) in row.sides.items() if number > 0}
    for alike in (set(outer), set(engines) - set(outer)):
        if known := [fitted[who] for who in alike & seen]:
            worst = Border(max(border.fixed_ms for border in known), max(border.ms_per_mb for border in known))
            fitted |= dict.fromkeys(alike - seen, worst)
    return fitted


def _pair(border: Border) -> list[float]:
    return [border.fixed_ms, border.ms_per_mb]


def boundary_bytes(graph: Graph, nodes: NodeSet) -> int:
    """Bytes of all tensors that enter or leave ``nodes``."""
    return sum(graph.tensors[name].nbytes for side in graph.boundary(nodes) for name in side)


def border_ms(graph: Graph, nodes: NodeSet, border: Border) -> float:
    """Border cost in ms of all tensors that enter or leave ``nodes``."""
    sides = sum(map(len, graph.boundary(nodes)))
    return sides * border.fixed_ms + boundary_bytes(graph, nodes) / BYTES_PER_MB * border.ms_per_mb


def inner_ms(graph: Graph, nodes: NodeSet, standalone_ms: float, border: Border) -> float:
    """Cost of ``nodes`` in ms without their borders, at least ``LEAST_SHARE`` of their standalone time."""
    return max(standalone_ms - border_ms(graph, nodes, border), LEAST_SHARE * standalone_ms)
