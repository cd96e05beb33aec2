"""What loading accepts, and the one line it says about what it does not."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from collage_evo.errors import InputError
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.load.load import ModelFile
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.hardware.memory import PeakMemory
from collage_evo.models.builder import Builder
from tests.support.models import parse_graph, tiny_convnet
from tests.support.typed import not_none


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
        ModelFile(str(source)).load(shapes)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_static_model_is_loaded_untouched(saved: Path) -> None:
    loaded = ModelFile(str(saved)).load()
    assert loaded.name == "net"
    assert loaded.original == tiny_convnet()


ORT = b"\x18\0\0\0ORTM" + bytes(64)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.onnx", None, "no model file"),
        (".", None, "is a directory"),
        ("empty.onnx", b"", "is not an ONNX model"),
        ("image.onnx", b"\x89PNG\r\n\x1a\n" * 20, "is not an ONNX model"),
        ("text.onnx", b"hello, this is text\n", "is not an ONNX model"),
        ("net.ort", ORT, "is in ONNX Runtime's own format: give the .onnx file"),
        ("net.onnx", ORT, "is in ONNX Runtime's own format: give the .onnx file"),
        *(("net.onnx", share, "download it again") for share in (0.1, 0.5, 0.9, 0.99)),
    ],
)
def test_what_is_no_model_is_refused(tmp_path: Path, name: str, content: bytes | float | None, words: str) -> None:
    """``content``: that of the file, or a share of a model's."""
    path = tmp_path / name
    if isinstance(content, float):
        whole = tiny_convnet().SerializeToString()
        content = whole[: int(len(whole) * content)]
    if content is not None:
        path.write_bytes(content)
    message = refusal(path)
    assert words in message
    assert str(path) in message


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


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [("data_type", 99, "of the type 99, which ONNX does not have"), ("raw_data", b"1234", "4 bytes instead of")],
)
def test_a_weight_of_another_type_or_size_is_refused(tmp_path: Path, field: str, value: object, words: str) -> None:
    model = tiny_convnet()
    setattr(model.graph.initializer[0], field, value)
    onnx.save(model, tmp_path / "net.onnx")
    assert words in refusal(tmp_path / "net.onnx")


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
    loaded = ModelFile(str(tmp_path / "net.onnx")).load().original
    assert "sparse" not in str(loaded)
    y, z = reference_outputs(loaded, {"x": np.zeros((2, 3), np.float32), "c": np.array(True)})
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
    (made,) = reference_outputs(ModelFile("../net.onnx").load().original, {"x": np.zeros((2, 3), np.float32)})
    np.testing.assert_array_equal(made, DENSE)


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


@pytest.mark.parametrize("batch", ["", "batch"])
def test_external_weights_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: str) -> None:
    path, read, reads = tmp_path / "net.onnx", list[str](), external_data_helper.load_external_data_for_tensor
    model = tiny_convnet()
    if batch:
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = batch
    onnx.save(model, path, save_as_external_data=True, location="net.weights", size_threshold=0)

    def read_tensor(tensor: onnx.TensorProto, folder: str) -> None:
        read.append(tensor.name)
        reads(tensor, folder)

    monkeypatch.setattr(external_data_helper, "load_external_data_for_tensor", read_tensor)
    file = ModelFile(str(path))
    loaded = file.load()
    assert (loaded.dynamic is not None) == bool(batch)
    (tmp_path / "net.weights").unlink()
    assert file.load() == loaded
    assert sorted(read) == sorted(weight.name for weight in model.graph.initializer)
    feeds = random_inputs(loaded.original, 0)
    expected = reference_outputs(tiny_convnet(), feeds)
    np.testing.assert_array_equal(reference_outputs(loaded.original, feeds)[0], expected[0])


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
    loaded = ModelFile(str(path)).load().original
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
    loaded = ModelFile(str(snapshot / "net.onnx")).load()
    assert loaded.original.graph.initializer[0].raw_data == tiny_convnet().graph.initializer[0].raw_data

    (snapshot / weights.name).unlink()
    (blobs / "decaf").rename(tmp_path / "elsewhere")
    (snapshot / weights.name).symlink_to(tmp_path / "elsewhere")
    assert "is damaged" in refusal(snapshot / "net.onnx")


def test_weights_with_several_names_are_read_as_others_are(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    weights = save_with_external_weights(path)
    os.link(weights, tmp_path / "in a content store")
    loaded = ModelFile(str(path)).load().original
    assert [w.raw_data for w in loaded.graph.initializer] == [w.raw_data for w in tiny_convnet().graph.initializer]
    os.truncate(weights, 100)
    assert f"which has {100} bytes" in refusal(path)
    weights.unlink()
    weights.symlink_to("/etc/hostname")
    assert "is damaged" in refusal(path)


def test_dynamic_dimensions_are_listed_with_the_way_to_fix_them(tmp_path: Path) -> None:
    message = refusal(dynamic_model(tmp_path / "d.onnx", first=["batch", 3, "h", "w"]))
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
    graph = build_graph(normalise(ModelFile(str(path)).load({"image": [2, 3]}).original))
    assert graph.tensors["shift"].shape == (2, 3)
    assert graph.tensors["y"].shape == (2, 3)


def test_an_input_of_unknown_rank_takes_any_shape(tmp_path: Path) -> None:
    model = parse_graph("g (float x) => (float y) { y = Relu(x) }")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.ClearField("shape")
    onnx.save(model, tmp_path / "d.onnx")
    assert "[unknown rank]" in refusal(tmp_path / "d.onnx")
    loaded = ModelFile(str(tmp_path / "d.onnx")).load({"x": [4, 5]}).original
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
    loaded = ModelFile(str(tmp_path / "d.onnx")).load({"image": [48, 3], "shift": [192, 3]}).original
    assert [sizes_of(value) for value in loaded.graph.input] == [[48, 3], [192, 3]]


@pytest.mark.parametrize(
    ("shape", "weights", "any_shapes", "sizes", "note"),
    [
        (["unk", 3, 5], (4, 3, 5), False, [1, 3, 5], ""),
        (["batch", "channels", 8, 8], (4, 3, 3, 3), False, [1, 3, 8, 8], "the only ones that run"),
        (["batch", 1, "length"], (4, 1, 5), True, [1, 1, 8], "the smallest that run"),
    ],
)
def test_sizes_that_nobody_gives_are_found_and_noted(
    tmp_path: Path,
    shape: list[int | str],
    weights: tuple[int, ...],
    any_shapes: bool,
    sizes: list[int],
    note: str,
) -> None:
    net, path = Builder("open"), tmp_path / "d.onnx"
    x = net.input("x", shape)
    onnx.save(net.model(net.op("Conv", x, net.const(np.ones(weights, np.float32)))), path)
    if any_shapes:
        assert "dynamic dimensions" in refusal(path)
    loaded = ModelFile(str(path)).load(any_shapes=any_shapes)
    assert sizes_of(loaded.original.graph.input[0]) == sizes
    assert not_none(loaded.dynamic).graph.input[0].type.tensor_type.shape.dim[0].dim_param == shape[0]
    assert loaded.notes[0] == "the batch is 1"
    assert len(loaded.notes) == 1 + bool(note)
    assert note in loaded.notes[-1]


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
    first, again, other = (ModelFile(source, seed=seed).load().original for seed in (0, 0, 1))
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


INSIDE = helper.make_graph(twice("f0", "own"), "body", [], [helper.make_tensor_value_info("c", 1, [1])])
BRANCH = [helper.make_node("If", ["a"], ["c"], then_branch=INSIDE, else_branch=INSIDE)]
CALLS = [twice(f"f{number}", "own") for number in range(24)]


@pytest.mark.parametrize(
    ("bodies", "words"),
    [
        ([twice("Relu"), *CALLS], "33,554,432 operators once its functions are inlined, more than 200,000"),
        ([twice("Relu"), BRANCH, *CALLS[1:]], "operators once its functions are inlined"),
        ([twice("f0", "own")], "net.onnx is damaged"),
        ([twice("Relu"), twice("f0", "own")], ""),
    ],
)
def test_functions_that_become_millions_of_operators_or_call_themselves_are_refused(
    tmp_path: Path, bodies: list[list[onnx.NodeProto]], words: str
) -> None:
    onnx.save(of_functions(bodies), tmp_path / "net.onnx")
    if words:
        assert words in refusal(tmp_path / "net.onnx")
    else:
        assert ModelFile(str(tmp_path / "net.onnx")).load().original.functions
