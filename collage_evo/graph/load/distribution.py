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
QUANTILES = (1 / 8, 3 / 8, 5 / 8)
"""The middle of each quarter of the samples but the last, by cost."""
BEYOND = 1.5
"""How far above the mean the last representative costs, as a multiple of what the variance needs at least: at 1 the
ones between would have no weight, at 3 the last one takes most of the time of measuring. Chosen."""
EXACTLY, NEARLY, LIKE = 1e4, 30.0, 0.03
"""Weights of the expected cost, of that of its square, and of what each stands for by itself. Chosen: the first two
are met wherever they can be."""


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
    return max(1.0, float(sum(math.prod(shape) for shape in shapes.values())))


def representatives(
    shapes: Sequence[Shapes], counts: Sequence[int], cost: Cost = elements
) -> tuple[Representative, ...]:
    """Up to four shapes, by ``cost``, whose weighted mean of a latency is the expected latency of all samples.

    They are those in the middle of each of the first three quarters of the samples, and the cheapest one that is far
    enough above the mean for the weights to exist, or else the costliest. Weights are those of the samples that are
    nearest to each, changed so that the expected cost and the expected square of the cost are right (non-negative
    least squares: Lawson and Hanson, Solving Least Squares Problems, 1974), as in a quadrature rule. So the expected
    latency is right whenever latency is a quadratic function of ``cost``, as that of a transformer is of its length.
    Where it has a step, as in a library with another kernel for short inputs, it is 1 to 4 % off (a step of 30 %).

    Timing each of them once takes 4 to 5 times as long as the expected run on log-normal lengths, 7 where a few
    lengths are ten times the others. With the middle of each third of the total time, and the costliest, it was 5 to
    8, and 17: most of it for shapes of little weight, so that noise had twice the variance in the same time, with
    errors of 2 to 6 % at a step. A plain mean over four samples of equal strata was 0.2 to 1.2 % off without a step.
    On four trained networks in ONNX Runtime (60 samples each) the expected latency was 0.5 to 3.2 % off, and 1.8 to
    4.6 % with the thirds. With the longest sample as the last of the four, latencies a + b n + c n^2 of these samples
    have no bias either, but in the same time of measuring the estimate has a standard deviation that is 6 to 18 %
    larger on three of the networks, and 60 to 75 % on sentences of which one is much longer than the others. The
    final comparison times the longest by itself (``run/stages/sizes.py``).
    """
    costs, shares = np.array([float(cost(one)) for one in shapes]), np.array(counts) / sum(counts)
    costs /= costs @ shares
    order = np.argsort(costs, kind="stable")
    low, *between = order[np.searchsorted(shares[order].cumsum(), QUANTILES)]
    low = low if costs[low] < 1 else order[0]
    enough = 1 + BEYOND * (shares @ costs**2 - 1) / max(1 - costs[low], 1e-9)
    last = order[min(np.searchsorted(costs[order], max(enough, costs[between[-1]])), len(order) - 1)]
    chosen = sorted({int(one) for one in (low, *between, last)}, key=lambda place: float(costs[place]))
    weights = _weights(costs, shares, chosen)
    return tuple(Representative(place, float(one)) for place, one in zip(chosen, weights, strict=True) if one > 0)


def _weights(costs: np.ndarray, shares: np.ndarray, chosen: Sequence[int]) -> np.ndarray:
    """Weights of the ``chosen`` ones of ``costs``, in their order, whose mean is 1 over all ``shares``."""
    from scipy.optimize import nnls  # half a second, which worker processes need not

    own = costs[chosen]
    nearest = np.searchsorted((own[1:] + own[:-1]) / 2, costs)
    near = np.bincount(nearest, shares, len(chosen))
    like = LIKE / np.sqrt(np.maximum(near, 1e-6))
    squares = NEARLY / own[-1]
    rows = np.vstack([np.full(len(own), EXACTLY), EXACTLY * own, squares * own**2, np.diag(like)])
    wanted = np.concatenate([[EXACTLY, EXACTLY, squares * shares @ costs**2], like * near])
    weights = nnls(rows, wanted)[0]
    return np.asarray(weights / weights.sum())
