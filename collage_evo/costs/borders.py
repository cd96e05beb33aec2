"""Costs of borders, fitted to border probes: random cuts of the model between engines, measured as whole models.

The time of a placement beyond its kernels is the price of its borders, taken as linear in the bytes of each tensor
that crosses one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import numpy as np
from scipy.optimize import least_squares

from collage_evo.genome.cost_model import BYTES_PER_MB, Border, Engine, bordering, crossings
from collage_evo.genome.encoding import find_cover, place
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import Graph, NodeSet
from collage_evo.patterns.match import Placement
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
MAX_PROBES = 5
"""Borders per probe. A border is a small difference between large times: a single cut would be lost in the noise."""

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
    fitted_values = least_squares(errors, start, bounds=(least, np.inf), x_scale=scale, loss="soft_l1").x[1:]
    pairs = zip(engines, fitted_values.reshape(-1, 2).tolist(), strict=True)
    fitted = {who: Border(fixed_ms, ms_per_mb) for who, (fixed_ms, ms_per_mb) in pairs}
    seen = {who for row in rows for who, (number, _) in row.sides.items() if number > 0}
    for alike in (set(outer), set(engines) - set(outer)):
        if borders := [fitted[who] for who in alike & seen]:
            worst = Border(max(border.fixed_ms for border in borders), max(border.ms_per_mb for border in borders))
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


def random_probes(space: SearchSpace, engines: Sequence[Engine], rng: Random) -> Iterator[Placement]:
    """Placements of the whole model, cut at random, with neighbouring parts on different ``engines``."""
    count = len(space.graph.nodes)
    seen = set()
    for _ in range(20 * count):  # small models have few
        cuts = sorted(rng.sample(range(1, count), min(rng.randint(1, MAX_PROBES), count - 1)))
        spans = list(pairwise([0, *cuts, count]))
        turns = [rng.randrange(len(engines))]
        for _ in spans[1:]:
            turns.append((turns[-1] + rng.randint(1, len(engines) - 1)) % len(engines))
        placement = _placed(space, [(engines[turn], span) for turn, span in zip(turns, spans, strict=True)])
        if placement is not None and placement.key not in seen:
            seen.add(placement.key)
            yield placement


def whole_on(space: SearchSpace, engine: Engine) -> Placement | None:
    """The whole model on ``engine``, and on others of its family the nodes that it does not support."""
    return _placed(space, [(engine, (0, len(space.graph.nodes)))])


def _placed(space: SearchSpace, spans: Sequence[tuple[Engine, tuple[int, int]]]) -> Placement | None:
    """Place ranges of node numbers on an engine each, as far as it supports them."""
    wanted = {node: (engine, span) for engine, span in spans for node in range(*span)}
    cover = find_cover(space, lambda node: _wishes(space, node, *wanted[node]))
    return None if cover is None else place(cover, space)


def _wishes(space: SearchSpace, node: int, engine: Engine, span: tuple[int, int]) -> list[int]:
    """The choices of ``node`` in order: matches of ``engine`` inside ``span`` first, then of its family, large ones
    first."""
    begin, end = span
    family = space.cost.family(engine)

    def order(match: int) -> tuple[bool, bool, bool, int]:
        candidate = space.matches[match]
        leaves = bool(candidate.nodes >> end or candidate.nodes & ((1 << begin) - 1))
        return candidate.engine != engine, candidate.engine != family, leaves, -candidate.nodes.bit_count()

    return sorted(space.candidates[node], key=order)


def sides_of(space: SearchSpace, placement: Placement) -> Sides:
    """Tensor crossings: for each family the number of sides of its regions' borders, and their bytes.

    An engine that differs from its family has additional ones, at its borders inside a region too.
    """
    sides: dict[Engine, tuple[float, float]] = {}
    for crossing in crossings(space.flows, placement):
        for engine in filter(None, (crossing.source, crossing.target)):
            family = space.cost.family(engine)
            for who in {engine, family} - ({family} if crossing.inside else set()):
                number, nbytes = sides.get(who, (0.0, 0.0))
                sides[who] = number + 1, nbytes + crossing.nbytes
    return sides


def sample_of(
    space: SearchSpace,
    placement: Placement,
    whole_models: Mapping[Engine, WholeModel],
    measured_ms: float,
    contended: bool,
) -> BorderSample:
    """The cost of ``placement`` at borders beyond ``whole_models``, which contain the engines' own cost of the whole
    model."""
    sides = dict(sides_of(space, placement))
    inner = 0.0
    for match in (match for region in placement.regions for match in region.matches):
        ms, engine = space.cost.match_ms[match], bordering(space.matches[match].engine)
        inner += ms
        if (whole := whole_models.get(engine)) is not None:
            for who, (number, nbytes) in whole.sides.items():
                had, share = sides.get(who, (0.0, 0.0)), ms / whole.ms
                sides[who] = had[0] - share * number, had[1] - share * nbytes
    return BorderSample(measured_ms, inner, sides, contended)
