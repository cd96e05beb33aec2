"""A person's file becomes a model that runs, and a graph whose borders are static, whatever is inside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from collage_evo.config_model import ModelConfig
from collage_evo.errors import InputError, NotSearchable
from collage_evo.graph.convert.extract import content_hash, extract, structural_hash
from collage_evo.graph.ir.graph import COMPOSITE, OPAQUE
from collage_evo.graph.ir.values import plain
from collage_evo.graph.load.data import read_feeds
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.load.load import ModelFile
from collage_evo.graph.normalise.normalise import Rules
from collage_evo.graph.prepare import PreparedModel, SearchableModel, prepare_model, searchable
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.noise import RANDOM, Noise
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.runtime.session import Session
from collage_evo.runtime.signature import signature_of
from tests.runtime.helpers import TARGET, whole
from tests.support import misoptimised
from tests.support.models import parse_graph


def prepared(model: onnx.ModelProto, folder: Path, **arguments: object) -> PreparedModel:
    onnx.save(model, folder / "m.onnx")
    given = {"shapes": {}, "reference_inputs": 1, "threads": 1, **arguments}
    return prepare_model(ModelFile(str(folder / "m.onnx")), **given)  # type: ignore[arg-type]


def taken_apart(model: onnx.ModelProto, folder: Path, **arguments: object) -> SearchableModel:
    return searchable(prepared(model, folder, **arguments), 1)


def kinds(found: SearchableModel) -> list[str]:
    return [node.op_type for node in found.graph.nodes]


def in_regions(found: SearchableModel, feeds: dict[str, np.ndarray]) -> list[object]:
    """The outputs when every node runs as a model of its own, cut out of the graph."""
    values: dict[str, object] = dict(feeds)
    for node in found.graph.nodes:
        inputs, outputs = found.graph.boundary(1 << node.index)
        part = extract(found.graph, 1 << node.index)
        given = {value.name: values[name] for value, name in zip(part.graph.input, inputs, strict=True)}
        values |= zip(outputs, reference_outputs(part, given), strict=True)
    return [values[name] for name in found.graph.outputs]


def parsed(text: str) -> onnx.ModelProto:
    return parse_graph(text, opset=16)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("g (float[4] x, int64[2] s) => (float[a] y, float[b] z) { y, z = Split(x, s) }", "s", [2, 2]),
        ("g (float[1, 3] x, int64[2, 1] i) => (float[2, 3] y) { y = GatherND(x, i) }", "i", [[0], [0]]),
        ("g (int32[9] x, int32[9] a, int32[9] b) => (int32[9] y) { d = Sub(a, b) y = Div(x, d) }", "a", [2] * 9),
        ("g (float[4] x, float r) => (float[4] y) { y = Dropout(x, r) }", "r", 0.5),
        ("g (float[4, 3] x, int64[2] a) => (float[c, d, e, f] y) { y = Unsqueeze(x, a) }", "a", [0, 1]),
        ("g (float[4, 3] x, int64[3] s) => (float[c, d, e] y) { y = Reshape<allowzero = 1>(x, s) }", "s", [-1, 1, 1]),
        ("g (float[1, 16, 1] x, int64 s, int64 f) => (float[c, d, e, f] y) { y = STFT(x, s, , f) }", "", []),
    ],
)
def test_an_input_that_may_not_be_random_gets_values_that_run(
    text: str, name: str, value: object, tmp_path: Path
) -> None:
    found = prepared(parse_graph(text, opset=17), tmp_path, reference_inputs=3)
    assert list(found.fixed) == [name] * bool(name)
    assert all((feeds[one] == value).all() for feeds, _ in found.references for one in found.fixed)
    assert ("is always" in " ".join(found.notes)) == bool(name)
    (first, _), (second, _), _ = found.references
    assert not np.array_equal(first["x"], second["x"])


def test_what_takes_no_random_inputs_at_all_says_why(tmp_path: Path) -> None:
    model = parsed("g (float[2] x, int64[2] i) => (float[2] y) <int64 m = {9}> { k = Add(i, m) y = Gather(x, k) }")
    with pytest.raises(InputError, match=r"cannot run the model: .*indices element out of data bounds.*with --data"):
        prepared(model, tmp_path)


@pytest.mark.parametrize(("level", "rounds"), [(1, False), (4, True)])
def test_rounding_that_the_file_asks_for_is_noise(level: int, rounds: bool, tmp_path: Path) -> None:
    model = parse_graph(
        "g (float[2, 128] x) => (float[2, 16] y) { y = com.microsoft.MatMulNBits"
        f"<K = 128, N = 16, bits = 4, block_size = 32, accuracy_level = {level}>(x, w, s) }}",
        opset=21,
    )
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    rng = np.random.default_rng(0)
    arrays = {"w": rng.integers(0, 256, (16, 4, 16)).astype(np.uint8), "s": rng.random((16, 4), np.float32)}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    found = prepared(model, tmp_path)
    assert (found.noise["y"].error > 1e-4) == rounds
    assert ("accuracy_level" in " ".join(found.notes)) == rounds
    model.graph.node[0].attribute[-1].i = 1
    feeds, expected = found.references[0]
    error = relative_error(reference_outputs(model, feeds)[0], expected["y"]).relative
    assert found.excused["y"].explains(error)


@pytest.mark.parametrize(
    "body",
    [
        "y = GroupNormalization<num_groups = 2>(z, s, b)",
        "m = ReduceMean<axes = [3]>(z) q = Mul(z, z) a = ReduceMean<axes = [3]>(q) c = Mul(m, m) v = Sub(a, c) "
        "y = Add(v, x)",
    ],
)
def test_what_a_difference_of_squares_leaves_far_from_zero_is_noise(body: str, tmp_path: Path) -> None:
    given = "<float[2] s = {1, 1}, float[2] b = {0, 0}>"
    opset = 18 if "Group" in body else 17
    x = np.random.default_rng(0).standard_normal((1, 4, 8, 8), np.float32)
    noise = []
    for far in (0.0, 293.0, 1e4):
        text = f"g (float[1, 4, 8, 8] x) => (float[1, 4, 8, 8] y) {given} {{ z = Add(x, o) {body} }}"
        model = parse_graph(text, opset=opset)
        model.graph.initializer.append(numpy_helper.from_array(np.float32(far), "o"))
        noise.append(prepared(model, tmp_path, feeds=[{"x": x}]).noise["y"].error)
    assert noise[0] < 1e-5
    assert noise[1] > 100 * noise[0]
    assert np.isfinite(noise[2])


def test_an_input_with_a_value_in_the_file_is_compiled_in_and_a_note_says_so(tmp_path: Path) -> None:
    weights = "<float[2] w = {1, 2}, float[2] v = {3, 4}>"
    text = f"g (float[2] x, float[2] w, float[2] v) => (float[2] y) {weights} {{ a = Mul(x, w) y = Add(a, v) }}"
    found = prepared(parsed(text), tmp_path)
    assert list(found.references[0][0]) == ["x"]
    assert "'w' and 1 other inputs have values in the model's file: a session cannot be fed" in " ".join(found.notes)
    np.savez(tmp_path / "data.npz", x=np.ones(2, np.float32), w=np.ones(2, np.float32))
    with pytest.raises(InputError, match="'w', which has a value in the model's file that is compiled in: leave it"):
        read_feeds(tmp_path / "data.npz", parsed(text))


ONES = ", ".join("1" * 16)


@pytest.mark.parametrize(
    ("text", "shapes", "operators", "sizes"),
    [
        (
            """g (float[batch, length, 8] x) => (float[a, b, c, d] y) {
            shape = Shape(x) zero = Constant<value_int = 0>() batch = Gather(shape, zero)
            axes = Constant<value_ints = [0]>() first = Unsqueeze(batch, axes)
            rest = Constant<value_ints = [-1, 2, 4]>() target = Concat<axis = 0>(first, rest)
            r = Relu(x) y = Reshape(r, target) }""",
            {"x": [3, 5, 8]},
            ["Relu", "Reshape"],
            {"y": (3, 5, 2, 4)},
        ),
        (
            """g (float[n] x) => (float[n] y) {
            shape = Shape(x) three = Constant<value_ints = [3]>() same = Equal(shape, three)
            axes = Constant<value_ints = [0]>() c = Squeeze(same, axes)
            t = If(c) <then_branch = yes () => (float[m] p) { p = Neg(x) },
                       else_branch = no () => (float[k] q) { q = Exp(x) }>
            y = Relu(t) }""",
            {"x": [3]},
            ["Neg", "Relu"],
            {"y": (3,)},
        ),
        (
            f"g (float[2, 4] x) => (float[2, 4] y) <float[4, 4] w = {{{ONES}}}> "
            "{ p = com.microsoft.FusedMatMul<alpha = 0.5>(x, w) y = Relu(p) }",
            {},
            ["FusedMatMul", "Relu"],
            {"p": (2, 4)},
        ),
        (
            "g (float[4, 6] x) => (int64[2, n] y) { r = Relu(x) y = NonZero(r) }",
            {},
            ["Relu", "NonZero"],
            {"r": (4, 6), "y": (-1, -1)},
        ),
    ],
)
def test_shapes_are_static_except_those_that_depend_on_data(
    text: str,
    shapes: dict[str, list[int]],
    operators: list[str],
    sizes: dict[str, tuple[int, ...]],
    tmp_path: Path,
) -> None:
    """A chain of shapes, and a condition on them, are folded once the inputs are fixed."""
    model = parsed(text)
    if "com.microsoft" in text:
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    found = taken_apart(model, tmp_path, shapes=shapes)
    assert kinds(found) == operators
    assert {name: found.graph.tensors[name].shape for name in sizes} == sizes


BRANCHES = """If(c) <then_branch = yes () => (float[3] p) { p = Neg(a) },
                       else_branch = no () => (float[3] q) { s = Abs(a) q = Sqrt(s) }>"""
LABELS = 'ai.onnx.ml.LabelEncoder<keys_strings = ["a", "b"], values_int64s = [1, 2]>'


@pytest.mark.parametrize(
    ("text", "nodes", "inside", "feeds"),
    [
        (
            """g (float[4, 6] x) => (float[1] y, float[4, 6] z) { r = Relu(x) places = NonZero(r)
            columns = Transpose<perm = [1, 0]>(places) values = GatherND(r, columns) sum = ReduceSum(values)
            y = Neg(sum) z = Exp(r) }""",
            ["Composite", "Exp", "Neg", "Relu"],
            ["NonZero", "Transpose", "GatherND", "ReduceSum"],
            [{"x": np.random.default_rng(0).standard_normal((4, 6), np.float32) + 2}],
        ),
        (
            f"g (float[3] x, bool c) => (float[3] y) {{ a = Exp(x) t = {BRANCHES} y = Relu(t) }}",
            ["Exp", "If", "Relu"],
            ["If"],
            [{"x": np.array([1.0, -2.0, 3.0], np.float32), "c": np.array(choice)} for choice in (True, False)],
        ),
        (
            """g (float[2, 3] x) => (float[4, 3] y) { r = Relu(x) s = SequenceConstruct(r) t = SequenceInsert(s, x)
            c = ConcatFromSequence<axis = 0>(t) y = Neg(c) }""",
            ["Composite", "Relu"],
            ["SequenceConstruct", "SequenceInsert", "ConcatFromSequence", "Neg"],
            [{"x": np.ones((2, 3), np.float32)}],
        ),
        (
            """g (float[2, 3] x) => (float[2, 3] y) {
            r = Relu(x) held = Optional(r) taken = OptionalGetElement(held) y = Exp(taken) }""",
            ["Composite", "Exp", "Relu"],
            ["Optional", "OptionalGetElement"],
            [{"x": np.ones((2, 3), np.float32)}],
        ),
        (
            f"g (string[3] names) => (int64[3] y) {{ y = {LABELS}(names) }}",
            ["LabelEncoder"],
            ["LabelEncoder"],
            [{"names": np.array(["b", "a", "other"], object)}],
        ),
    ],
)
def test_what_has_a_body_or_no_static_shape_is_one_node(
    text: str, nodes: list[str], inside: list[str], feeds: list[dict[str, np.ndarray]], tmp_path: Path
) -> None:
    model = parsed(text)
    if "ai.onnx.ml" in text:
        model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 2))
    found = taken_apart(model, tmp_path)
    assert sorted(kinds(found)) == nodes
    (composite,) = (node for node in found.graph.nodes if node.domain == COMPOSITE)
    assert [proto.op_type for proto in composite.protos] == inside
    assert set(composite.inputs) - found.graph.constants.keys() <= found.recorded.keys()
    for given in feeds:
        assert relative_error(in_regions(found, given), reference_outputs(model, given)).relative < 1e-6


def test_equal_composites_have_equal_hashes_wherever_they_stand(tmp_path: Path) -> None:
    def double(first: str) -> str:
        return f"""
            {first}p = NonZero({first})
            {first}s = Cast<to = 1>({first}p)
            {first}y = ReduceSum<keepdims = 0>({first}s)"""

    model = parsed(f"g (float[4] a, float[4] b) => (float ay, float by) {{ {double('a')} {double('b')} }}")
    graph = taken_apart(model, tmp_path).graph
    one, two = (1 << node.index for node in graph.nodes if node.domain == COMPOSITE)
    assert structural_hash(graph, one) == structural_hash(graph, two)
    assert content_hash(graph, one) == content_hash(graph, two)


def test_a_table_of_strings_counts_by_what_is_written_in_it(tmp_path: Path) -> None:
    def named(labels: list[str]) -> SearchableModel:
        body = "best = ArgMax<axis = 1, keepdims = 0>(x) y = Gather(labels, best)"
        model = parsed(f"g (float[2, 3] x) => (string[2] y) {{ {body} }}")
        model.graph.initializer.append(numpy_helper.from_array(np.array(labels, object), "labels"))
        return taken_apart(model, tmp_path)

    same, again, other = (named(labels).graph for labels in (["a", "b", "c"], ["a", "b", "c"], ["a", "b", "d"]))
    assert same.tensors["labels"].dtype == OPAQUE
    assert content_hash(same, same.all_nodes) == content_hash(again, again.all_nodes)
    assert content_hash(same, same.all_nodes) != content_hash(other, other.all_nodes)
    assert structural_hash(same, same.all_nodes) == structural_hash(again, again.all_nodes)


@pytest.mark.parametrize("damage", ["a weight without its value", "a type that nobody knows"])
def test_what_is_wrong_with_a_file_is_said_in_one_line(damage: str, tmp_path: Path) -> None:
    model = parsed("""g (int64[2] x) => (float[2, k] y) <int64[1] depth = {3}, float[2] values = {0, 1}> {
        y = OneHot(x, depth, values)
    }""")
    if damage == "a type that nobody knows":
        model.graph.input[0].type.tensor_type.elem_type = 99
    else:
        del model.graph.initializer[0].int64_data[:]
    with pytest.raises(InputError, match=r"^ONNX Runtime cannot load the model: [^\n]+$"):
        prepared(model, tmp_path)


def test_noise_of_the_model_itself_is_no_error_of_the_output_that_has_it(tmp_path: Path) -> None:
    model = parsed("g (float[64] x) => (float[64] r, float[64] y) { r = RandomNormalLike(x) y = Neg(x) }")
    found = prepared(model, tmp_path)
    assert found.excused == {"r": RANDOM, "y": Noise()}
    assert "output 'r' differs from run to run: it is not compared" in found.notes


def test_an_optimisation_that_is_wrong_or_fails_excuses_no_library(tmp_path: Path) -> None:
    found = prepared(misoptimised.fused_wrongly(), tmp_path)
    assert 0.0 < found.excused["y"].error < 1e-5
    assert any("with them its results are wrong" in note for note in found.notes)
    assert any("it runs without them" in note for note in prepared(misoptimised.fails_when_fused(), tmp_path).notes)


def test_steps_that_rounding_decides_are_excused_whichever_sample_lies_on_them(tmp_path: Path) -> None:
    beyond_all_steps = {"x": np.full(4096, 1000.0, np.float32)}
    feeds = [beyond_all_steps, random_inputs(misoptimised.steps(), seed=1)]
    first, both = (prepared(misoptimised.steps(), tmp_path, feeds=feeds[:count]).noise["y"].error for count in (1, 2))
    assert first < 1e-3 < both < 0.2, "a rounding error moves some values by a whole step"


def test_rules_that_change_the_outputs_are_not_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from collage_evo.graph.normalise import normalise

    def faulty(model: onnx.ModelProto, rules: Rules) -> onnx.ModelProto:
        made = onnx.ModelProto()
        made.CopyFrom(model)
        if rules in broken:
            made.graph.node[0].op_type = "Abs"
        return made

    model = parsed("g (float[64] x) => (float[64] y) { y = Neg(x) }")
    monkeypatch.setattr(normalise, "normalise", faulty)
    broken = {Rules.ALL, Rules.NO_FUSION}
    assert taken_apart(model, tmp_path).rules == Rules.SAME_OPSET.value
    broken = set(Rules)
    with pytest.raises(NotSearchable, match="the outputs change"):
        taken_apart(model, tmp_path)


def test_a_persons_own_inputs_fix_shapes_and_are_the_references(tmp_path: Path) -> None:
    model = parsed("g (float[batch, n] x) => (float[batch, n] y) { y = Neg(x) }")
    mine = {"x": np.ones((2, 7), np.float32)}
    found = prepared(model, tmp_path, feeds=[mine])
    assert found.references[0][0] is mine
    assert plain(found.references[0][1]["y"]).shape == (2, 7)
    assert not any("random" in note for note in found.notes)


@pytest.mark.parametrize(
    ("text", "shapes", "sizes"),
    [
        ("(float[batch, 6] x) => (float[batch, width] y) { y = Relu(x) }", {"x": [2, 6]}, [2, 6]),
        (
            "(float[1, 2, past, 4] before, float[1, 2, 1, 4] k) => (float[1, 2, all, 4] y) "
            "{ y = Concat<axis = 2>(before, k) }",
            {"before": [1, 2, 0, 4]},
            [1, 2, 1, 4],
        ),
    ],
)
def test_symbolic_sizes_of_outputs_are_those_of_the_run(
    text: str, shapes: dict[str, list[int]], sizes: list[int], tmp_path: Path
) -> None:
    """A past of no steps is a shape like any other."""
    configured = ModelConfig.model_validate({"source": "m.onnx", "shapes": shapes}).one_profile()
    found = prepared(parsed(f"g {text}"), tmp_path, shapes=configured)
    assert [dim.dim_value for dim in found.original.graph.output[0].type.tensor_type.shape.dim] == sizes
    (feeds, expected), *_ = found.references
    assert {name: list(feeds[name].shape) for name in shapes} == shapes
    assert list(expected["y"].shape) == list(searchable(found, 1).graph.tensors["y"].shape) == sizes


@pytest.mark.parametrize("sizes", ["7, 4", "4", "3, 5"])
def test_an_output_with_other_sizes_than_are_declared_has_its_own_and_a_note(tmp_path: Path, sizes: str) -> None:
    declared = parsed("g (float[3, 4] x) => (float[3, 4] z, float[3, 4] w) { r = Relu(x) z = Neg(r) w = Exp(r) }")
    right = prepared(declared, tmp_path)
    shape = declared.graph.output[0].type.tensor_type.shape
    del shape.dim[:]
    for size in sizes.split(", "):
        shape.dim.add().dim_value = int(size)
    wrong = prepared(declared, tmp_path)
    (note,) = set(wrong.notes) - set(right.notes)
    assert note == f"output 'z' is declared with the sizes [{sizes}] and has [3, 4]: those that it has count"
    assert [size.dim_value for size in wrong.original.graph.output[0].type.tensor_type.shape.dim] == [3, 4]
    x = np.full((3, 4), 2, np.float32)
    with Session([whole(wrong.original, tmp_path / "cache")], TARGET) as session:
        np.testing.assert_array_equal(session.run(["z"], {"x": x})[0], -x)


def test_numbers_that_rounding_makes_infinite_excuse_nothing(tmp_path: Path) -> None:
    model = parsed("g (float16[64] x, float16[64] w) => (float16[64] y, float16[64] z) { y = Mul(x, w) z = Neg(x) }")
    x = np.linspace(1.1, 250.1, 64).astype(np.float16)
    found = prepared(model, tmp_path, feeds=[{"x": x, "w": (65440 / x.astype(np.float32)).astype(np.float16)}])
    assert 0.0 < found.excused["y"].error < 0.01
    assert 0.0 < found.excused["z"].error < 0.01
    (note,) = (note for note in found.notes if "infinite" in note)
    assert note.startswith("numbers of output 'y' lie so near the limits of their type that rounding makes them inf")


def test_choices_have_the_noise_of_all_samples(tmp_path: Path) -> None:
    model = parsed("""g (float[400] x) => (int64[100] i, float[100] v) <int64[1] k = {100}, float third = {0.3333}> {
        part = Mul(x, third) t, i = TopK(part, k) v = Gather(x, i) }""")
    apart = {"x": np.random.default_rng(0).permutation(np.linspace(0.1, 1, 400)).astype(np.float32)}
    near = {"x": (1 + 2.0**-23 * np.random.default_rng(0).permutation(400)).astype(np.float32)}
    found = prepared(model, tmp_path, feeds=[apart])
    assert found.noise["i"].share == 0.0
    names = [value.name for value in model.graph.output]
    more = found.with_noise([(near, dict(zip(names, reference_outputs(model, near), strict=True)))], 1)
    assert 0.2 < more.noise["i"].share < 1.0
    assert more.noise["v"].error < 1e-4, "whichever is chosen is nearly as large"


def test_an_open_model_keeps_the_names_of_its_sizes_and_one_digest_for_all_inputs(tmp_path: Path) -> None:
    model = parsed("g (float[n, k] x) => (float[n, k] y) { r = Relu(x) y = Neg(r) }")
    inputs = [[{"x": np.ones((n, k), np.float32)} for n in sizes] for k, sizes in ((3, (2, 5)), (4, (7, 8, 9)))]
    first, other = (prepared(model, tmp_path, feeds=feeds, is_open=True) for feeds in inputs)
    assert first.digest == other.digest
    assert prepared(first.original, tmp_path, feeds=inputs[1], is_open=True).digest == first.digest
    (x,), (y,) = signature_of(first.original).inputs, signature_of(first.original).outputs
    assert (x.shape[0], y.shape[0]) == ("n", "n")
