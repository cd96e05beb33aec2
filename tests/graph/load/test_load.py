"""What load_model accepts, and the one line it says about what it does not."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from collage_evo.errors import InputError
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.load import load
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.load.load import ModelFile, load_model
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.hardware.memory import PeakMemory
from collage_evo.models.builder import Builder
from tests.support.models import parse_graph, tiny_convnet


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    onnx.save(tiny_convnet(), path)
    return path


def sizes_of(value: onnx.ValueInfoProto) -> list[int]:
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


def dynamic_model(path: Path, *, first: list[int | str], second: list[int | str] | None = None) -> Path:
    net = Builder("dynamic")
    x = net.input("image", first)
    if second is not None:
        x = net.op("Add", x, net.input("shift", second))
    onnx.save(net.model(net.op("Relu", x, output="y")), path)
    return path


def refusal(source: Path | str, shapes: dict[str, list[int]] | None = None) -> str:
    with pytest.raises(InputError) as caught:
        load_model(str(source), shapes)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_static_model_is_loaded_untouched(saved: Path) -> None:
    loaded = load_model(str(saved))
    assert (loaded.name, loaded.source) == ("net", str(saved))
    assert loaded.original == tiny_convnet()


def test_a_missing_file_and_a_directory_are_named(tmp_path: Path) -> None:
    assert f"no model file {tmp_path / 'none.onnx'}" in refusal(tmp_path / "none.onnx")
    assert "is a directory" in refusal(tmp_path)


ODD_RECORDS = [
    *(("offset", "-1"), ("offset", "999999999"), ("length", "-5"), ("length", "999999999")),
    *(("offset", "a"), ("length", ""), ("length", "1e3"), ("location", "w" * 999), ("location", "")),
]


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize(("key", "value"), ODD_RECORDS)
def test_no_record_reads_beyond_the_weights(tmp_path: Path, key: str, value: str, linked: bool) -> None:
    path = tmp_path / "net.onnx"
    weights = save_with_external_weights(path)
    if linked:
        os.link(weights, tmp_path / "another name")
    model = onnx.load(path, load_external_data=False)
    record = {entry.key: entry for entry in model.graph.initializer[0].external_data}
    record[key].value = value
    path.write_bytes(model.SerializeToString())
    assert str(path) in refusal(path)


def test_missing_and_short_external_weights_are_named(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    weights = save_with_external_weights(path)
    os.truncate(weights, 100)
    assert refusal(path)
    weights.unlink()
    assert f"'net.weights', which is not there: put that file into {tmp_path}" in refusal(path)


def test_a_weight_of_an_unknown_type_or_of_the_wrong_size_is_refused(tmp_path: Path) -> None:
    for name, value, words in (("data_type", 99, "net.onnx is damaged"), ("raw_data", b"1234", "weight 'const_0'")):
        model = tiny_convnet()
        setattr(model.graph.initializer[0], name, value)
        onnx.save(model, tmp_path / "net.onnx")
        assert words in refusal(tmp_path / "net.onnx")


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n" * 20, b"hello, this is text\n"])
def test_other_files_are_not_onnx(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.onnx"
    path.write_bytes(content)
    assert "is not an ONNX model" in refusal(path)


def test_a_file_of_onnx_runtimes_own_format_is_named(tmp_path: Path) -> None:
    for name in ("net.ort", "net.onnx"):
        (tmp_path / name).write_bytes(b"\x18\0\0\0ORTM" + bytes(64))
        assert "is in ONNX Runtime's own format: give the .onnx file" in refusal(tmp_path / name)


DENSE = np.array([[0, 2, 0], [0, 0, 3]], np.float32)


def sparse(name: str, coordinates: bool) -> onnx.SparseTensorProto:
    places = np.argwhere(DENSE) if coordinates else np.flatnonzero(DENSE)
    values = numpy_helper.from_array(DENSE[DENSE != 0], name)
    return helper.make_sparse_tensor(values, numpy_helper.from_array(places), DENSE.shape)


@pytest.mark.parametrize("coordinates", [False, True])
def test_sparse_constants_are_dense_wherever_they_are(tmp_path: Path, coordinates: bool) -> None:
    model = parse_graph(
        "g (float[2, 3] x, bool c) => (float[2, 3] y, float[2, 3] z) { a = Add(x, w) b = own.f(a) "
        "y = If(c)<then_branch=t () => (float[2, 3] p) { p = Neg(b) }, "
        "else_branch=e () => (float[2, 3] q) { q = Abs(b) }> z = Identity(b) }"
    )
    model.opset_import.append(helper.make_opsetid("own", 1))
    constant = helper.make_node("Constant", [], ["k"], sparse_value=sparse("", coordinates))
    added = helper.make_node("Add", ["a", "k"], ["b"])
    model.functions.append(
        helper.make_function("own", "f", ["a"], ["b"], [constant, added], list(model.opset_import[:1]))
    )
    branch = next(node for node in model.graph.node if node.op_type == "If").attribute[0].g
    branch.node[0].input[0] = "s"
    branch.node.insert(0, helper.make_node("Add", ["b", "k2"], ["s"]))
    branch.node.insert(0, helper.make_node("Constant", [], ["k2"], sparse_value=sparse("", coordinates)))
    model.graph.sparse_initializer.append(sparse("w", coordinates))
    onnx.save(model, tmp_path / "net.onnx")
    loaded = load_model(str(tmp_path / "net.onnx")).original
    assert "sparse" not in str(loaded)
    feeds = {"x": np.zeros((2, 3), np.float32), "c": np.array(True)}
    y, z = reference_outputs(loaded, feeds)
    np.testing.assert_array_equal(z, 2 * DENSE)
    np.testing.assert_array_equal(y, -3 * DENSE)


def test_external_weights_of_a_function_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = parse_graph("g (float[2, 3] x) => (float[2, 3] y) { y = own.f(x) }")
    model.opset_import.append(helper.make_opsetid("own", 1))
    weight = onnx.TensorProto(dims=DENSE.shape, data_type=TensorProto.FLOAT)
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="net.weights")
    (tmp_path / "net.weights").write_bytes(DENSE.tobytes())
    nodes = [helper.make_node("Constant", [], ["k"], value=weight), helper.make_node("Add", ["a", "k"], ["b"])]
    model.functions.append(helper.make_function("own", "f", ["a"], ["b"], nodes, list(model.opset_import[:1])))
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (made,) = reference_outputs(load_model("../net.onnx").original, {"x": np.zeros((2, 3), np.float32)})
    np.testing.assert_array_equal(made, DENSE)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_a_truncated_file_is_refused(saved: Path, share: float) -> None:
    content = saved.read_bytes()
    saved.write_bytes(content[: int(len(content) * share)])
    assert "download it again" in refusal(saved)


def save_with_external_weights(path: Path) -> Path:
    onnx.save(tiny_convnet(), path, save_as_external_data=True, location="net.weights", size_threshold=0)
    return path.parent / "net.weights"


@pytest.mark.parametrize("name", ["net.onnx", "net.weights"])
def test_a_model_that_is_written_while_it_is_read_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "net.onnx"
    save_with_external_weights(path)
    file = ModelFile(str(path))
    assert file.declared.graph.node
    with (tmp_path / name).open("r+b") as other:  # in place, of the same size
        content = other.read()
        other.seek(0)
        other.write(content)
    with pytest.raises(InputError, match=f"{name} was written while it was read: start again"):
        file.load()


def test_a_model_that_was_read_whole_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    weights = save_with_external_weights(path)
    file = ModelFile(str(path))
    before = file.load().original
    weights.unlink()
    assert file.load().original == before


def test_external_weights_are_read_once_where_sizes_are_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read, reads = tmp_path / "net.onnx", list[str](), load._read_outside
    model = tiny_convnet()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, path, save_as_external_data=True, location="net.weights", size_threshold=0)

    def read_outside(tensor: onnx.TensorProto, file: Path) -> None:
        read.append(tensor.name)
        reads(tensor, file)

    monkeypatch.setattr(load, "_read_outside", read_outside)
    loaded = load.load_model(str(path))
    assert loaded.dynamic is not None
    assert sorted(read) == sorted(weight.name for weight in model.graph.initializer)


def test_external_weights_are_read_in(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    weights = save_with_external_weights(path)
    loaded = load_model(str(path)).original
    weights.unlink()
    feeds = random_inputs(loaded, 0)
    np.testing.assert_array_equal(reference_outputs(loaded, feeds)[0], reference_outputs(tiny_convnet(), feeds)[0])


def test_no_more_than_a_few_large_weights_are_in_memory_at_once(tmp_path: Path) -> None:
    count, width = 12, 2_500_000
    nodes = [helper.make_node("Add", [f"x{k}" if k else "x", f"w{k}"], [f"x{k + 1}"]) for k in range(count)]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
            for name, dims in (("x", [1]), (f"x{count}", [width])))  # fmt: skip
    model = helper.make_model(helper.make_graph(nodes, "sums", [x], [y]), ir_version=10)
    with (tmp_path / "net.weights").open("wb") as file:
        for k in range(count):
            outside = TensorProto(name=f"w{k}", data_type=TensorProto.FLOAT, dims=[width])
            outside.data_location = TensorProto.EXTERNAL
            for key, value in (("location", "net.weights"), ("offset", file.tell()), ("length", 4 * width)):
                outside.external_data.add(key=key, value=str(value))
            model.graph.initializer.append(outside)
            file.write(np.full(width, k, np.float32).tobytes())
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    gc.collect()
    peak = PeakMemory()
    loaded = load_model(str(path)).original
    assert peak.bytes < 4 * 4 * width
    sums = reference_outputs(loaded, {"x": np.ones(1, np.float32)})[0]
    np.testing.assert_array_equal(sums, np.full(width, 1 + sum(range(count))))


def test_a_download_caches_links_to_a_model_and_its_weights_are_followed(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    for folder in (blobs, snapshot):
        folder.mkdir(parents=True)
    weights = save_with_external_weights(blobs / "c0ffee")
    weights.rename(blobs / "decaf")
    (snapshot / "net.onnx").symlink_to("../../blobs/c0ffee")
    (snapshot / weights.name).symlink_to("../../blobs/decaf")
    loaded = load_model(str(snapshot / "net.onnx"))
    assert loaded.original.graph.initializer[0].raw_data == tiny_convnet().graph.initializer[0].raw_data

    (snapshot / weights.name).unlink()
    (blobs / "decaf").rename(tmp_path / "elsewhere")
    (snapshot / weights.name).symlink_to(tmp_path / "elsewhere")
    assert "is damaged" in refusal(snapshot / "net.onnx")


def test_weights_with_several_names_are_read_as_others_are(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    weights = save_with_external_weights(path)
    os.link(weights, tmp_path / "in a content store")
    loaded = load_model(str(path)).original
    assert [w.raw_data for w in loaded.graph.initializer] == [w.raw_data for w in tiny_convnet().graph.initializer]
    os.truncate(weights, 100)
    assert f"which has {100} bytes" in refusal(path)
    weights.unlink()
    weights.symlink_to("/etc/hostname")
    assert "is damaged" in refusal(path)


def test_dynamic_dimensions_are_listed_with_the_way_to_fix_them(tmp_path: Path) -> None:
    path = dynamic_model(tmp_path / "d.onnx", first=["batch", 3, "h", "w"])
    message = refusal(path)
    assert "'image' [batch, 3, h, w]" in message
    assert "model.shapes: {image: [1, 3, 224, 224]}" in message
    assert "--shapes 'image: [1, 3, 224, 224]'" in message


def test_unnamed_and_zero_dimensions_are_dynamic(tmp_path: Path) -> None:
    model = tiny_convnet()
    model.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 0
    onnx.save(model, tmp_path / "d.onnx")
    assert "'x' [?, 3, ?, 16]" in refusal(tmp_path / "d.onnx")


def test_shapes_fix_dynamic_dimensions_throughout(tmp_path: Path) -> None:
    path = dynamic_model(tmp_path / "d.onnx", first=["batch", 3], second=["batch", 3])
    loaded = load_model(str(path), {"image": [2, 3]}).original
    graph = build_graph(normalise(loaded))
    assert graph.tensors["shift"].shape == (2, 3)
    assert graph.tensors["y"].shape == (2, 3)


def test_an_input_of_unknown_rank_takes_any_shape(tmp_path: Path) -> None:
    model = parse_graph("g (float x) => (float y) { y = Relu(x) }")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.ClearField("shape")
    onnx.save(model, tmp_path / "d.onnx")
    assert "[unknown rank]" in refusal(tmp_path / "d.onnx")
    loaded = load_model(str(tmp_path / "d.onnx"), {"x": [4, 5]}).original
    assert build_graph(normalise(loaded)).tensors["y"].shape == (4, 5)


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"imag": [1, 3, 8, 8]}, "did you mean image?"),
        ({"image": [1, 3, 8]}, "3 dimensions [1, 3, 8], but the model has 4: [batch, 3, h, w]"),
        ({"image": [1, 4, 8, 8]}, "the model has [batch, 3, h, w]"),
        ({"image": [1, 3, -1, 8]}, "whole numbers from 0 on"),
    ],
)
def test_shapes_that_contradict_the_model_are_named(tmp_path: Path, shapes: dict[str, list[int]], words: str) -> None:
    assert words in refusal(dynamic_model(tmp_path / "d.onnx", first=["batch", 3, "h", "w"]), shapes)


def test_one_name_may_stand_for_sizes_that_differ(tmp_path: Path) -> None:
    net = Builder("hint")
    y = net.op("Concat", net.input("image", ["?", 3]), net.input("shift", ["?", 3]), axis=0, output="y")
    onnx.save(net.model(y), tmp_path / "d.onnx")
    loaded = load_model(str(tmp_path / "d.onnx"), {"image": [48, 3], "shift": [192, 3]}).original
    assert [sizes_of(value) for value in loaded.graph.input] == [[48, 3], [192, 3]]


def test_an_open_batch_is_one_and_the_note_says_so(tmp_path: Path) -> None:
    loaded = load_model(str(dynamic_model(tmp_path / "d.onnx", first=["unk", 3])))
    assert sizes_of(loaded.original.graph.input[0]) == [1, 3]
    assert loaded.notes == ("the batch is 1",)
    assert loaded.dynamic is not None
    assert loaded.dynamic.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "unk"


def test_a_size_that_the_weights_force_is_found(tmp_path: Path) -> None:
    net = Builder("forced")
    x = net.input("x", ["batch", "channels", 8, 8])
    onnx.save(net.model(net.op("Conv", x, net.const(np.ones((4, 3, 3, 3), np.float32)))), tmp_path / "d.onnx")
    loaded = load_model(str(tmp_path / "d.onnx"))
    assert sizes_of(loaded.original.graph.input[0]) == [1, 3, 8, 8]
    assert "the only ones that run: x: [1, 3, 8, 8]" in loaded.notes[1]


def test_sizes_are_the_smallest_that_run_if_any_will_do(tmp_path: Path) -> None:
    net = Builder("smallest")
    x = net.input("x", ["batch", 1, "length"])
    onnx.save(net.model(net.op("Conv", x, net.const(np.ones((4, 1, 5), np.float32)))), tmp_path / "d.onnx")
    assert "dynamic dimensions" in refusal(tmp_path / "d.onnx")
    loaded = load_model(str(tmp_path / "d.onnx"), any_shapes=True)
    assert sizes_of(loaded.original.graph.input[0]) == [1, 1, 8]
    assert "smallest" in loaded.notes[1]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("builtin:resnet5", "did you mean resnet50?"),
        ("builtin:nothing", "there are: resnet50, squeezenet, mobilenet_v2, resnet3d_18, bert"),
        ("builtin:bert?layer=2", "did you mean layers?"),
        ("builtin:bert?layers=two", "layers='two'"),
        ("builtin:bert?length=600", "512"),
        ("builtin:bert?hidden=100", "heads=12"),
        ("builtin:squeezenet?size=10", "there are: none"),
    ],
)
def test_builtin_mistakes_are_explained(source: str, words: str) -> None:
    assert words in refusal(source)


def test_builtin_parameters_are_used_and_the_seed_decides_the_weights() -> None:
    source = "builtin:bert?layers=1&length=16&hidden=24&heads=2&vocabulary=100"
    first, again, other = (load_model(source, seed=seed).original for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert sizes_of(first.graph.output[0]) == [1, 16, 24]


def of_functions(bodies: list[list[onnx.NodeProto]]) -> onnx.ModelProto:
    """A model that calls the last of these functions; each may call those before it: ``f0``, ``f1``, ..."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    functions = [
        helper.make_function("own", f"f{number}", ["a"], ["c"], nodes, opsets) for number, nodes in enumerate(bodies)
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node(f"f{len(bodies) - 1}", ["x"], ["y"], domain="own")], "g", [x], [y])
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)


def twice(name: str, domain: str = "") -> list[onnx.NodeProto]:
    return [helper.make_node(name, [a], [c], domain=domain) for a, c in ("ab", "bc")]


def test_functions_that_become_millions_of_operators_are_refused_before_they_are_inlined(tmp_path: Path) -> None:
    calls = [twice(f"f{number}", "own") for number in range(24)]
    onnx.save(of_functions([twice("Relu"), *calls]), tmp_path / "bomb.onnx")
    with pytest.raises(InputError, match=r"33,554,432 operators once its functions are inlined, more than 200,000"):
        load_model(str(tmp_path / "bomb.onnx"))
    inside = helper.make_graph(twice("f0", "own"), "body", [], [helper.make_tensor_value_info("c", 1, [1])])
    branch = helper.make_node("If", ["a"], ["c"], then_branch=inside, else_branch=inside)
    calls = [twice(f"f{number}", "own") for number in range(1, 24)]
    onnx.save(of_functions([twice("Relu"), [branch], *calls]), tmp_path / "b.onnx")
    with pytest.raises(InputError, match=r"operators once its functions are inlined"):
        load_model(str(tmp_path / "b.onnx"))


def test_functions_of_an_ordinary_size_are_read_and_one_that_calls_itself_is_not(tmp_path: Path) -> None:
    onnx.save(of_functions([twice("Relu"), twice("f0", "own")]), tmp_path / "m.onnx")
    assert load_model(str(tmp_path / "m.onnx")).original.functions
    onnx.save(of_functions([twice("f0", "own")]), tmp_path / "loop.onnx")
    with pytest.raises(InputError, match=r"loop\.onnx is damaged"):
        load_model(str(tmp_path / "loop.onnx"))
