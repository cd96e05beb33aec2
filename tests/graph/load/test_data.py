"""read_feeds gives a person's own inputs by name, and says in one line what does not fit the model."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from collage_evo.errors import InputError
from collage_evo.graph.ir.elements import EXTENDED
from collage_evo.graph.load.data import MOST, read_feeds, read_npz, write_npz
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


@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_data_that_are_written_while_they_are_read_are_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = {"ids": IDS, "scale": SCALE}
    if kind == "npz":
        save(tmp_path / "0.npz", **arrays)
    else:
        for name, array in arrays.items():
            np.save(tmp_path / f"{name}.npy", array)
    load = np.load

    def loaded(file: Path, *given: Any, **named: Any) -> Any:
        value = load(file, *given, **named)
        file.write_bytes(file.read_bytes())
        return value

    monkeypatch.setattr(np, "load", loaded)
    with pytest.raises(InputError, match="was written while it was read"):
        read_feeds(tmp_path, model())


def test_onnx_test_data_goes_by_name_or_place_and_sets_by_number(tmp_path: Path) -> None:
    save_set(tmp_path / "test_data_set_10", ("", IDS), ("", SCALE))
    save_set(tmp_path / "test_data_set_2", ("scale", SCALE), ("ids", IDS[:, :1]))
    (tmp_path / "test_data_set_2" / "output_0.pb").write_bytes(b"not read")
    assert [sample["ids"].shape for sample in read_feeds(tmp_path, model())] == [(1, 1), (1, 3)]
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
        ({"ids": np.zeros((2, 3, 1), np.int64), "scale": SCALE}, r"shape \[2, 3, 1\]; the model takes \[1, \?\]"),
        ({"ids": IDS[0], "scale": SCALE}, r"'ids' of shape \[3\]"),
        ({"ids": np.zeros((4, 3), np.int64), "scale": np.ones(3, np.float32)}, "4 samples of 'ids' and 3 of 'scale'"),
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
    np.savez_compressed(tmp_path / "squeezed.npz", ids=np.arange(1000), scale=SCALE)
    squeezed = (tmp_path / "squeezed.npz").read_bytes()
    (tmp_path / "squeezed.npz").write_bytes(squeezed[:60] + b"\xff" * 40 + squeezed[100:])
    np.save(tmp_path / "single.npy", IDS)
    (tmp_path / "empty").mkdir()
    save_set(tmp_path / "wrong", ("", IDS), ("", SCALE), ("", SCALE))
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "input_0.pb").write_bytes(b"\xff\xff not a tensor")
    for name, word in (
        ("text.npz", "as .npz"),
        ("cut.npz", "as .npz"),
        ("objects.npz", "as .npz"),
        ("squeezed.npz", "as .npz"),
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


def images(batch: object = 1) -> onnx.ModelProto:
    net = Builder("images")
    return net.model(net.op("Relu", net.input("x", (batch, 3))))


MANY = np.arange(24, dtype=np.float32)


@pytest.mark.parametrize(
    ("stored", "batch", "shapes", "drawn", "count"),
    [
        ((8, 3), 2, None, (2, 3), 4),
        ((4, 2, 3), 2, None, (2, 3), 4),
        ((8, 3), "n", None, (1, 3), 8),
        ((4, 2, 3), "n", None, (2, 3), 4),
        ((8, 3), "n", {"x": [2, 3]}, (2, 3), 4),
        ((8, 3), "n", {"x": [None, 3]}, (1, 3), 8),
    ],
)
def test_an_array_of_many_is_cut_into_the_batch_of_the_model_or_of_the_run(
    tmp_path: Path,
    stored: tuple[int, ...],
    batch: int | str,
    shapes: dict[str, list[int]] | None,
    drawn: tuple[int, ...],
    count: int,
) -> None:
    found = read_feeds(save(tmp_path / "a.npz", x=MANY.reshape(stored)), images(batch), shapes)
    assert [sample["x"].shape for sample in found] == [drawn] * count
    np.testing.assert_array_equal(np.concatenate([sample["x"] for sample in found]), MANY.reshape(8, 3))


def test_rows_that_fill_no_batch_are_refused_with_what_to_give(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", x=np.zeros((50, 3), np.float32))
    with pytest.raises(InputError, match=r"shape \[50, 3\]; the model takes \[4, 3\]: give a multiple of 4 rows"):
        read_feeds(path, images(4))


def pair() -> onnx.ModelProto:
    """``x`` [n, 3] and ``y`` [n, 2] to one output."""
    net = Builder("pair")
    return net.model(net.op("Concat", net.input("x", ("n", 3)), net.input("y", ("n", 2)), axis=1))


def test_rows_of_an_open_batch_are_samples_with_their_labels(tmp_path: Path) -> None:
    x, y = np.arange(12, dtype=np.float32).reshape(4, 3), np.arange(8, dtype=np.float32).reshape(4, 2)
    (tmp_path / "npy").mkdir()
    for name, array in {"x": x, "y": y, "label": np.arange(4)}.items():
        np.save(tmp_path / "npy" / f"{name}.npy", array)
    for source in (tmp_path / "npy", save(tmp_path / "a.npz", x=x, y=y, label=np.arange(4))):
        for k, sample in enumerate(read_feeds(source, pair(), labels=True)):
            assert {name: array.tolist() for name, array in sample.items()} == {
                "x": [x[k].tolist()],
                "y": [y[k].tolist()],
                "label": [k],
            }
        assert k == 3


def test_open_sizes_that_differ_are_no_batch_and_each_file_of_a_folder_is_a_sample(tmp_path: Path) -> None:
    net = Builder("edges")
    nodes, edges = net.input("nodes", ("n", 3)), net.input("edges", ("e", 3))
    graphs = net.model(net.op("MatMul", nodes, net.op("Transpose", edges, perm=[1, 0])))
    one_file = save(tmp_path / "a.npz", nodes=np.ones((5, 3), np.float32), edges=np.ones((7, 3), np.float32))
    for source in (one_file, tmp_path):
        (sample,) = read_feeds(source, graphs)
        assert (sample["nodes"].shape, sample["edges"].shape) == ((5, 3), (7, 3))
    save(tmp_path / "a.npz", x=MANY.reshape(8, 3))
    assert [sample["x"].shape for sample in read_feeds(tmp_path, images("n"))] == [(8, 3)]


def test_an_open_size_beside_a_state_or_of_a_vector_is_no_batch(tmp_path: Path) -> None:
    net = Builder("states")
    x, state = net.input("x", ("n", 5, 3)), net.input("state", (2, "n", 3))
    rnn = net.model(net.op("Add", x, net.op("ReduceSum", state, keepdims=0)))
    save(tmp_path / "a.npz", x=np.ones((4, 5, 3), np.float32), state=np.ones((2, 4, 3), np.float32))
    (sample,) = read_feeds(tmp_path / "a.npz", rnn)
    assert sample["x"].shape == (4, 5, 3)
    net = Builder("wave")
    wave = net.model(net.op("Relu", net.input("x", ("n",))))
    (sample,) = read_feeds(save(tmp_path / "b.npz", x=np.ones(16, np.float32)), wave)
    assert sample["x"].shape == (16,)


def test_no_rows_are_refused_unless_asked_for(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", x=np.zeros((0, 3), np.float32))
    with pytest.raises(InputError, match=r"a\.npz has no row of 'x' \(shape \[0, 3\]\): give one at least"):
        read_feeds(path, images("n"))
    assert read_feeds(path, images("n"), {"x": [0, 3]})[0]["x"].shape == (0, 3)


def test_an_input_may_be_empty_beside_another_that_is_not(tmp_path: Path) -> None:
    net = Builder("detections")
    image, boxes = net.input("image", ("n", 3)), net.input("boxes", ("m", 3))
    path = save(tmp_path / "a.npz", image=np.ones((1, 3), np.float32), boxes=np.ones((0, 3), np.float32))
    (sample,) = read_feeds(path, net.model(net.op("Concat", image, boxes, axis=0)))
    assert sample["boxes"].shape == (0, 3)


def test_an_array_that_fits_goes_with_every_sample(tmp_path: Path) -> None:
    found = read_feeds(save(tmp_path / "a.npz", ids=np.array([[1], [2]]), scale=SCALE), model())
    assert [(int(sample["ids"][0, 0]), float(sample["scale"][0])) for sample in found] == [(1, 2.0), (2, 2.0)]


def test_labels_are_cut_as_the_inputs_are_and_only_taken_where_asked_for(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", x=np.zeros((4, 3), np.float32), y=np.arange(4))
    found = read_feeds(path, images(batch=2), labels=True)
    assert [sample["y"].tolist() for sample in found] == [[0, 1], [2, 3]]
    with pytest.raises(InputError, match="an array 'y', which is no input of the model"):
        read_feeds(path, images())
    save(path, x=np.zeros((4, 3), np.float32), y=np.arange(3))
    with pytest.raises(InputError, match="3 of 'y', which is no input, for 4 of 'x'"):
        read_feeds(path, images(), labels=True)


def test_a_folder_may_have_a_file_for_each_input(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.zeros((2, 1, 5), np.int64))
    np.save(tmp_path / "scale.npy", SCALE)
    assert [sample["ids"].shape for sample in read_feeds(tmp_path, model())] == [(1, 5)] * 2
    np.save(tmp_path / "scale.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(InputError, match=r"scale\.npy cannot be read as \.npy"):
        read_feeds(tmp_path, model())


def function(folder: Path, body: str) -> str:
    (folder / "beside.py").write_text("SIZE = 3\n")
    (folder / "loader.py").write_text(f"import numpy as np\nfrom beside import SIZE\n\n\ndef feeds():\n    {body}\n")
    return f"{folder / 'loader.py'}:feeds"


def test_a_function_yields_samples_as_many_as_are_taken(tmp_path: Path) -> None:
    endless = function(tmp_path, "while True: yield {'x': np.zeros((1, SIZE), np.float32)}")
    assert [sample["x"].shape for sample in read_feeds(endless, images())] == [(1, 3)] * MOST


@pytest.mark.parametrize(
    ("body", "name", "message"),
    [
        ("raise KeyError('no images')", "loader.py:feeds", "raised KeyError: 'no images'"),
        ("yield [1, 2]", "loader.py:feeds", "raised TypeError: it yields list, not a mapping of arrays by"),
        ("yield {'z': 1}", "loader.py:feeds", r"loader\.py:feeds, sample 0, has an array 'z'"),
        ("yield from ()", "loader.py:feeds", "holds no data"),
        ("pass", "loader.py:other", "defines no function 'other'"),
        ("pass", "none.py:f", r"no file .*none\.py"),
    ],
)
def test_what_is_wrong_with_a_function_is_told_in_one_line(
    tmp_path: Path, body: str, name: str, message: str
) -> None:
    function(tmp_path, body)
    with pytest.raises(InputError, match=message) as refused:
        read_feeds(tmp_path / name, images())
    assert "\n" not in str(refused.value)
