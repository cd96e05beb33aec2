"""A library gets no type that it computes as another, and no division that ends its process, whole or inside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.backends.registry import get_backend
from collage_evo.genome.failure import Failed
from collage_evo.graph.check.scopes import operators
from collage_evo.graph.convert.read import build_graph
from tests.backends.pieces import compiled, require_right

HEAD = '<ir_version: 9, opset_import: ["" : 18, "own" : 1]>'
LIBRARIES = ("openvino", "tvm")
NAMES = {"float32": "float", "float64": "double"}
SECONDS = 1751063842


def model_of(dtype: str, body: str, out: str = "", constants: str = "") -> onnx.ModelProto:
    kind, made = NAMES.get(dtype, dtype), NAMES.get(out or dtype, out or dtype)
    inputs = f"{kind}[4] x" + (f", {kind}[4] z" if "z" in body else "")
    text = f"{HEAD} g ({inputs}) => ({made}[4] y) <{constants}> {{ {body} }}"
    return onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))


def inside(where: str, body: str) -> onnx.ModelProto:
    """``body``, which makes r of x and z, floats all, in an If, a Loop or a function, or of what a Loop makes, of
    which the number of axes is not known."""
    if where == "function":
        own = f'<domain: "own", opset_import: ["" : 18]> own_op (x, z) => (r) {{ {body} }}'
        text = f"{HEAD} g (float[4] x, float[4] z) => (float[4] y) {{ y = own.own_op(x, z) }} {own}"
    elif where == "If":
        branches = f"then_branch = t () => (r) {{ {body} }}, else_branch = e () => (n) {{ n = Identity(x) }}"
        text = f"{HEAD} g (float[4] x, float[4] z, bool c) => (float[4] y) {{ y = If<{branches}>(c) }}"
    elif where == "behind a Loop":
        step = "s (int64 i, bool go, float[4] v) => (bool on, float[4] w) { on = Identity(go) w = Neg(v) }"
        loop = f"{{ x = Loop<body = {step}>(n, t, z) {body} y = Identity(r) }}"
        text = f"{HEAD} g (float[4] z) => (float[4] y) <int64 n = {{2}}, bool t = {{1}}> {loop}"
    else:
        step = f"s (int64 i, bool go, float[4] x) => (bool on, float[4] r) {{ on = Identity(go) {body} }}"
        loop = f"{{ y = Loop<body = {step}>(n, t, first) }}"
        text = f"{HEAD} g (float[4] first, float[4] z) => (float[4] y) <int64 n = {{2}}, bool t = {{1}}> {loop}"
    return onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))


@pytest.mark.parametrize("backend", LIBRARIES)
@pytest.mark.parametrize("op", ["Div", "Mod", "Mod<fmod = 1>"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_a_divisor_that_may_be_zero_is_declined(dtype: str, op: str, backend: str, tmp_path: Path) -> None:
    """x86 ends a process that divides by it; ONNX Runtime raises an error; OpenVINO returns numbers."""
    model = model_of(dtype, f"y = {op}(x, z)")
    with pytest.raises(Failed):
        compiled(model, backend, tmp_path)
    graph = build_graph(model)
    assert not get_backend(backend).supports_node(graph, graph.nodes[0])


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_each_integer_but_0_is_true(dtype: str, tmp_path: Path) -> None:
    model = model_of(dtype, "b = Cast<to = 9>(x) y = Cast<to = 1>(b)", "float32")
    require_right(model, "openvino", {"x": np.array([0, 1, 2**31 - 1, -(2**31)], dtype)}, tmp_path)


def cast(op: str, kind: int) -> str:
    return f"a = Cast<to = {kind}>(x) q = {op}(a, a) r = Cast<to = 1>(q)"


@pytest.mark.parametrize("where", ["If", "Loop", "function", "behind a Loop"])
@pytest.mark.parametrize(
    ("op", "body", "backends"),
    [
        ("Div", cast("Div", 6), LIBRARIES),
        ("Sub", cast("Sub", 11), LIBRARIES),
        ("Mul", cast("Mul", 10), LIBRARIES),
        ("Mul", cast("Mul", 12), LIBRARIES[:1]),
        ("Mul", cast("Mul", 7), LIBRARIES[:1]),
        ("Add", cast("Add", 2), LIBRARIES[:1]),
        ("LRN", "r = LRN<size = 3, bias = 0.5>(x)", LIBRARIES[:1]),
    ],
    ids=["int32", "float64", "float16", "uint32", "int64", "uint8", "LRN"],
)
def test_what_is_declined_alone_is_declined_inside(op: str, body: str, backends: tuple[str, ...], where: str) -> None:
    model = inside(where, body)
    for name in backends:
        backend = get_backend(name)
        found = [backend.known_wrong(graph, node) for graph, node in operators(model)]
        assert any(reason.startswith(f"{op}: ") for reason in found), name
        if where == "If":
            graph = build_graph(model)
            assert not backend.supports_node(graph, graph.nodes[0])


@pytest.mark.parametrize(("op", "by"), [("Div", 7), ("Mod", 7), ("Div", -3)])
@pytest.mark.parametrize("backend", LIBRARIES)
def test_a_constant_divisor_is_taken(backend: str, op: str, by: int, tmp_path: Path) -> None:
    model = model_of("uint8", f"a = Cast<to = 6>(x) y = {op}(a, d)", "int32", f"int32[1] d = {{{by}}}")
    require_right(model, backend, {"x": np.array([0, 1, 100, 255], np.uint8)}, tmp_path)


def test_a_divisor_within_bounds_is_taken(tmp_path: Path) -> None:
    body = "a = Cast<to = 6>(x) b = Cast<to = 6>(z) c = Max(b, one) y = Div(a, c)"
    model = model_of("uint8", body, "int32", "int32[1] one = {1}")
    feeds = {"x": np.array([255, 7, 0, 9], np.uint8), "z": np.array([0, 2, 0, 255], np.uint8)}
    require_right(model, "openvino", feeds, tmp_path)


DIVIDED = {
    "bytes as integers": ("uint8", "a = Cast<to = 6>(x) b = Cast<to = 6>(z) y = Div(a, b)", "int32"),
    "bytes by zero": ("uint8", "a = Cast<to = 6>(x) y = Div(a, zero)", "int32", "int32[1] zero = {0}"),
    "the rest of bytes": ("uint8", "a = Cast<to = 6>(x) b = Cast<to = 6>(z) y = Mod(a, b)", "int32"),
}
DECLINED = {
    **DIVIDED,
    "seconds": (
        "float64",
        "t = Sub(x, c) y = Div(t, d)",
        "",
        f"double[1] c = {{{SECONDS}}}, double[1] d = {{86400}}",
    ),
    "overflow": ("float16", "t = Mul(x, z) y = Sqrt(t)", "", ""),
    "hashes": ("uint8", "k = Cast<to = 12>(x) y = Mul(k, p)", "uint32", "uint32[1] p = {2654435761}"),
    "large ids": ("uint32", "y = Max(x, z)", "", ""),
    "larger ids": ("uint64", "e = Equal(x, z) y = Cast<to = 13>(e)", "", ""),
    "by way of float64": (
        "float32",
        "k = Cast<to = 11>(x) s = Sub(k, c) y = Cast<to = 1>(s)",
        "",
        "double c = {0.1}",
    ),
    "fractions": ("float32", "y = Mod<fmod = 1>(x, z)", "", ""),
    "floats as int16": ("float32", "k = Cast<to = 5>(x) l = Cast<to = 6>(k) y = Cast<to = 1>(l)", "", ""),
}


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *((name, "openvino") for name in DECLINED),
        *((name, "tvm") for name in ("seconds", "overflow", "by way of float64")),
        *((name, "tvm") for name in DIVIDED),
    ],
)
def test_a_type_that_a_library_computes_as_another_is_declined(name: str, backend: str, tmp_path: Path) -> None:
    with pytest.raises(Failed):
        compiled(model_of(*DECLINED[name]), backend, tmp_path)


TAKEN = {
    "float64 at the border": (
        "float64",
        "a = Cast<to = 1>(x) b = Cast<to = 1>(z) s = Add(a, b) y = Cast<to = 11>(s)",
    ),
    "float16 at the border": (
        "float16",
        "a = Cast<to = 1>(x) b = Cast<to = 1>(z) s = Mul(a, b) y = Cast<to = 10>(s)",
    ),
    "constants in float16": ("float32", "w = Cast<to = 1>(c) s = Mul(x, w) y = Add(s, z)", "", "float16 c = {15872}"),
    "bytes": ("uint8", "a = Cast<to = 1>(x) b = Cast<to = 1>(z) s = Sub(a, b) r = Relu(s) y = Cast<to = 2>(r)"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_conversions_at_the_border_are_taken(name: str, tmp_path: Path) -> None:
    dtype = TAKEN[name][0]
    x = np.array([0, 200, 3, 250] if dtype == "uint8" else [0.1, -300, 1e-4, 60000]).astype(dtype)
    require_right(model_of(*TAKEN[name]), "openvino", {"x": x, "z": x[::-1].copy()}, tmp_path)
