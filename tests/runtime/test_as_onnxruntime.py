"""A session answers as ``onnxruntime.InferenceSession`` does, for the shapes of its profiles and for any others."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest

import collage_evo
from collage_evo.errors import InputError
from collage_evo.models.builder import Builder
from collage_evo.report.artifact import print_artifact, print_bench
from collage_evo.runtime.artifact import Profile, read_artifact, write_artifact
from collage_evo.runtime.bench import bench_artifact
from collage_evo.runtime.session import Session
from collage_evo.runtime.signature import signature_of
from tests.runtime.helpers import TARGET, sums, whole

OPEN = sums("rows")
K = np.array([3], np.int64)
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Profiles for two and five rows, in two backends, and a fall-back for others."""
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
    for mine, reference in (
        (ours.get_inputs(), theirs.get_inputs()),
        (ours.get_outputs(), theirs.get_outputs()),
    ):
        assert [(a.name, a.type, a.shape) for a in mine] == [(a.name, a.type, a.shape) for a in reference]
    assert ours.get_providers() == theirs.get_providers()
    given, expected = ours.get_modelmeta(), theirs.get_modelmeta()
    for name in (
        *("producer_name", "graph_name", "graph_description", "domain", "description", "version"),
        "custom_metadata_map",
    ):
        assert getattr(given, name) == getattr(expected, name)


def test_types_and_open_shapes_go_by_onnx_runtimes_names() -> None:
    for kind in ("FLOAT16", "DOUBLE", "BFLOAT16", "UINT8", "BOOL", "STRING"):
        given = onnx.helper.make_tensor_value_info("x", getattr(onnx.TensorProto, kind), ["n", None, 3])
        made = onnx.helper.make_tensor_value_info("y", getattr(onnx.TensorProto, kind), ["n", None, 3])
        node = onnx.helper.make_node("Identity", ["x"], ["y"])
        graph = onnx.helper.make_graph([node], "g", [given], [made])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
        expected = ort.InferenceSession(model.SerializeToString()).get_inputs()[0]
        (found,) = signature_of(model).inputs
        assert (found.type, found.shape) == (expected.type, expected.shape)


def test_a_size_of_minus_one_is_open(tmp_path: Path) -> None:
    given = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [-1, 3])
    made = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [-1, 3])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [given], [made])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
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


def test_a_closed_session_runs_nothing(artifact: Path) -> None:
    session = collage_evo.load(artifact)
    session.run(None, {"x": rows(3), "k": K})
    session.close()
    for n in (2, 3):
        with pytest.raises(InputError, match="closed"):
            session.run(None, {"x": rows(n), "k": K})


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
    print_bench(other, profile=True)
    assert "in the fall-back" in capsys.readouterr().out
    print_artifact(read_artifact(artifact))
    told = capsys.readouterr().out
    for line in ("input x: tensor(float)[rows, 4]", "profile 1: x [5, 4], k [1]", "any other shapes:"):
        assert line in told


def test_text_and_extended_floats_go_in_and_come_out(tmp_path: Path) -> None:
    for kind, given in (("STRING", np.array(["a", "bc"])), ("BFLOAT16", np.array([1.5, 2.0], ml_dtypes.bfloat16))):
        net = Builder("identity")
        model = net.model(net.op("Identity", net.input("x", (2,), getattr(onnx.TensorProto, kind)), output="y"))
        write_artifact(tmp_path / kind, [Profile(whole(model, tmp_path))], TARGET, signature_of(model))
        with collage_evo.load(tmp_path / kind) as session:
            assert session.get_inputs()[0].type == f"tensor({kind.lower()})"
            np.testing.assert_array_equal(session.run(None, {"x": given})[0], given)
