"""Noise is how far rounding moves what stays finite, and the share of the elements that become other numbers."""

from __future__ import annotations

import numpy as np
import pytest

from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.noise import RANDOM, Noise, differing, noise_of
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.graph.reference.rounding import Moved
from tests.support.models import parse_graph

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("actual", "expected", "share"),
    [
        ([8, 3, 2, 1], [8, 3, 1, 2], 0.5),
        ([1000.0, 4.0, 5.0, 0.0], [1000.0, 5.0, 4.0, 0.0], 0.5),
        ([1000.4, 4.6, 7.5, 0.0], [1000.5, 5.5, 4.5, 0.0], 0.25),
        ([INF, NAN, -INF, 1.0], [INF, NAN, INF, 1.0], 0.25),
        ([True, False], [True, True], 0.5),
        (["a", "b"], ["a", "c"], 0.5),
        ([1.0, 2.0], [1.0, 2.0, 3.0], 0.0),
    ],
)
def test_other_numbers_are_counted(actual: list[object], expected: list[object], share: float) -> None:
    assert differing(np.array(actual), np.array(expected)) == share
    assert differing([np.array(actual)], [np.array(expected)]) == share


def test_what_overflows_is_left_out_of_the_error() -> None:
    expected = np.array([60000.0, 100.0, INF], np.float16)
    assert noise_of(np.array([INF, 100.0, INF], np.float16), expected) == Noise(0.0, 0.0, overflows=True)
    assert noise_of(np.array([60000.0, 200.0, INF], np.float16), expected).error > 1e-3


def test_a_number_that_an_operator_selects_is_the_one_that_it_selects_from() -> None:
    model = parse_graph("""g (float[1, 1, 16, 16] x) => (bool[1, 1, 16, 16] peaks, bool[1, 1, 16, 16] most) {
        s = Sigmoid(x)
        m = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(s)
        peaks = Equal(s, m)
        r = ReduceMax<axes = [2, 3]>(s)
        most = Equal(s, r)
    }""")
    feeds = random_inputs(model, seed=1)
    expected = dict(zip(("peaks", "most"), reference_outputs(model, feeds), strict=True))
    assert all(value.any() for value in expected.values())
    assert Moved(model, 1, None).noise(feeds, expected) == dict.fromkeys(expected, Noise())


def test_a_shape_that_rounding_decides_excuses_another_shape_but_no_other_numbers() -> None:
    noise = noise_of(np.array([1, 2, 3]), np.array([1, 2])) | noise_of(np.array([1, 2]), np.array([1, 3]))
    assert noise.allowed.explains(INF)
    assert noise.share == 0.5
    assert RANDOM.allowed == RANDOM
