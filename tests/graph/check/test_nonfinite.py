"""NaN and infinity are put into inputs, and missed where outputs do not have them."""

import ml_dtypes
import numpy as np
import pytest

from collage_evo.graph.check.nonfinite import ALL_NAN, FIRST_NAN, KINDS, LAST_NAN, lost, spoiled

X = np.ones((2, 3), np.float32)


def test_every_array_of_floats_gets_one_of_each_kind() -> None:
    found = spoiled({"x": X, "k": np.ones(3, np.int64), "none": np.ones(0, np.float32), "z": X})
    assert list(found) == [*KINDS, FIRST_NAN, LAST_NAN, ALL_NAN]
    for kind, feeds in found.items():
        x, z = (~np.isfinite(feeds[name]) for name in "xz")
        assert np.count_nonzero(x) == np.count_nonzero(z) == (X.size if kind == ALL_NAN else 1)
        assert kind == ALL_NAN or not (x & z).any(), "an operator on both meets a number and what is none"
        assert (feeds["k"] == 1).all()
    assert np.isnan(found[FIRST_NAN]["x"].flat[0])
    assert np.isnan(found[LAST_NAN]["x"].flat[-1])
    assert np.isfinite(X).all(), "the person's own stays as it was"


def test_floats_that_numpy_lacks_are_floats() -> None:
    x = X.astype(ml_dtypes.bfloat16)
    found = spoiled({"x": x})
    assert list(found) == [*KINDS, FIRST_NAN, LAST_NAN, ALL_NAN]
    assert lost([x], [found["NaN"]["x"]])
    assert not lost([found["NaN"]["x"]], [found["NaN"]["x"]])


def test_where_there_are_no_floats_there_is_nothing_to_lose() -> None:
    assert spoiled({"k": np.ones(3, np.int64)}) == {}


@pytest.mark.parametrize("number", KINDS.values())
def test_what_is_elsewhere_or_of_another_kind_is_lost(number: float) -> None:
    expected = np.array([1.0, number, 3.0], np.float32)
    assert not lost([np.array([9.0, number, 3.0], np.float32)], [expected])
    for other in (
        [1.0, 2.0, 3.0], [number, 1.0, 3.0], [1.0, number, number], [1.0, np.nan if number == np.inf else np.inf, 3.0]
    ):
        assert lost([np.array(other, np.float32)], [expected])


def test_truth_values_are_compared_and_whole_numbers_are_not() -> None:
    assert lost([np.array([True])], [np.array([False])])
    assert not lost([np.array([1])], [np.array([2])])
