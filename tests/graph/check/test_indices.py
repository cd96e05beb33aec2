"""Which indices stay inside whatever a request holds, which are to be checked in it, which nobody vouches for."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from collage_evo.graph.check.index_uses import uses
from collage_evo.graph.check.indices import indices_of_model, limits_of, stray_index
from collage_evo.graph.convert.read import build_graph

OPSET = onnx.defs.onnx_opset_version()


def parsed(text: str, opset: int = 18) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> {text}')
    return onnx.shape_inference.infer_shapes(model)


def strays(model: onnx.ModelProto) -> list[str]:
    graph = build_graph(model)
    return [reason for node in graph.nodes if (reason := stray_index(graph, node))]


def limits(model: onnx.ModelProto) -> dict[str, tuple[int, int]]:
    graph = build_graph(model)
    assert not strays(model)
    return dict(limits_of(graph, graph.all_nodes))


@pytest.mark.parametrize(
    "body",
    [
        "y = Gather(x, i)",
        "j = Reshape(i, s) y = Gather(x, j)",
        "j = Identity(i) k = Unsqueeze(j, a) y = Gather(x, k)",
        "j = Cast<to = 6>(i) y = Gather(x, j)",
    ],
)
def test_an_input_that_is_an_index_has_limits(body: str) -> None:
    given = "<int64[2] s = {1, 3}, int64[1] a = {0}>"
    model = parsed(f"g (float[5, 7] x, int64[3] i) => (float y) {given} {{ {body} }}")
    assert limits(model) == {"i": (-5, 5)}
    for branch in model.graph.node[0].attribute:
        del branch.g.value_info[:]  # as files have them
    assert limits(model) == {"i": (-5, 5)}


@pytest.mark.parametrize("kind", ["FLOAT16", "UINT8", "BOOL"])
def test_an_input_that_becomes_another_number_on_its_way_has_no_limits(kind: str) -> None:
    model = parsed(f"""g (float[1, 7] x, float[3] i) => (float y) {{
        j = Cast<to = {onnx.TensorProto.DataType.Value(kind)}>(i)
        k = Cast<to = 7>(j)
        y = Gather(x, k)
    }}""")
    (stray,) = strays(model)
    assert stray.startswith("Gather: k is computed")


def test_the_images_that_regions_are_of_may_be_any() -> None:
    model = parsed("""g (float[1, 2, 8, 8] x, float[3, 5] rois) => (float y) {
        y = MaxRoiPool<pooled_shape = [2, 2]>(x, rois)
    }""")
    (stray,) = strays(model)
    assert stray.startswith("MaxRoiPool: rois is the model's input")


def test_the_smallest_table_decides() -> None:
    text = "g (float[5, 7] x, int64[2, 7] i, float[2, 7] u) => (float[2, 7] y, float[5, 7] z)"
    model = parsed(f"{text} {{ y = GatherElements<axis = 1>(x, i) z = ScatterElements<axis = 0>(x, i, u) }}")
    assert limits(model) == {"i": (-5, 5)}


@pytest.mark.parametrize(
    "body",
    [
        "k = ArgMax<axis = 1, keepdims = 0>(f) y = Gather(x, k)",
        "v, k = TopK(f, n) y = Gather(x, k)",
        "k = Add(c, c) y = Gather(x, k)",
        "b = Greater(f, f) k = Cast<to = 7>(b) y = Gather(x, k)",
        "b = Greater(f, f) k = Where(b, c, d) y = Gather(x, k)",
        "v, t = TopK(g, e) k = Div(t, e) y = Gather(x, k)",
        "v, t = TopK(g, e) k = Mod(t, e) y = Gather(x, k)",
        "v, t = TopK(g, e) j = Cast<to = 6>(t) w = Cast<to = 6>(e) k = Div(j, w) y = Gather(x, k)",
        "v, t = TopK(g, e) k = Div(t, e) b = Less(t, e) o = Cast<to = 7>(b) m = Sub(k, o) y = Gather(x, m)",
    ],
)
def test_what_is_in_range_whatever_comes_needs_no_check(body: str) -> None:
    given = "<int64[1] n = {2}, int64[1] c = {2}, int64[1] d = {-5}, int64[1] e = {4}>"
    assert limits(parsed(f"g (float[5, 7] x, float[3, 5] f, float[20] g) => (float y) {given} {{ {body} }}")) == {}


@pytest.mark.parametrize(
    "body",
    [
        "k = Add(i, c) y = Gather(x, k)",
        "k = Mod(i, c) y = Gather(x, k)",
        "k = Div(i, c) y = Gather(x, k)",
        "v, t = TopK(f, c) k = Div(c, t) y = Gather(x, k)",
        "v, t = TopK(z, c) k = Div(t, c) y = Gather(x, k)",
        "k = Clip(i, c, c) y = Gather(x, k)",
        "k = Cast<to = 7>(f) y = Gather(f, k)",
        "k = Slice(i, c, c) y = Gather(x, k)",
        "v, k = TopK(i, c) y = Gather(f, v)",
        "k = ArgMax<axis = 1, keepdims = 0>(x) y = Gather(c, k)",
        "y = OneHot(i, c, h)",
        "y = Gather(x, w)",
        "y = Tile(f, i)",
        "y = GridSample(m, q)",
    ],
)
def test_what_may_be_anything_is_told(body: str) -> None:
    images = "float[1, 1, 3, 3] m, float[1, 2, 2, 2] q"
    text = f"g (float[5, 7] x, int64[1] i, float[2] f0, float[12] z, {images}) => (float y)"
    given = "<int64[1] c = {2}, int64[1] w = {5}, float[2] h = {0, 1}>"
    assert len(strays(parsed(f"{text} {given} {{ f = Sqrt(f0) {body} }}", 20))) == 1


def test_constants_are_held_against_each_axis() -> None:
    text = "g (float[5, 7] x) => (float[2] y) <int64[2, 2] i = {4, 6, -5, -7}> { y = GatherND(x, i) }"
    assert limits(parsed(text)) == {}
    assert strays(parsed(text.replace("4, 6", "6, 4")))


def test_lengths_of_sequences_reach_as_far_as_the_steps() -> None:
    text = "g (float[4, 2, 5] x, int32[2] n) => (float y) <float[1, 3, 5] w = {%s}, float[1, 3, 3] r = {%s}>"
    weights = text % (", ".join("0" * 15), ", ".join("0" * 9))
    assert limits(parsed(f"{weights} {{ y = RNN<hidden_size = 3>(x, w, r, , n) }}")) == {"n": (0, 5)}


def test_of_as_many_steps_as_a_request_has_no_length_is_known() -> None:
    text = "g (float[t, 2] x, int64[2] n) => (float y) { y = ReverseSequence<time_axis = 0, batch_axis = 1>(x, n) }"
    assert indices_of_model(parsed(text)).stray
    assert indices_of_model(parsed(text.replace("t, 2", "4, 2"))).limits == {"n": (0, 5)}


def test_with_open_shapes_a_table_of_weights_still_gives_limits() -> None:
    text = "g (int64[b, s] ids) => (float y) <float[3, 1] w = {0, 1, 2}> { y = Gather(w, ids) }"
    assert indices_of_model(parsed(text)).limits == {"ids": (-3, 3)}


def test_positions_counted_from_the_shape_hold_for_shapes_that_have_run() -> None:
    body = "n = Shape(ids) k = Squeeze(n) p = Range(o, k, e) y = Gather(w, p)"
    given = "<float[3, 1] w = {0, 1, 2}, int64 o = {0}, int64 e = {1}>"
    fixed, left_open = (parsed(f"g (int64[{size}] ids) => (float y) {given} {{ {body} }}") for size in ("3", "s"))
    for model in (fixed, left_open):
        assert not indices_of_model(model).stray


def branching(then: str, other: str, inputs: str = "int64[3] i") -> onnx.ModelProto:
    """A table that is read in two branches, by what each computes as ``t`` and ``e``."""
    texts = {"t": then, "e": other}
    one, two = (f"{k} () => (float[3, 7] r{k}) {{ {texts[k]} r{k} = Gather(x, {k}{k}) }}" for k in texts)
    taken = f"If <then_branch = {one}, else_branch = {two}> (b)"
    return parsed(f"g (float[5, 7] x, bool[1] b, {inputs}) => (float[3, 7] y) {{ y = {taken} }}")


@pytest.mark.parametrize("relay", ["Identity(i)", "Cast <to = 6> (i)"])
def test_an_input_that_every_branch_takes_as_an_index_has_limits(relay: str) -> None:
    assert limits(branching(f"tt = {relay}", "ee = Identity(i)")) == {"i": (-5, 5)}
    assert strays(branching(f"tt = {relay}", "ee = Abs(i)"))
    assert strays(branching(f"tt = {relay}", "ee = Identity(k)", "int64[3] i, int64[3] k")), "one branch at a time"


def test_what_a_branch_computes_from_constants_may_be_wrong_as_long_as_it_was_not_taken() -> None:
    beyond = "= Constant<value_ints = [3, 3, 3]>()"
    assert strays(branching(f"a {beyond} tt = Add(a, a)", f"d {beyond} ee = Add(d, d)"))


def test_what_a_loop_takes_as_an_index_has_to_be_constant() -> None:
    text = "g (float[5] x, bool b, int64[1] i) => (float[2, 1] y) <int64[1] c = {1}, int64 m = {2}>"
    for name, wrong in (("i", True), ("c", False)):
        body = f"l (int64 n, bool k) => (bool again, float[1] s) {{ again = Identity(k) s = Gather(x, {name}) }}"
        assert bool(strays(parsed(f"{text} {{ y = Loop <body = {body}> (m, b) }}"))) == wrong


def test_integers_of_an_operator_that_onnx_does_not_describe_may_be_indices() -> None:
    inputs = [helper.make_tensor_value_info("x", 1, [5]), helper.make_tensor_value_info("i", 7, [1])]
    node = helper.make_node("Mystery", ["x", "i"], ["y"], domain="org.example")
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", 1, [5])])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("org.example", 1)]
    assert indices_of_model(helper.make_model(graph, opset_imports=opsets, ir_version=9)).stray


def integers(schema: onnx.defs.OpSchema) -> list[int]:
    """Positions of inputs that take integers of 32 and 64 bits and nothing else."""
    allowed = {one.type_param_str: set(one.allowed_type_strs) for one in schema.type_constraints}
    kinds = [allowed.get(given.type_str, {given.type_str}) for given in schema.inputs]
    return [place for place, kind in enumerate(kinds) if kind and kind <= {"tensor(int32)", "tensor(int64)"}]


NO_INDICES = {("QLinearConv", 8), ("Scan", 0), ("MelWeightMatrix", 2)}
"""A bias; what was taken away in opset 9; a frequency."""


def test_every_operator_whose_inputs_can_only_be_integers_is_known() -> None:
    unknown = []
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain:
            continue
        for place in integers(schema):
            names = [f"n{k}" for k in range(place + 1)]
            found = {use.name for use in uses(helper.make_node(schema.name, names, ["y"]), lambda name: None)}
            if names[place] not in found and (schema.name, place) not in NO_INDICES:
                unknown.append((schema.name, place))
    assert not unknown


def test_what_is_not_an_array_of_integers_has_no_range() -> None:
    """NaN is kept within no bounds, and as an integer it is any."""
    text = "g (float[5, 7] x, float[3] f) => (float y) <float lo = {0}, float hi = {4}>"
    assert strays(parsed(f"{text} {{ c = Clip(f, lo, hi) k = Cast<to = 7>(c) y = Gather(x, k) }}"))
    assert np.isnan(np.clip(np.nan, 0, 4))
