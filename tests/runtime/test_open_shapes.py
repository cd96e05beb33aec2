"""Pieces whose tensors have no buffer: what the library makes comes out, whatever its shape and type."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from collage_evo.backends.base import Backend
from collage_evo.backends.capabilities import refuses_shapes
from collage_evo.backends.registry import get_backend, probe_all
from collage_evo.errors import InputError
from collage_evo.graph.ir.elements import EXTENDED
from collage_evo.graph.ir.values import plain, read_values, save_values
from collage_evo.graph.load.load import ModelFile
from collage_evo.graph.prepare import prepare_model, searchable
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.runtime.artifact import Profile, load_artifact, write_artifact
from collage_evo.runtime.program import Program
from collage_evo.runtime.runner import load_piece
from collage_evo.runtime.session import RECENT, Session
from collage_evo.runtime.signature import signature_of
from tests.runtime.helpers import TARGET, alternating, whole
from tests.support.models import parse_graph

FOUND = parse_graph("g (float[3, 4] x) => (int64[2, n] y, float[3, 4] z) { r = Relu(x) y = NonZero(r) z = Neg(r) }")


@pytest.mark.parametrize("backends", [("onnxruntime",), ("openvino",), ("onnxruntime", "openvino")])
def test_an_output_has_another_shape_at_each_run(tmp_path: Path, backends: tuple[str, ...]) -> None:
    onnx.save(FOUND, tmp_path / "m.onnx")
    graph = searchable(prepare_model(ModelFile(str(tmp_path / "m.onnx")), {}, 1, 1), 1).graph
    with Session([alternating(graph.model, tmp_path / "cache", backends)], TARGET) as session:
        for seed in range(3):
            x = np.random.default_rng(seed).standard_normal((3, 4), np.float32)
            y, z = session.run(None, {"x": x})
            np.testing.assert_array_equal(y, np.argwhere(x > 0).T)
            np.testing.assert_array_equal(z, -np.maximum(x, 0))


def maps() -> onnx.ModelProto:
    zipped = "ai.onnx.ml.ZipMap<classlabels_int64s = [4, 7]>"
    model = parse_graph(f"g (float[2, 2] x) => (float y) {{ y = {zipped}(x) }}")
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 2))
    kind = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, ()))
    model.graph.output[0].CopyFrom(helper.make_value_info("y", helper.make_sequence_type_proto(kind)))
    return model


ODD: dict[str, tuple[onnx.ModelProto, dict[str, Any]]] = {
    "strings": (
        parse_graph("g (string[3] x) => (string[3] y) { y = Identity(x) }"),
        {"x": np.array(["a", "", "long text"], object)},
    ),
    "maps": (maps(), {"x": np.array([[0.5, 1.5], [2.5, 3.5]], np.float32)}),
    "a sequence": (
        parse_graph("g (float[2, 3] x) => (seq(float[a, 3]) y) { y = SplitToSequence<axis = 0>(x) }"),
        {"x": np.ones((2, 3), np.float32)},
    ),
    "float16": (parse_graph("g (float16[4] x) => (float16[4] y) { y = Add(x, x) }"), {"x": np.ones(4, np.float16)}),
    "float64": (parse_graph("g (double[4] x) => (double[4] y) { y = Add(x, x) }"), {"x": np.full(4, 1e300)}),
    "no rows": (parse_graph("g (float[0] x) => (float[0] y) { y = Neg(x) }"), {"x": np.ones(0, np.float32)}),
}


@pytest.mark.parametrize("case", ODD)
def test_values_of_every_type_cross_the_border(tmp_path: Path, case: str) -> None:
    model, feeds = ODD[case]
    expected = plain(reference_outputs(model, feeds))
    with Session([whole(model, tmp_path)], TARGET) as session:
        assert relative_error(plain(session.run(None, feeds)), expected).relative == 0.0
    save_values(tmp_path / "kept.npz", {"in0": feeds, "out0": dict(zip(["y"], expected, strict=True))})
    assert relative_error([read_values(tmp_path / "kept.npz")["out0"]["y"]], expected).relative == 0.0


@pytest.mark.parametrize("dtype", sorted(set(EXTENDED) - {"float4_e2m1fn"}))  # of which no library runs anything
@pytest.mark.parametrize("size", [5, "n"])
def test_types_that_numpy_lacks_go_in_and_out(tmp_path: Path, dtype: str, size: int | str) -> None:
    kind, number = EXTENDED[dtype].name, EXTENDED[dtype].number
    body = f"wide = Cast<to = 1>(x) y = Cast<to = {number}>(wide)"
    model = parse_graph(f"g ({kind}[{size}] x) => ({kind}[{size}] y) {{ {body} }}", 25, 13)
    given = np.array([1.0, 0.0, 1.0, 0.5, 1.0], np.float32).astype(dtype)
    write_artifact(tmp_path / "a.collage", [Profile(whole(model, tmp_path))], TARGET)
    with load_artifact(tmp_path / "a.collage") as session:
        (made,) = session.run(None, {"x": given})
        assert session.get_inputs()[0].type == f"tensor({kind})"
    assert made.dtype == given.dtype
    assert made.tobytes() == given.tobytes()
    save_values(tmp_path / "kept.npz", {"in0": {"x": given}})
    kept = read_values(tmp_path / "kept.npz")["in0"]["x"]
    assert kept.dtype == given.dtype
    assert kept.tobytes() == given.tobytes()


PICKY: dict[str, tuple[str, dict[str, tuple[int, ...]], list[dict[str, tuple[int, ...]]]]] = {
    "a product": (
        "(float[n, k] x, float[j, m] z) => (float[n, m] y) { r = Relu(x) y = MatMul(r, z) }",
        {"x": (2, 4), "z": (4, 3)},
        [{"x": (2, 4), "z": (5, 3)}, {"x": (2, 9), "z": (4, 3)}],
    ),
    "a sum": (
        "(float[n, k] x, float[a, b] z) => (float[c, d] y) { r = Relu(x) y = Add(r, z) }",
        {"x": (2, 4), "z": (1, 4)},
        [{"x": (2, 4), "z": (3, 4)}, {"x": (2, 4), "z": (2, 5)}],
    ),
    "a convolution": (
        "(float[n, c, h, w] x, float[3, 2, 3, 3] z) => (float[n, 3, a, b] y) { y = Conv(x, z) }",
        {"x": (1, 2, 5, 6), "z": (3, 2, 3, 3)},
        [{"x": (1, 3, 8, 8), "z": (3, 2, 3, 3)}, {"x": (1, 2, 2, 2), "z": (3, 2, 3, 3)}],
    ),
    "a concatenation": (
        "(float[n, a] x, float[m, b] z) => (float[c, d] y) { r = Relu(x) y = Concat <axis = 1> (r, z) }",
        {"x": (2, 4), "z": (2, 3)},
        [{"x": (2, 4), "z": (3, 3)}],
    ),
    "another shape": (
        "(float[n, k] x) => (float[a, 4] y) <int64[2] s = {-1, 4}> { r = Relu(x) y = Reshape(r, s) }",
        {"x": (2, 6)},
        [{"x": (3, 3)}],
    ),
}
"""Models with shapes that they take, and some that their operators do not."""


def numbers(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    return {name: np.random.default_rng(0).standard_normal(shape, np.float32) for name, shape in shapes.items()}


def fall_backs() -> list[Backend]:
    usable = (get_backend(name) for name, probe in probe_all() if probe.available)
    return [backend for backend in usable if refuses_shapes(backend)]


@pytest.mark.parametrize("case", PICKY)
def test_a_shape_that_an_operator_cannot_take_raises_and_leaves_the_session_as_it_was(
    tmp_path: Path, case: str
) -> None:
    text, shapes, wrong = PICKY[case]
    model, feeds = parse_graph(f"g {text}"), numbers(shapes)
    expected = reference_outputs(model, feeds)
    for backend in fall_backs():
        with Session([whole(model, tmp_path, backend.name)], TARGET) as session:
            for refused in wrong:
                with pytest.raises(InputError, match=r"^onnxruntime cannot run the model on these inputs: .+$"):
                    session.run(None, numbers(refused))
                assert relative_error(session.run(None, feeds), expected).relative < 1e-6


def test_sizes_of_one_name_are_equal(tmp_path: Path) -> None:
    model = parse_graph("g (float[n, k] x, float[n, k] z) => (float[n, k] y) { y = Add(x, z) }")
    with Session([whole(model, tmp_path)], TARGET, signature_of(model)) as session:
        with pytest.raises(InputError, match="'n' is 2 in input 'x' and 1 in 'z'"):
            session.run(None, numbers({"x": (2, 4), "z": (1, 4)}))
        assert session.run(None, numbers({"x": (2, 4), "z": (2, 4)}))[0].shape == (2, 4)


def test_inputs_in_another_order_are_checked_by_name(tmp_path: Path) -> None:
    model = parse_graph("g (float[n, 3] x, float[n, 4] z) => (float[n, 7] y) { y = Concat <axis = 1> (x, z) }")
    with Session([whole(model, tmp_path)], TARGET, signature_of(model)) as session:
        right = numbers({"x": (2, 3), "z": (2, 4)})
        (expected,) = session.run(None, right)
        np.testing.assert_array_equal(session.run(None, dict(reversed(right.items())))[0], expected)
        with pytest.raises(InputError, match=r"input 'x' is float32\[2, 4\]; this model takes float32\[\?, 3\]"):
            session.run(None, numbers({"z": (2, 3), "x": (2, 4)}))


def test_another_rank_is_refused_before_its_sizes_are_compared(tmp_path: Path) -> None:
    text = "g (float[{n}, {k}] x, float[{n}, {k}] z) => (float[{n}, {k}] y) {{ y = Add(x, z) }}"
    signature = signature_of(parse_graph(text.format(n="n", k="k")))
    fixed, other, any_sizes = (whole(parse_graph(text.format(n=n, k=4)), tmp_path) for n in (2, 3, "n"))
    for programs, reason in (((any_sizes,), r"'x' is float32\[2\]"), ((fixed, other), "no profile")):
        with Session(programs, TARGET, signature) as session:
            with pytest.raises(InputError, match=reason):
                session.run(None, numbers({"x": (2,), "z": (3, 4)}))
            assert session.run(None, numbers({"x": (2, 4), "z": (2, 4)}))[0].shape == (2, 4)


def test_a_shape_is_checked_again_after_many_others(tmp_path: Path) -> None:
    model = parse_graph("g (float[n, k] x, float[n, k] z) => (float[n, k] y) { y = Add(x, z) }")
    with Session([whole(model, tmp_path)], TARGET, signature_of(model)) as session:
        for n in range(1, RECENT + 10):
            assert session.run(None, numbers({"x": (n, 1), "z": (n, 1)}))[0].shape == (n, 1)
        for dtype in (np.float64, np.int32):
            with pytest.raises(InputError, match=f"'x' is {np.dtype(dtype)}"):
                session.run(None, {name: np.ones((1, 1), dtype) for name in ("x", "z")})
        swapped = {name: np.full((5, 1), 2, ">f4") for name in ("x", "z")}
        assert session.run(None, swapped)[0].tolist() == [[4.0]] * 5


def test_outputs_of_open_shapes_share_no_memory(tmp_path: Path) -> None:
    model = parse_graph("g (float[n] x) => (float[n] x, float[n] y) { y = Neg(x) }")
    given = np.ones(3, np.float32)
    with Session([whole(model, tmp_path)], TARGET) as session:
        x, first, second = session.run(["x", "y", "y"], {"x": given})
        session.feed({"x": given})
        session.execute()
        assert not any(np.shares_memory(a, b) for a, b in ((first, second), (x, given), (first, session.read("y"))))
        np.testing.assert_array_equal(second, -given)


def test_a_request_is_not_held_after_its_run(tmp_path: Path) -> None:
    model = parse_graph("g (float[n, 4] x) => (float[n, 4] y) { y = Neg(x) }")
    with Session([whole(model, tmp_path)], TARGET) as session:
        for feeds in ({"x": np.ones((3, 4), np.float32)}, {"x": np.ones((2, 3), np.float32)}):
            x = weakref.ref(feeds["x"])
            with contextlib.suppress(InputError):  # of three columns
                session.run(None, feeds)
            feeds.clear()
            assert x() is None
        for ask in (session.execute, session.profile):
            with pytest.raises(InputError, match="'x' holds nothing: call feed before"):
                ask()
        session.feed({"x": np.ones((2, 4), np.float32)})
        session.run(None, {"x": np.ones((1, 4), np.float32)})
        session.execute()
        np.testing.assert_array_equal(session.read("y"), -np.ones((2, 4)))


class Watched:
    """A loaded piece that remembers what it made, without holding it."""

    def __init__(self, piece: Any) -> None:
        self.bind, self._run = piece.bind, piece.run
        self.made: list[weakref.ref[np.ndarray]] = []

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        outputs = self._run(inputs)
        self.made = [weakref.ref(array) for array in outputs]
        return list(outputs)


@pytest.mark.parametrize("sizes", ["n", "2"])
def test_what_a_library_allocates_is_given_away_uncopied_and_not_held(tmp_path: Path, sizes: str) -> None:
    """``sizes``: of an output, which may be fixed where an input's are open."""
    text = f"g (float[n] x) => (float[{sizes}] y, float[n] z) {{ y = Neg(x) z = Exp(x) }}"
    loaded: list[Watched] = []

    def load(*args: Any) -> Watched:
        loaded.append(Watched(load_piece(*args)))
        return loaded[-1]

    x = np.ones(2, np.float32)
    with Session([whole(parse_graph(text), tmp_path)], TARGET, load=load) as session:
        (y,) = session.run(["y"], {"x": x})
        made, left = loaded[0].made
        assert made() is y, "not copied"
        assert left() is None, "an output that nobody asked for"
        del y
        assert made() is None, "not held"
        for name in ("y", "z"):
            with pytest.raises(InputError, match="holds nothing"):
                session.read(name)
        session.feed({"x": x})
        session.execute()
        np.testing.assert_array_equal(session.read("y"), -x)


def test_a_run_that_fails_holds_nothing_of_what_it_made(tmp_path: Path) -> None:
    first = whole(parse_graph("g (float[3] x) => (int64[1, n] a) { a = NonZero(x) }"), tmp_path)
    second = whole(parse_graph("g (int64[1, n] a, int64[m] z) => (int64[j, k] y) { y = Add(a, z) }"), tmp_path)
    pieces, tensors = (*first.pieces, *second.pieces), {**first.tensors, **second.tensors}
    with Session([Program(pieces, ("x", "z"), ("y",), tensors)], TARGET) as session:
        x = np.ones(3, np.float32)
        with pytest.raises(InputError, match="cannot run the model on these inputs"):
            session.run(None, {"x": x, "z": np.ones(2, np.int64)})
        assert not session._current._values


def test_a_size_that_a_piece_was_taken_to_have_is_not_made_by_copying(tmp_path: Path) -> None:
    first = whole(parse_graph("g (float[n] x) => (float[m] y) { y = Neg(x) }"), tmp_path)
    second = whole(parse_graph("g (float[3] y) => (float[3] z) { z = Abs(y) }"), tmp_path)
    program = Program((*first.pieces, *second.pieces), ("x",), ("z",), {**first.tensors, **second.tensors})
    with Session([program], TARGET) as session:
        np.testing.assert_array_equal(session.run(None, {"x": np.full(3, -2, np.float32)})[0], [2, 2, 2])
        with pytest.raises(InputError, match=r"made 'y' of float32\[1\] for \(3,\)"):
            session.run(None, {"x": np.ones(1, np.float32)})
