"""Estimates of costs that were not measured: takes kernels with some of their times, gives the others' with a spread.

Kernels of like sizes take like times, and a library that is slow at one is slow at its neighbours. A Gaussian
process (Rasmussen and Williams, 2006) on the logarithm of the time says both, and how sure it is: distance between
two kernels is that of their features, and what two engines have in common counts for both. What runs on the host says
nothing of what runs on a device. Where it is known what many kernels take together, as when an engine ran the whole
model, that counts as well.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product, starmap

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize

from collage_evo.fitness.costs.model import Engine
from collage_evo.graph.ir import Graph, NodeSet, members
from collage_evo.graph.operators import HEAVY
from collage_evo.graph.roofline import constant_bytes, heavy_operators, multiply_adds
from collage_evo.patterns.match import Match

REACHES = (1.0, 2.0, 4.0)
"""Distances over which kernels are alike that are tried, in standard deviations of the features."""
SHARES = (0.1, 0.3, 0.6)
"""Shares of the variance that are an engine's own that are tried."""
NOISES = (0.05, 0.15)
"""Standard deviations of the logarithm of a measured time about the true one that are tried."""
SMOOTH = 4.0
"""Prior standard deviation of what is linear in the features."""
LOCALS = (0.3, 1.0)
"""Prior standard deviations of what is not that are tried."""
MOST_FITTED = 100
"""Measured kernels on which the parameters are chosen."""
SAME = 1e-9
"""Kernels nearer than this have the same features."""
WHOLE_NOISE = 0.15
"""Standard deviation of the logarithm of what kernels take together about the sum of their times. Chosen: such sums
are some 10 to 20 % off (docs/results.md)."""
ROUNDING = 1e-5
"""Share of the largest variance that is added to all, so that rounding leaves no negative one."""
MOST = 50.0
"""Logarithms of ms beyond this are not looked at."""
MOST_SPREAD = 2.0
"""Where less is known, a mean is that of so much: seven times the median."""


@dataclass(frozen=True)
class Estimate:
    """Median of what is expected, ms, and the standard deviation of its logarithm."""

    ms: float
    spread: float

    @property
    def expected_ms(self) -> float:
        """The mean. It is more than the median, and the more so the less is known, so that a sum of many is not what
        the luckiest guesses make of it."""
        return self.ms * math.exp(min(self.spread, MOST_SPREAD) ** 2 / 2)

    @property
    def hopeful_ms(self) -> float:
        """Hardly less, as far as one can tell: one standard deviation below."""
        return self.ms * math.exp(-self.spread)


@dataclass(frozen=True)
class Whole:
    """``kernels``, by index, take ``ms`` together, or more: an engine that is given all of them at once may save more
    than their borders."""

    kernels: tuple[int, ...]
    ms: float


class Kernels:
    """Matches with one heavy operator at most, as points of one space: what is measured of some says much of others.

    Matches of one engine with equal features are one point; what is rewritten in some way is none with anything else.
    """

    def __init__(
        self,
        graph: Graph,
        matches: Sequence[Match],
        on_device: Collection[Engine] = (),
        without: Collection[int] = (),
    ) -> None:
        """``without``: matches by index of which the others say nothing."""
        small = (i for i, match in enumerate(matches) if heavy_operators(graph, match.nodes) <= 1)
        self.indices = tuple(index for index in small if index not in without)
        sets = {nodes: features(graph, nodes) for nodes in dict.fromkeys(matches[i].nodes for i in self.indices)}
        names = sorted({name for found in sets.values() for name in found})
        rows = {nodes: tuple(found.get(name, 0.0) for name in names) for nodes, found in sets.items()}
        number: dict[tuple[tuple[float, ...], Engine, tuple[object, ...]], int] = {}
        self._point: dict[int, int] = {}
        self._places: list[int] = []
        """For each point the first match that is there."""
        for index in self.indices:
            key = (rows[matches[index].nodes], matches[index].engine, _rewritten(matches[index]))
            if key not in number:
                number[key] = len(self._places)
                self._places.append(index)
            self._point[index] = number[key]
        points = np.array([row for row, *_ in number]).reshape(len(number), len(names))
        if number:
            spread = points.std(0)
            points = (points - points.mean(0)) / np.where(spread > 0, spread, 1.0)
        self._dot = points @ points.T / max(1, len(names))
        squares = np.diag(self._dot)
        self._distance = np.maximum(squares[:, None] + squares[None, :] - 2 * self._dot, 0.0)
        engines = [engine for _, engine, _ in number]
        self._kin = (_equal(engines) + _equal([backend for backend, _ in engines])) / 2
        self._beside = _equal([engine in on_device for engine in engines])

    def spread_out(self, count: int, taken: Sequence[int] = ()) -> list[int]:
        """``count`` kernels of different features that lie far from ``taken`` and from each other, farthest first."""
        chosen: list[int] = []
        nearest = np.full(len(self._places), np.inf)
        for index in taken:
            if index in self._point:
                nearest = np.minimum(nearest, self._distance[self._point[index]])
        while len(chosen) < count and (nearest > SAME).any():
            point = int(np.argmax(nearest))
            chosen.append(self._places[point])
            nearest = np.minimum(nearest, self._distance[point])
        return chosen

    def estimates(self, measured: Mapping[int, float], wholes: Sequence[Whole] = ()) -> dict[int, Estimate]:
        """Of every kernel, from the times (ms, by index) that were measured; nothing where none were.

        Those of which less was expected than ``wholes`` say are raised.
        """
        times: dict[int, list[float]] = {}
        for index, ms in measured.items():
            if index in self._point:
                times.setdefault(self._point[index], []).append(math.log(ms))
        if not times:
            return {}
        known = sorted(times)
        logs = np.array([sum(times[point]) / len(times[point]) for point in known])
        mean = float(logs.mean())
        fit = self._fitted(self._likeliest(known, logs - mean), known, logs - mean)
        across = self._covariance(fit.setting, slice(None), known)
        middle = mean + across @ fit.weights
        alone = SMOOTH**2 * (1 + np.diag(self._dot)) + fit.setting.local**2
        variance = np.maximum(alone - ((across @ fit.inverse) * across).sum(1), 0.0)
        # Each measured time left out in turn says how far off the estimates are in truth.
        off = fit.weights / np.sqrt(np.diag(fit.inverse))
        doubt = max(1.0, float(np.sqrt(np.mean(off**2))))
        variance *= doubt**2
        middle[known] = logs
        together = np.array([whole.ms for whole in wholes])
        counts = self._counts(wholes)
        short = counts @ np.exp(middle) < together
        counts = counts[short]
        open_points = np.setdiff1d(np.flatnonzero(counts.any(0)), known)
        if len(open_points):
            between = self._covariance(fit.setting, slice(None), open_points)
            between = doubt**2 * (between - across @ fit.inverse @ across[open_points].T)
            sums = _Sums(counts, np.log(together[short]), open_points, between)
            middle, variance = sums.agreed(middle, variance)
        spread = np.sqrt(variance)
        return {i: Estimate(math.exp(middle[p]), float(spread[p])) for i, p in self._point.items()}

    def _counts(self, wholes: Sequence[Whole]) -> np.ndarray:
        """How often each point is in each of ``wholes``: a row for each of these."""
        counts = np.zeros((len(wholes), len(self._places)))
        for row, whole in zip(counts, wholes, strict=True):
            for index in whole.kernels:
                row[self._point[index]] += 1
        return counts

    def _likeliest(self, known: Sequence[int], logs: np.ndarray) -> _Setting:
        """The parameters under which some of what was measured is likeliest: more of it would say the same."""
        step = -(-len(known) // MOST_FITTED)
        settings = starmap(_Setting, product(REACHES, SHARES, LOCALS, NOISES))
        return max(settings, key=lambda setting: self._likelihood(setting, known[::step], logs[::step]))

    def _likelihood(self, setting: _Setting, known: Sequence[int], logs: np.ndarray) -> float:
        """Its logarithm, but for a constant."""
        factor = self._factor(setting, known)
        return float(-0.5 * logs @ cho_solve(factor, logs) - np.log(np.diag(factor[0])).sum())

    def _fitted(self, setting: _Setting, known: Sequence[int], logs: np.ndarray) -> _Fit:
        inverse = cho_solve(self._factor(setting, known), np.eye(len(known)))
        return _Fit(setting, inverse, inverse @ logs)

    def _factor(self, setting: _Setting, known: Sequence[int]) -> tuple[np.ndarray, bool]:
        """The covariance of measured times, as ``scipy`` factors it."""
        factor, lower = cho_factor(self._covariance(setting, known, known) + setting.noise**2 * np.eye(len(known)))
        return np.asarray(factor), bool(lower)

    def _covariance(
        self, setting: _Setting, some: Sequence[int] | slice, others: Sequence[int] | np.ndarray
    ) -> np.ndarray:
        tables = (self._dot, self._distance, self._kin, self._beside)
        dot, distance, kin, beside = (table[some][:, others] for table in tables)
        alike = SMOOTH**2 * (1 + dot) + setting.local**2 * np.exp(-distance / (2 * setting.reach**2))
        return np.asarray(alike * (1 - setting.share + setting.share * kin) * beside)


@dataclass(frozen=True)
class _Sums:
    """Logarithms of what points take together.

    ``counts``: how often each point is in each sum; ``open_points``: those of them that were not measured;
    ``between``: the covariance of all points with these.
    """

    counts: np.ndarray
    logs: np.ndarray
    open_points: np.ndarray
    between: np.ndarray

    def agreed(self, middle: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Likeliest logarithms of all points given the sums, and their variances about there (Laplace)."""
        inside = self.between[self.open_points]
        inside = inside + ROUNDING * inside.diagonal().max() * np.eye(len(inside))
        lower = np.linalg.cholesky(inside)
        counts = self.counts[:, self.open_points]
        rest = np.delete(self.counts, self.open_points, 1) @ np.exp(np.delete(middle, self.open_points))

        def parts(place: np.ndarray) -> np.ndarray:
            return np.asarray(counts * np.exp(np.minimum(middle[self.open_points] + lower @ place, MOST)))

        def unlikely(place: np.ndarray) -> tuple[float, np.ndarray]:
            each = parts(place)
            together = rest + each.sum(1)
            off = (np.log(together) - self.logs) / WHOLE_NOISE
            slope = place + lower.T @ (each.T @ (off / together)) / WHOLE_NOISE
            return float(place @ place + off @ off) / 2, slope

        place = minimize(unlikely, np.zeros(len(lower)), jac=True, method="L-BFGS-B").x
        each = parts(place)
        shares = each / (rest + each.sum(1))[:, None]
        noise = WHOLE_NOISE**2 * np.eye(len(self.logs))
        moved = self.between @ shares.T
        gain = np.linalg.solve(shares @ inside @ shares.T + noise, moved.T).T
        now = middle + self.between @ solve_triangular(lower.T, place)
        return now, np.maximum(variance - (gain * moved).sum(1), 0.0)


def _equal(labels: Sequence[object]) -> np.ndarray:
    """1.0 for each pair of points whose labels are equal, else 0.0."""
    number = {label: place for place, label in enumerate(dict.fromkeys(labels))}
    codes = np.array([number[label] for label in labels])
    return np.asarray(codes[:, None] == codes[None, :], float)


def _rewritten(match: Match) -> tuple[object, ...]:
    """What is rewritten in ``match``, its nodes counted in their order."""
    place = {node: number for number, node in enumerate(members(match.nodes))}
    return tuple((name, *(place[node] for node in members(site))) for name, site in match.rewrites)


@dataclass(frozen=True)
class _Setting:
    """Parameters of the process, named after what holds the values that are tried."""

    reach: float
    share: float
    local: float
    noise: float


@dataclass(frozen=True)
class _Fit:
    """The process given what was measured: inverse of the covariance, and that times the logarithms of the times."""

    setting: _Setting
    inverse: np.ndarray
    weights: np.ndarray


def features(graph: Graph, nodes: NodeSet) -> dict[str, float]:
    """What a kernel's time depends on: operators, arithmetic, bytes, and the heavy operator's shape; logarithms."""
    entering, leaving = graph.boundary(nodes)
    found = {
        "work": math.log2(1 + multiply_adds(graph, nodes)),
        "in": math.log2(1 + sum(graph.tensors[name].nbytes for name in entering)),
        "out": math.log2(1 + sum(graph.tensors[name].nbytes for name in leaving)),
        "constant": math.log2(1 + constant_bytes(graph, nodes)),
        "inputs": float(len(entering)),
    }
    for index in members(nodes):
        node = graph.nodes[index]
        kind = f"op {node.op_type}"
        found[kind] = found.get(kind, 0.0) + 1.0
        if node.op_type in HEAVY:
            made, weights = (graph.tensors[name].shape for name in (node.outputs[0], node.inputs[1]))
            found["channels"] = math.log2(max(made[1], 1)) if len(made) > 1 else 0.0
            found["image"] = math.log2(max(math.prod(made[2:]), 1))
            found["kernel"] = math.log2(max(math.prod(weights[2:]), 1))
            found["stride"] = float(sum(node.attributes.get("strides", ())))
            found["groups"] = math.log2(max(int(node.attributes.get("group", 1)), 1))
    return found
