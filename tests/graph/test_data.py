"""read_feeds gives a person's own inputs by name, and says in one line what does not fit the model."""

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from collage_evo.errors import InputError
from collage_evo.graph.data import read_feeds, read_npz, write_npz
from collage_evo.graph.elements import EXTENDED
from collage_evo.models.builder import Builder

IDS = np.array([[3, 1, 4]])
SCALE = np.array([2.0], np.float32)


def model() -> onnx.ModelProto:
    """``ids`` int64 [1, n] and ``scale`` float [1] to one output."""
    net = Builder("sample")
    ids, scale = net.input("ids", (1, "n"), TensorProto.INT64), net.input("scale", (1,))
    return net.model(net.op("Mul", net.op("Cast", ids, to=TensorProto.FLOAT), scale))


def one(dtype: int, shape: tuple[int, ...] = (2,)) -> onnx.ModelProto:
    net = Builder("one")
    return net.model(net.op("Identity", net.input("x", shape, dtype)))


def save(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def save_set(folder: Path, *arrays: tuple[str, np.ndarray]) -> None:
    folder.mkdir(parents=True)
    for index, (name, array) in enumerate(arrays):
        (folder / f"input_{index}.pb").write_bytes(numpy_helper.from_array(array, name).SerializeToString())


def test_an_npz_is_one_sample_in_the_order_of_the_inputs(tmp_path: Path) -> None:
    (sample,) = read_feeds(save(tmp_path / "a.npz", scale=SCALE, ids=IDS), model())
    assert list(sample) == ["ids", "scale"]
    np.testing.assert_array_equal(sample["ids"], IDS)


def test_a_folder_gives_its_files_in_order(tmp_path: Path) -> None:
    for name, n in (("b", 2), ("a", 1)):
        save(tmp_path / f"{name}.npz", ids=np.zeros((1, n), np.int64), scale=SCALE)
    (tmp_path / "notes.txt").write_text("not data")
    assert [sample["ids"].shape for sample in read_feeds(str(tmp_path), model())] == [(1, 1), (1, 2)]


def test_onnx_test_data_goes_by_name_or_place_and_sets_by_number(tmp_path: Path) -> None:
    save_set(tmp_path / "test_data_set_10", ("", IDS), ("", SCALE))
    save_set(tmp_path / "test_data_set_2", ("scale", SCALE), ("ids", IDS[:, :1]))
    (tmp_path / "test_data_set_2" / "output_0.pb").write_bytes(b"not read")
    found = read_feeds(tmp_path, model())
    assert [sample["ids"].shape for sample in found] == [(1, 1), (1, 3)]
    (alone,) = read_feeds(tmp_path / "test_data_set_10", model())
    np.testing.assert_array_equal(alone["scale"], SCALE)


def test_a_weight_among_the_inputs_needs_no_array(tmp_path: Path) -> None:
    given = model()
    given.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [1]))
    given.graph.initializer.append(numpy_helper.from_array(SCALE, "w"))
    (sample,) = read_feeds(save(tmp_path / "a.npz", ids=IDS, scale=SCALE), given)
    assert set(sample) == {"ids", "scale"}


def test_extended_floats_and_strings_come_through_a_file(tmp_path: Path) -> None:
    half = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    (sample,) = read_feeds(save(tmp_path / "a.npz", x=half), one(TensorProto.BFLOAT16))
    np.testing.assert_array_equal(sample["x"], half)
    (sample,) = read_feeds(save(tmp_path / "b.npz", x=np.array(["a", "bc"])), one(TensorProto.STRING))
    assert sample["x"].tolist() == ["a", "bc"]


@pytest.mark.parametrize("dtype", EXTENDED)
def test_types_that_numpy_lacks_come_through_a_file_that_we_write(tmp_path: Path, dtype: str) -> None:
    given = np.array([1.0, 0.5], np.float32).astype(dtype)
    write_npz(tmp_path / "a.npz", {"x": given})
    (sample,) = read_feeds(tmp_path / "a.npz", one(EXTENDED[dtype].number))
    assert sample["x"].dtype == given.dtype
    assert sample["x"].tobytes() == given.tobytes()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"ids": IDS}, "no array 'scale': the model takes ids, scale"),
        ({"ids": IDS, "scale": SCALE, "z": SCALE}, "'z', which is no input of the model; its inputs are: ids, scale"),
        ({"ids": IDS.astype(np.int32), "scale": SCALE}, r"int32 for 'ids'; .* takes int64: .*astype\('int64'\)"),
        ({"ids": np.zeros((2, 3), np.int64), "scale": SCALE}, r"'ids' of shape \[2, 3\]; the model takes \[1, \?\]"),
        ({"ids": IDS[0], "scale": SCALE}, r"'ids' of shape \[3\]"),
    ],
)
def test_what_does_not_fit_the_model_is_named(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        read_feeds(save(tmp_path / "a.npz", **arrays), model())
    assert "a.npz" in str(refused.value)


def test_what_cannot_be_read_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no archive")
    (tmp_path / "cut.npz").write_bytes(save(tmp_path / "whole.npz", ids=IDS, scale=SCALE).read_bytes()[:100])
    np.savez(tmp_path / "objects.npz", ids=np.array([{"a": 1}], object))
    np.save(tmp_path / "single.npy", IDS)
    (tmp_path / "empty").mkdir()
    save_set(tmp_path / "wrong", ("", IDS), ("", SCALE), ("", SCALE))
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "input_0.pb").write_bytes(b"\xff\xff not a tensor")
    for name, word in (
        ("text.npz", "as .npz"),
        ("cut.npz", "as .npz"),
        ("objects.npz", "as .npz"),
        ("single.npy", "without a name"),
        ("empty", "holds no data"),
        ("absent", "no data"),
        ("wrong", "for no input"),
        ("damaged", "as a tensor"),
    ):
        with pytest.raises(InputError, match=word) as refused:
            read_feeds(tmp_path / name, model())
        assert name in str(refused.value)
        assert "\n" not in str(refused.value)


def test_what_is_written_is_read_whatever_the_names(tmp_path: Path) -> None:
    arrays = {"file": IDS, "images/in:0": SCALE, "": np.array(["a"], object), "none": np.zeros((0, 2), np.int8)}
    write_npz(tmp_path / "a.npz", arrays)
    found = read_npz(tmp_path / "a.npz")
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
    with pytest.raises(InputError, match="'x' holds Python objects"):
        write_npz(tmp_path / "b.npz", {"x": np.array([{}], object)})
