"""Values of any type: kept without pickling, and compared to the bit."""

from pathlib import Path

import ml_dtypes
import numpy as np

from collage_evo.graph.ir.values import identical, read_values, save_values


def test_strings_as_python_has_them_are_kept(tmp_path: Path) -> None:
    save_values(tmp_path / "kept.npz", {"in0": {"x": np.array(["a", "some text"], object)}})
    assert read_values(tmp_path / "kept.npz")["in0"]["x"].tolist() == ["a", "some text"]


def test_a_value_is_identical_to_its_copy_whatever_it_holds() -> None:
    for dtype in (np.float32, np.complex64, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.bfloat16):
        held = np.array([1.0, np.nan], np.float32).astype(dtype)
        assert identical(held.copy(), held)
        assert not identical(np.zeros_like(held), held)
    assert identical(np.array(["a", "b"]), np.array(["a", "b"], object))
    assert not identical(np.array(["a", "b"]), np.array(["a", "c"]))


def test_lists_are_identical_item_by_item() -> None:
    assert identical([np.ones(2), [np.zeros(1)]], [np.ones(2), [np.zeros(1)]])
    assert not identical([np.ones(2)], [np.ones(2), np.ones(2)])
    assert not identical([np.ones(2)], np.ones((1, 2)))
