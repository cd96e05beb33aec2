"""A session answers as ``onnxruntime.InferenceSession`` does, for the shapes of its profiles and for any others."""

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest

import collage_evo
from collage_evo.errors import InputError
from collage_evo.report.listings import print_artifact, print_bench
from collage_evo.runtime.artifact import Profile, read_artifact, write_artifact
from collage_evo.runtime.bench import bench_artifact
from collage_evo.runtime.session import Session
from collage_evo.runtime.signature import signature_of
from tests.runtime.helpers import TARGET, sums, whole
from tests.support.models import parse_graph

OPEN = sums("rows")
K = np.array([3], np.int64)
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Profiles for two and five rows, in two backends, and a fallback for others."""
    folder = tmp_path_factory.mktemp("profiles")
    cache = folder / "pieces"
    profiles = [
        Profile(whole(sums(2), cache, "openvino"), {"key": "two"}),
        Profile(whole(sums(5), cache), {"key": "five"}),
    ]
    write_artifact(folder / "a.collage", profiles, TARGET, signature_of(OPEN), whole(OPEN, cache))
    return folder / "a.collage"


@pytest.fixture
def ours(artifact: Path) -> Iterator[Session]:
    with collage_evo.load(artifact) as session:
        yield session


@pytest.fixture(scope="module")
def theirs() -> ort.InferenceSession:
    return ort.InferenceSession(OPEN.SerializeToString(), providers=["CPUExecutionProvider"])


def rows(n: int) -> np.ndarray:
    return RNG.standard_normal((n, 4)).astype(np.float32)


def test_it_describes_its_model_in_the_same_words(ours: Session, theirs: ort.InferenceSession) -> None:
    mine, reference = ([*one.get_inputs(), *one.get_outputs()] for one in (ours, theirs))
    assert [(a.name, a.type, a.shape) for a in mine] == [(a.name, a.type, a.shape) for a in reference]
    given, expected = ours.get_modelmeta(), theirs.get_modelmeta()
    for name in (
        *("producer_name", "graph_name", "graph_description", "domain", "description", "version"),
        "custom_metadata_map",
    ):
        assert getattr(given, name) == getattr(expected, name)


def test_types_and_open_shapes_go_by_onnx_runtimes_names() -> None:
    for kind in ("float16", "double", "bfloat16", "uint8", "bool", "string"):
        model = parse_graph(f"g ({kind}[n, ?, 3] x) => ({kind}[n, ?, 3] y) {{ y = Identity(x) }}")
        expected = ort.InferenceSession(model.SerializeToString()).get_inputs()[0]
        (found,) = signature_of(model).inputs
        assert (found.type, found.shape) == (expected.type, expected.shape)


def test_a_size_of_minus_one_is_open(tmp_path: Path) -> None:
    model = parse_graph("g (float[1, 3] x) => (float[1, 3] y) { y = Relu(x) }")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    expected = ort.InferenceSession(model.SerializeToString()).get_inputs()[0].shape
    assert [arg.shape for arg in (*signature_of(model).inputs, *signature_of(model).outputs)] == [expected] * 2
    x = RNG.standard_normal((4, 3)).astype(np.float32)
    with Session([whole(model, tmp_path)], TARGET) as session:
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))


def test_every_shape_gets_the_models_answer(ours: Session, theirs: ort.InferenceSession) -> None:
    for n, backend in ((2, "openvino"), (5, "onnxruntime"), (3, "onnxruntime"), (0, "onnxruntime"), (2, "openvino")):
        feeds = {"x": rows(n), "k": K}
        np.testing.assert_allclose(ours.run(None, feeds)[0], theirs.run(None, feeds)[0], rtol=1e-6)
        assert ours.program.pieces[0].backend == backend
        assert ours.program.shapes[0] == ((n, 4) if n in (2, 5) else None)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize(
    "change",
    [
        lambda x: np.asfortranarray(x),
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: x.astype(">f4"),
        lambda x: x.tolist(),
        lambda x: np.ma.array(x),
        lambda x: ort.OrtValue.ortvalue_from_numpy(x),
    ],
    ids=["fortran", "strided", "big-endian", "list", "masked", "OrtValue"],
)
def test_it_takes_what_onnx_runtime_takes(ours: Session, change: Any, n: int) -> None:
    x = rows(n)
    np.testing.assert_array_equal(
        ours.run(["y"], {"x": change(x), "k": [3]})[0], ours.run(["y"], {"x": x, "k": K})[0]
    )


def test_no_names_are_all_names_and_options_may_be_given(ours: Session, theirs: ort.InferenceSession) -> None:
    feeds = {"x": rows(2), "k": K}
    for names in (None, [], ["y"], ("y", "y")):
        found, expected = ours.run(names, feeds, ort.RunOptions()), theirs.run(names, feeds, ort.RunOptions())
        assert len(found) == len(expected)
    assert len(ours.run(output_names=None, input_feed=feeds, run_options=None)) == 1


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 5), np.float32), r"x' is float32\[2, 5\]; this model takes float32\[\?, 4\]"),
        (np.zeros((2, 2, 4), np.float32), r"float32\[2, 2, 4\]"),
        (np.zeros((2, 4)), "is float64"),
        (np.float64(1), "is float64"),
        ([[1.0], [1.0, 2.0]], "input 'x' is no array"),
        (["a"], "input 'x' is no array"),
    ],
)
def test_what_onnx_runtime_refuses_is_refused_by_name(ours: Session, x: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ours.run(None, {"x": x, "k": K})
    assert ours.run(None, {"x": rows(2), "k": K})[0].shape == (2, 4), "and harms nothing"


def test_without_a_fall_back_a_shape_of_no_profile_is_named(artifact: Path) -> None:
    found = read_artifact(artifact)
    message = r"no profile .* takes x float32\[3, 4\], k int64\[1\]: add it"
    with (
        Session([profile.program for profile in found.profiles], TARGET) as session,
        pytest.raises(InputError, match=message),
    ):
        session.run(None, {"x": rows(3), "k": K})


def test_timing_and_inspection_go_by_profile(
    artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two, five = bench_artifact(artifact, None, warmup=0, repeat=2)
    assert [two.inputs["x"], five.inputs["x"]] == [("float32", (2, 4)), ("float32", (5, 4))]
    assert [report.regions[0][0] for report in (two, five)] == ["openvino/default", "onnxruntime/default"]
    np.savez(tmp_path / "x.npz", x=rows(3), k=K)
    (other,) = bench_artifact(artifact, tmp_path / "x.npz", warmup=0, repeat=2)
    assert (other.fallback, other.outputs["y"]) == (True, ("float32", (3, 4)))
    np.savez(tmp_path / "none.npz", x=rows(0), k=K)
    with pytest.raises(InputError, match=r"none\.npz has no row of 'x'"):
        bench_artifact(artifact, tmp_path / "none.npz", warmup=0, repeat=2)
    print_bench(other)
    assert "in the fallback" in capsys.readouterr().out
    print_artifact(read_artifact(artifact))
    printed = capsys.readouterr().out
    for line in ("input x: tensor(float)[rows, 4]", "profile 1: x [5, 4], k [1]", "any other shapes:"):
        assert line in printed


def test_text_and_extended_floats_go_in_and_come_out(tmp_path: Path) -> None:
    for kind, given in (("string", np.array(["a", "bc"])), ("bfloat16", np.array([1.5, 2.0], ml_dtypes.bfloat16))):
        model = parse_graph(f"g ({kind}[2] x) => ({kind}[2] y) {{ y = Identity(x) }}")
        write_artifact(tmp_path / kind, [Profile(whole(model, tmp_path))], TARGET, signature_of(model))
        with collage_evo.load(tmp_path / kind) as session:
            assert session.get_inputs()[0].type == f"tensor({kind})"
            np.testing.assert_array_equal(session.run(None, {"x": given})[0], given)


def test_its_providers_are_the_libraries_that_run(ours: Session, tmp_path: Path) -> None:
    assert ours.get_providers() == ["OpenVINOExecutionProvider", "CPUExecutionProvider"]
    with Session([whole(sums(2), tmp_path, "openvino")], TARGET) as session:
        assert session.get_providers() == ["OpenVINOExecutionProvider"]
    assert session.get_providers() == ["OpenVINOExecutionProvider"], "also once it is closed"
    with Session([whole(sums(2), tmp_path, "tvm")], TARGET) as session:
        assert session.get_providers() == ["tvm"], "no provider of ONNX Runtime"


def test_its_options_are_the_threads_and_no_profile_is_promised(ours: Session) -> None:
    options = ours.get_session_options()
    assert (options.intra_op_num_threads, options.enable_profiling) == (TARGET.threads, False)
    with pytest.raises(InputError, match=r"call profile\(\) for the milliseconds of each piece"):
        ours.end_profiling()


def test_ort_values_go_in_and_come_out(ours: Session, theirs: ort.InferenceSession) -> None:
    for n in (2, 3):
        feeds = {"x": ort.OrtValue.ortvalue_from_numpy(rows(n)), "k": ort.OrtValue.ortvalue_from_numpy(K)}
        for names in (["y"], None):
            (found,), (expected,) = (one.run_with_ort_values(names, feeds) for one in (ours, theirs))
            assert isinstance(found, ort.OrtValue)
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)


def test_ort_values_of_types_that_numpy_lacks_go_in_and_come_out(tmp_path: Path) -> None:
    model = parse_graph("g (bfloat16[2] x) => (bfloat16[2] y) { y = Identity(x) }")
    x = ort.OrtValue.ortvalue_from_shape_and_type([2], onnx.TensorProto.BFLOAT16)
    bits = np.array([0x3F80, 0x4000], np.uint16)
    ctypes.memmove(x.data_ptr(), bits.ctypes.data, bits.nbytes)
    with Session([whole(model, tmp_path)], TARGET) as session:
        (y,) = session.run_with_ort_values(None, {"x": x})
        assert y.data_type() == "tensor(bfloat16)"
        assert ctypes.string_at(y.data_ptr(), 4) == bits.tobytes()


BELOW = np.zeros((64, 64))
"""Memory for bindings of odd types and shapes."""
BINDINGS: list[Callable[[Any, np.ndarray, np.ndarray], object]] = [
    lambda bound, x, y: (bound.bind_cpu_input("x", x), bound.bind_output("y")),
    lambda bound, x, y: (
        bound.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x)),
        bound.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(y)),
    ),
    lambda bound, x, y: (
        bound.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data),
        bound.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data),
    ),
    lambda bound, x, y: (
        bound.bind_input("x", "cpu", 0, onnx.TensorProto.FLOAT, x.shape, x.ctypes.data),
        bound.bind_output("y", "cpu", 0, onnx.TensorProto.FLOAT, y.shape, y.ctypes.data),
    ),
]


@pytest.mark.parametrize("n", [2, 3, 0])
@pytest.mark.parametrize("bind", BINDINGS, ids=["names", "OrtValues", "pointers", "numbers of types"])
def test_what_is_bound_is_read_and_written_as_onnx_runtime_does(
    ours: Session, theirs: ort.InferenceSession, bind: Callable[..., object], n: int
) -> None:
    answers = []
    for session in (ours, theirs):
        x, y, bound = np.full((n, 4), 2, np.float32), np.full((n, 4), 7, np.float32), session.io_binding()
        bind(bound, x, y)
        bound.bind_cpu_input("k", K)
        bound.synchronize_inputs()
        for value in (1, 5):
            x[...] = value
            session.run_with_iobinding(bound, ort.RunOptions())
            bound.synchronize_outputs()
            (held,), (copied,) = bound.get_outputs(), bound.copy_outputs_to_cpu()
            answers.append((held.numpy().tolist(), copied.tolist(), y.tolist()))
    assert answers[:2] == answers[2:]
    if n:
        assert answers[0][0] != answers[1][0], "what is written later is read"


def test_what_was_bound_can_be_forgotten(ours: Session) -> None:
    bound = ours.io_binding()
    bound.bind_cpu_input("x", rows(2))
    bound.bind_cpu_input("k", K)
    with pytest.raises(InputError, match="no output is bound"):
        ours.run_with_iobinding(bound)
    bound.bind_output("y")
    ours.run_with_iobinding(bound)
    bound.clear_binding_outputs()
    assert bound.get_outputs() == bound.copy_outputs_to_cpu() == []
    bound.bind_output("y")
    bound.clear_binding_inputs()
    with pytest.raises(InputError, match="input 'x' is missing"):
        ours.run_with_iobinding(bound)


class Odd:
    """No array, no name, no number: its conversions raise what nobody expects."""

    def numpy(self) -> Any:
        raise RuntimeError("a\nb")

    data_type = numpy


ODD: list[Any] = [
    *(None, True, -1, 7, 2**70, 1.5, float("nan"), "", "x", "y", "a\nb", b"x", object(), Odd(), int, np.int64(3)),
    *([], {}, (), [None], [[1], [1, 2]], [2**70], ["x"], {"x": 1}, {1: 2, "z": 3}, np.zeros(0), np.array(["x", "y"])),
    *([-1, 4], [2**40, 2**40], [1.5], np.dtype("O"), np.dtype([("a", "f4")]), "float32", onnx.TensorProto.FLOAT, 99),
]
CALLS: dict[str, tuple[str, list[Any]]] = {
    "run": ("session", [["y"], {"x": rows(2), "k": K}]),
    "run_with_ort_values": ("session", [["y"], {"x": rows(2), "k": K}]),
    "run_with_iobinding": ("session", [None]),
    "run_on_device": ("session", [{"x": rows(2), "k": K}]),
    "feed": ("session", [{"x": rows(2), "k": K}]),
    "read": ("session", ["y"]),
    "copies": ("session", ["y"]),
    "bind_cpu_input": ("binding", ["x", rows(2)]),
    "bind_ortvalue_input": ("binding", ["x", ort.OrtValue.ortvalue_from_numpy(rows(2))]),
    "bind_ortvalue_output": ("binding", ["y", ort.OrtValue.ortvalue_from_numpy(rows(2))]),
    "bind_input": ("binding", ["x", "cpu", 0, np.float32, [1, 4], BELOW.ctypes.data]),
    "bind_output": ("binding", ["y", "cpu", 0, np.float32, [1, 4], BELOW.ctypes.data]),
}


@pytest.mark.parametrize("method", CALLS)
def test_odd_arguments_of_any_method_are_input_errors(ours: Session, method: str) -> None:
    of, usual = CALLS[method]
    refused = []
    for place in range(len(usual)):
        for odd in ODD:
            binding = ours.io_binding()
            binding.bind_cpu_input("k", K)
            arguments = [*usual[:place], odd, *usual[place + 1 :]]
            try:
                getattr(ours if of == "session" else binding, method)(*arguments)
                if of == "binding" and place < 5:  # not on memory at an odd address
                    ours.run_with_iobinding(binding)
            except InputError as error:
                refused.append(str(error).replace("a\nb", ""))
    assert refused
    assert "\n" not in "".join(refused)
    feeds = {"x": rows(2), "k": K}
    for name in feeds:
        for odd in ODD:
            with contextlib.suppress(InputError):
                ours.run(None, {**feeds, name: odd})


@pytest.mark.parametrize(
    ("bind", "message"),
    [
        (lambda bound: bound.bind_cpu_input("z", K), "no input 'z': this model has x, k"),
        (lambda bound: bound.bind_output("x"), "no output 'x': this model has y"),
        (lambda bound: bound.bind_output("y", "cuda"), "'y' is bound to cuda: bind memory of the host"),
        (lambda bound: bound.bind_output("y", buffer_ptr=K.ctypes.data), "give element_type and shape"),
        (lambda bound: bound.bind_output("y", "cpu", 0, 99, [1], K.ctypes.data), "99 is no element type of ONNX"),
        (lambda bound: bound.bind_output("y", "cpu", 0, np.int64, [1], K.ctypes.data), "bound to int64"),
        (lambda bound: bound.bind_output("y", "cpu", 0, 22, [1], K.ctypes.data), "int4, which have no addresses"),
    ],
)
def test_what_cannot_be_bound_is_named(ours: Session, bind: Callable[[Any], object], message: str) -> None:
    bound = ours.io_binding()
    bound.bind_cpu_input("x", rows(2))
    bound.bind_cpu_input("k", K)

    def run() -> None:
        bind(bound)
        ours.run_with_iobinding(bound)

    with pytest.raises(InputError, match=message):
        run()
    assert K.tolist() == [3], "and writes nowhere"


def test_an_output_that_is_no_tensor_is_no_ort_value(tmp_path: Path) -> None:
    model = parse_graph("g (float[2] x) => (seq(float[2]) y) { y = SequenceConstruct(x) }")
    with Session([whole(model, tmp_path)], TARGET) as session:
        feeds = {"x": np.ones(2, np.float32)}
        with pytest.raises(InputError, match="output 'y' is no tensor and cannot be an OrtValue: call run"):
            session.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(feeds["x"])})
        np.testing.assert_array_equal(session.run(None, feeds)[0], [feeds["x"]])


@pytest.mark.parametrize(
    ("ir", "message"), [(8, "'w' has a value in the model's file, which is compiled in"), (3, "no input 'w'")]
)
def test_a_weight_that_is_an_input_too_is_compiled_in_and_says_so(tmp_path: Path, ir: int, message: str) -> None:
    """Of an older version, where ONNX Runtime takes no other value either, it is no input."""
    text = "g (float[4] x, float[4] w) => (float[4] z) <float[4] w = {1, 2, 3, 4}> { z = Mul(x, w) }"
    model = parse_graph(text, 8, ir)
    theirs = ort.InferenceSession(model.SerializeToString())
    x = np.ones(4, np.float32)
    write_artifact(tmp_path / "a.collage", [Profile(whole(model, tmp_path))], TARGET, signature_of(model))
    with collage_evo.load(tmp_path / "a.collage") as session:
        assert [one.name for one in session.get_inputs()] == [one.name for one in theirs.get_inputs()] == ["x"]
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], theirs.run(None, {"x": x})[0])
        with pytest.raises(InputError, match=message):
            session.run(None, {"x": x, "w": x})
