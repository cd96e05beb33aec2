"""Open shapes in a library that does not refuse those that a model cannot take: another runs each shape first."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from collage_evo.answer.delivery import Delivery
from collage_evo.backends.enumerate import supported_nodes
from collage_evo.backends.registry import get_backend
from collage_evo.errors import InputError
from collage_evo.fitness.compile.cache import PieceCache
from collage_evo.fitness.compile.compiler import Compiler
from collage_evo.genome.failure import Failed, Fault
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.load.load import ModelFile
from collage_evo.graph.prepare import PreparedModel, prepare_model, searchable
from collage_evo.graph.reference.reference import Reference
from collage_evo.models.builder import Builder
from collage_evo.patterns.match import Placement, Region
from collage_evo.runtime.artifact import Profile, load_artifact, write_artifact
from collage_evo.runtime.bench import bench_artifact
from collage_evo.runtime.program import Program
from collage_evo.runtime.session import Session
from collage_evo.runtime.signature import signature_of
from tests.graph.test_open_models import MODELS, OTHERS, SEEN, Net, feeds
from tests.runtime.helpers import TARGET, whole
from tests.support.models import parse_graph

Feeds = dict[str, np.ndarray]


def prepared(model: onnx.ModelProto, folder: Path, samples: list[Feeds]) -> PreparedModel:
    onnx.save(model, folder / "m.onnx")
    return prepare_model(ModelFile(str(folder / "m.onnx")), {}, 1, 1, samples, is_open=True)


def compiler(folder: Path) -> Compiler:
    return Compiler(TARGET, PieceCache(folder / "cache", 2**30))


def single_pieces(graph: Graph, folder: Path) -> Program:
    """Each operator that OpenVINO takes as a piece there, the others in ONNX Runtime."""
    taken, _ = supported_nodes(graph, get_backend("openvino"))
    engines = ["openvino" if taken >> node.index & 1 else "onnxruntime" for node in graph.nodes]
    regions = tuple(Region(1 << index, engine, "default") for index, engine in enumerate(engines))
    try:
        return compiler(folder).placement(graph, Placement(regions))
    except Failed as failed:  # of a piece that OpenVINO cannot compile, which a search leaves out
        pytest.skip(str(failed))


SOME = (
    *("first_few", "padded_to_multiple", "positions_by_range", "causal", "heads", "tiled", "by_shorter_branch"),
    *("nonzero", "resized", "recurrent", "joined", "even", "nothing_left"),
)


@pytest.mark.parametrize("name", SOME)
def test_other_shapes_give_the_right_numbers(name: str, tmp_path: Path) -> None:
    net = Net()
    model = net.model(net.op("Identity", MODELS[name](net), output="y"))
    found = prepared(model, tmp_path, [feeds(1, length) for length in SEEN])
    reference, fallback = Reference(model, 1), whole(found.original, tmp_path / "cache")
    programs = [single_pieces(searchable(found, 1).graph, tmp_path)]
    with contextlib.suppress(Failed):
        programs.append(compiler(tmp_path).whole(found.original, "openvino", "default"))
    for program in programs:
        with Session([program], TARGET, fallback=fallback) as session:
            for shape in OTHERS:
                try:
                    (expected,) = reference.run(feeds(*shape))
                except InputError:
                    with pytest.raises(InputError):
                        session.run(None, feeds(*shape))
                    continue
                for _ in range(2):
                    (y,) = session.run(None, feeds(*shape))
                    assert y.shape == expected.shape, shape
                    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5, err_msg=str(shape))


PRODUCT = "(float[n, k] x, float[j, 3] z) => (float[n, 3] y) { r = Relu(x) y = MatMul(r, z) }"


def product(rows: int, inner: int, other: int) -> Feeds:
    rng = np.random.default_rng(rows)
    return {"x": rng.standard_normal((rows, inner), np.float32), "z": rng.standard_normal((other, 3), np.float32)}


@pytest.fixture
def programs(tmp_path: Path) -> tuple[Program, Program]:
    """A product of two inputs of open shapes in OpenVINO and in ONNX Runtime."""
    found = prepared(parse_graph(f"g {PRODUCT}"), tmp_path, [product(2, 4, 4), product(3, 5, 5)])
    return whole(found.original, tmp_path / "cache", "openvino"), whole(found.original, tmp_path / "cache")


def test_a_shape_that_the_model_cannot_take_is_refused_each_time_and_the_next_run_is_right(
    programs: tuple[Program, Program],
) -> None:
    with Session([programs[0]], TARGET, fallback=programs[1]) as session:
        for _ in range(2):
            with pytest.raises(InputError, match="onnxruntime cannot run the model on these inputs"):
                session.run(None, product(2, 4, 5))
            with pytest.raises(InputError, match="onnxruntime cannot run the model on these inputs"):
                session.feed(product(2, 5, 4))
            for _ in range(2):
                feed = product(2, 4, 4)
                (y,) = session.run(None, feed)
                np.testing.assert_allclose(y, np.maximum(feed["x"], 0) @ feed["z"], rtol=1e-5)


def test_the_answer_to_the_first_request_of_a_shape_is_that_to_later_ones(programs: tuple[Program, Program]) -> None:
    with Session([programs[0]], TARGET, fallback=programs[1]) as session:
        ran = []
        for feed in (product(2, 4, 4), product(2, 4, 4), product(3, 4, 4), product(2, 0, 0), product(2, 0, 0)):
            session.run(None, feed)
            ran.append(session.program.pieces[0].backend)
        assert ran == [*["openvino"] * 3, *["onnxruntime"] * 2], "empty ones stay there"
        session.feed(product(7, 4, 4))
        session.execute()
        assert session.program.pieces[0].backend == "openvino", "what is measured"


def test_an_index_beyond_its_table_is_refused_at_a_shape_that_has_run(tmp_path: Path) -> None:
    net = Builder("table")
    rows = net.op("Gather", net.const(np.eye(9, dtype=np.float32)), net.input("i", (1, "length"), TensorProto.INT64))
    ids = [{"i": np.arange(length)[None]} for length in (3, 5)]
    found = prepared(net.model(net.op("Relu", rows, output="y")), tmp_path, ids)
    of_openvino, fallback = (whole(found.original, tmp_path / "cache", name) for name in ("openvino", "onnxruntime"))
    with Session([of_openvino], TARGET, fallback=fallback) as session:
        for _ in range(2):
            for wrong in (9, -10):
                with pytest.raises(InputError, match=f"idx={wrong} must be within the inclusive range"):
                    session.run(None, {"i": np.array([[0, wrong, 1]])})
            assert session.run(None, ids[0])[0].argmax(-1).tolist() == [[0, 1, 2]]


def test_sizes_by_values_are_no_openvino_piece(tmp_path: Path) -> None:
    net = Builder("values")
    x, n = net.input("x", ("length", 8)), net.input("n", (1,), TensorProto.INT64)
    cut = net.op("Slice", net.op("Relu", x), net.ints(0), n, net.ints(0))
    model = net.model(net.op("Neg", cut, output="y"))
    samples = [{"x": np.ones((length, 8), np.float32), "n": np.array([2])} for length in (4, 6)]
    found = prepared(model, tmp_path, samples)
    with pytest.raises(Failed) as refused:
        compiler(tmp_path).whole(found.original, "openvino", "default")
    assert refused.value.failure.fault is Fault.DECLINED
    graph = searchable(found, 1).graph
    taken, _ = supported_nodes(graph, get_backend("openvino"))
    assert [node.op_type for node in graph.nodes if taken >> node.index & 1] == ["Relu"]


def test_open_shapes_of_which_no_run_says_what_they_follow_are_no_openvino_piece(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="shapes in x may depend on values") as refused:
        compiler(tmp_path).whole(parse_graph(f"g {PRODUCT}"), "openvino", "default")
    assert refused.value.failure.fault is Fault.DECLINED


def test_a_shape_below_the_least_checked_stays_with_the_fallback(tmp_path: Path) -> None:
    model = parse_graph("g (float[n, 8, h, w] x) => (float[n, 8, a, b] y) { y = MaxPool<kernel_shape=[2,2]>(x) }")
    image = {size: {"x": np.random.default_rng(size).random((1, 8, size, size), np.float32)} for size in (1, 4, 6, 9)}
    found = prepared(model, tmp_path, [image[4], image[6]])
    for backend in ("openvino", "onnxruntime"):
        program = whole(found.original, tmp_path / "cache", backend)
        write_artifact(tmp_path / f"{backend}.collage", [Profile(program)], TARGET)
    fallback, least = tmp_path / "onnxruntime.collage", {"x": [1, 8, 4, 4]}
    delivery = Delivery(tmp_path, TARGET, signature_of(model), fallback, least)
    reference, ran = Reference(model, 1), list[str]()
    with load_artifact(delivery.put(tmp_path / "openvino.collage")) as session:
        for size in (9, 9, 1, 1, 4):
            np.testing.assert_array_equal(session.run(None, image[size])[0], reference.run(image[size])[0])
            ran.append(session.program.pieces[0].backend)
    assert ran == ["openvino", "openvino", "onnxruntime", "onnxruntime", "openvino"]
    for size in (1, 9):
        np.savez(tmp_path / f"{size}.npz", **image[size])
        (report,) = bench_artifact(delivery.best, tmp_path / f"{size}.npz", 0, 1)
        assert report.fallback == (size == 1)


def test_an_artifact_without_the_fallback_is_not_served(tmp_path: Path, programs: tuple[Program, Program]) -> None:
    write_artifact(tmp_path / "a.collage", [Profile(programs[0])], TARGET)
    with pytest.raises(InputError, match=r"has no fallback to refuse shapes with: load best\.collage of its run"):
        load_artifact(tmp_path / "a.collage")
    write_artifact(tmp_path / "b.collage", [Profile(programs[0])], TARGET, fallback=programs[1])
    feed = product(2, 4, 4)
    for artifact, proven in (("a", True), ("b", False), ("b", True)):
        with load_artifact(tmp_path / f"{artifact}.collage", proven=proven) as session:
            session.run(None, feed)
            assert session.program.pieces[0].backend == "openvino"
            assert ("CPUExecutionProvider" in session.get_providers()) == (not proven), "who would refuse a shape"
