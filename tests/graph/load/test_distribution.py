"""The few shapes that stand for a distribution of shapes, and how far the expected latency is off with them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from collage_evo.graph.load.distribution import Distribution, elements, representatives
from collage_evo.graph.load.open_shapes import Shapes

COUNT = 60
LENGTHS = {"queries": (16, 0.6), "sentences": (32, 0.7), "texts": (85, 0.9), "lines": (24, 0.35)}
"""Median and standard deviation of the logarithm."""


def lengths(kind: str, seed: int, count: int = COUNT) -> Distribution:
    """The distribution of the lengths of ``count`` samples, 4 to 512, of an encoder's two inputs."""
    median, deviation = LENGTHS[kind]
    drawn = np.exp(np.random.default_rng(seed).normal(np.log(median), deviation, count))
    sizes = np.clip(np.rint(drawn), 4, 512).astype(int).tolist()
    return Distribution.of([{"ids": [1, size], "mask": [1, size]} for size in sizes])


def latency(affine: float, quadratic: float) -> Callable[[Shapes], float]:
    """Milliseconds of an encoder: a constant, a part in proportion to the length, and that of attention."""
    return lambda shapes: 0.5 + affine * shapes["ids"][1] + quadratic * shapes["ids"][1] ** 2


def stepped(kind: str) -> Callable[[Shapes], float]:
    """Milliseconds of a library with another kernel for short inputs."""
    short = 0.7 * LENGTHS[kind][0]
    return lambda shapes: 0.5 + shapes["ids"][1] * (0.14 if shapes["ids"][1] < short else 0.2)


COSTS = {"affine": latency(0.2, 0), "little attention": latency(0.2, 4e-5), "much": latency(0.2, 6e-4)}


def test_a_distribution_counts_distinct_shapes() -> None:
    found = Distribution.of([{"x": [1, 5]}, {"x": (1, 3)}, {"x": [1, 5]}])
    assert found == Distribution(({"x": [1, 5]}, {"x": [1, 3]}), (2, 1))
    assert found.expected(elements) == pytest.approx(13 / 3)
    assert elements({"x": [2, 3], "scalar": []}) == 7


def test_representatives_are_the_middle_of_three_quarters_and_one_that_is_far_enough_above_the_mean() -> None:
    shapes, counts = tuple({"x": [n]} for n in (70, 20, 10, 30, 1000, 40)), (1, 2, 2, 2, 0, 1)
    found = representatives(shapes, counts)
    assert [shapes[one.place]["x"][0] for one in found] == [10, 20, 30, 70]
    every = tuple({"x": [n]} for n in range(1, 101))
    found = representatives(every, (1,) * 100)
    assert [every[one.place]["x"][0] for one in found] == [13, 38, 63, 84]
    assert [one.weight for one in found] == pytest.approx([0.25] * 4, abs=0.1), "each stands for about a quarter"


@pytest.mark.parametrize("kind", LENGTHS)
@pytest.mark.parametrize("seed", range(10))
def test_weights_are_positive_and_add_up_and_the_expected_cost_is_right(kind: str, seed: int) -> None:
    given = lengths(kind, seed)
    found = representatives(given.shapes, given.counts)
    assert 2 <= len(found) <= 4
    assert all(one.weight > 0 for one in found)
    assert sum(one.weight for one in found) == pytest.approx(1)
    mean = sum(one.weight * elements(given.shapes[one.place]) for one in found)
    assert mean == pytest.approx(given.expected(elements), rel=1e-5)
    squares = sum(one.weight * elements(given.shapes[one.place]) ** 2 for one in found)
    assert squares == pytest.approx(given.expected(lambda shapes: elements(shapes) ** 2), rel=0.02)
    costs = [elements(given.shapes[one.place]) for one in found]
    assert costs == sorted(costs)
    assert sum(costs) < 12 * given.expected(elements), "timing them takes not much longer than the expected run"


@pytest.mark.parametrize("counts", [(5000, 1, 1, 1), (1, 1, 1, 5000), (1, 5000, 1, 2)])
def test_also_where_one_shape_takes_nearly_all_of_the_time(counts: tuple[int, ...]) -> None:
    shapes = tuple({"x": [n]} for n in (1, 8, 64, 512))
    found = representatives(shapes, counts)
    assert int(np.argmax(counts)) in {one.place for one in found}
    mean = sum(one.weight * elements(shapes[one.place]) for one in found)
    assert mean == pytest.approx(Distribution(shapes, counts).expected(elements), rel=1e-4)


def test_a_long_sample_among_many_short_ones_does_not_stand_alone() -> None:
    shapes, counts = ({"x": [1]}, {"x": [10**6]}), (1000, 1)
    found = representatives(shapes, counts)
    assert {one.place: one.weight for one in found} == pytest.approx({0: 1000 / 1001, 1: 1 / 1001})


def test_one_shape_is_its_own_representative() -> None:
    assert representatives(({"x": [7]},), (60,)) == ((0, 1.0),)
    assert representatives(({"x": [0]},), (60,)) == ((0, 1.0),)
    assert [one.weight for one in representatives(({"x": [7]}, {"x": [9]}), (3, 1))] == pytest.approx([0.75, 0.25])


def test_a_measured_cost_takes_the_place_of_the_elements() -> None:
    given = lengths("texts", 0)
    cost = stepped("texts")
    found = representatives(given.shapes, given.counts, cost)
    mean = sum(one.weight * cost(given.shapes[one.place]) for one in found)
    assert mean == pytest.approx(given.expected(cost), rel=1e-5)


def error(kind: str, cost: Callable[[Shapes], float]) -> float:
    """Mean relative error of the expected latency, where representatives are chosen by the number of elements."""
    found = []
    for seed in range(20):
        given = lengths(kind, seed)
        chosen = representatives(given.shapes, given.counts)
        mean = sum(one.weight * cost(given.shapes[one.place]) for one in chosen)
        found.append(abs(mean / given.expected(cost) - 1))
    return float(np.mean(found))


@pytest.mark.parametrize("kind", LENGTHS)
def test_the_expected_latency_of_a_transformer_is_right_without_a_measurement(kind: str) -> None:
    for cost in COSTS.values():
        assert error(kind, cost) < 0.001
    assert error(kind, stepped(kind)) < 0.03, "another kernel for short inputs"


def test_of_few_samples_the_expected_cost_is_right_too() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        sizes = np.unique(np.rint(np.exp(rng.normal(4, rng.uniform(0.1, 2.5), rng.integers(1, 12)))).astype(int) + 1)
        given = Distribution(
            tuple({"x": [int(size)]} for size in sizes), tuple(rng.integers(1, 5, len(sizes)).tolist())
        )
        found = representatives(given.shapes, given.counts)
        mean = sum(one.weight * elements(given.shapes[one.place]) for one in found)
        assert mean == pytest.approx(given.expected(elements), rel=1e-4)
