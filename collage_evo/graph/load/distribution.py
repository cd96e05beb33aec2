"""Distribution of a run's input shapes, and the few shapes that stand for it when latency is measured."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from collage_evo.graph.load.open_shapes import Shapes

Cost = Callable[[Shapes], float]
"""What a run on inputs of these shapes costs, above 0: milliseconds, or what is about in proportion to them."""
THIRDS = (1 / 6, 1 / 2, 5 / 6)
"""The middle of each third of the total time."""
OWN_PARTS, CLOSE = (1.0, 0.25), 0.01
"""Parts of its own samples that a shape represents at least, and an error of the expected cost that is no reason to
take the next. Chosen."""
EXACTLY = 1e3
"""Weight of the expected cost beside that of its square, where no weights have both right. Chosen."""


@dataclass(frozen=True)
class Distribution:
    """Distinct input shapes in the order of their first appearance, and how many samples have each."""

    shapes: tuple[Shapes, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, samples: Iterable[Mapping[str, Sequence[int]]]) -> Distribution:
        """That of the shapes of ``samples``."""
        found = Counter(tuple((name, tuple(shape)) for name, shape in one.items()) for one in samples)
        return cls(tuple({name: list(shape) for name, shape in one} for one in found), tuple(found.values()))

    def expected(self, cost: Cost) -> float:
        """The mean of ``cost`` over the samples."""
        return float(np.average([cost(one) for one in self.shapes], weights=self.counts))


class Representative(NamedTuple):
    """One of the shapes that stand for a distribution, by its ``place`` among the distinct shapes; weights add up
    to 1."""

    place: int
    weight: float


def elements(shapes: Mapping[str, Sequence[int]]) -> float:
    """Number of elements of all inputs: a cost that is known before anything is measured."""
    return float(sum(math.prod(shape) for shape in shapes.values()))


def representatives(
    shapes: Sequence[Shapes], counts: Sequence[int], cost: Cost = elements
) -> tuple[Representative, ...]:
    """Up to four shapes, the costliest last, whose weighted mean of a latency is the expected latency.

    By where the time goes: shapes are sorted by ``cost``, the total time of all samples is cut into thirds, and the
    sample in the middle of each by time represents it; the longest is the fourth. If even the first of them costs
    more than the expected cost, the next one below that takes its place.

    Each represents its own samples, and the weights of the other samples are distributed so that the expected cost
    and the expected square of the cost are those of the distribution (of few samples, where that is impossible, each
    represents a part of its own; non-negative least squares: Lawson and Hanson,
    Solving Least Squares Problems, 1974), as in a quadrature rule. So the expected latency is right, but for
    rounding, whenever latency is a quadratic function of ``cost``, as for a transformer by its length: on log-normal
    lengths of 60 samples it is within 0.3 % on average. It is further off if the latency has a step, as in a library
    with another kernel for short inputs (3 %). The longest shape, timed as often as the others, takes most of the
    time of measuring.
    """
    costs, shares = np.array([cost(one) for one in shapes]), np.array(counts) / sum(counts)
    order = np.argsort(costs, kind="stable")
    time = np.cumsum((costs * shares)[order])
    middle = [int(order[np.searchsorted(time, third * time[-1])]) for third in THIRDS]
    if costs[middle[0]] > time[-1]:
        middle[0] = int(order[np.searchsorted(costs[order], time[-1]) - 1])
    chosen = list(dict.fromkeys((*middle, int(order[-1]))))
    scaled = costs / time[-1]
    weights = np.zeros(len(chosen))
    for part in OWN_PARTS:
        rest = shares.copy()
        rest[chosen] *= 1 - part
        weights = part * shares[chosen] + _distributed(scaled[chosen], rest, scaled)
        if abs(weights @ scaled[chosen] - 1) < CLOSE:
            break
    return tuple(
        Representative(place, float(weight / weights.sum())) for place, weight in zip(chosen, weights, strict=True)
    )


def _distributed(costs: np.ndarray, shares: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Weights of ``costs``, none negative, that add up to ``shares`` and have the mean and the mean square of
    ``others``, as near as there are any."""
    from scipy.optimize import nnls

    rows = np.array([np.full(len(costs), EXACTLY), EXACTLY * costs, costs**2])
    wanted = np.array([EXACTLY * shares.sum(), EXACTLY * shares @ others, shares @ others**2])
    return np.asarray(nnls(rows, wanted)[0])
