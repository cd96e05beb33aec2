"""``explain`` names, for one node or region, who could run it at what cost, and each refusal with its reason."""

from __future__ import annotations

import io
import shutil
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from collage_evo.backends.registry import get_backend
from collage_evo.backends.variants import Arithmetic
from collage_evo.commands.explain import explain_node, explain_region
from collage_evo.config import load_config
from collage_evo.costs.database import CostDatabase
from collage_evo.costs.matches import CostKeys, CostSettings
from collage_evo.errors import InputError
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.load.load import load_model
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.measure.jobs import Measured
from collage_evo.measure.references import read_references
from collage_evo.models.builder import Builder
from collage_evo.patterns.match import Match
from collage_evo.placement.failure import Failure, Fault
from collage_evo.precision.quantise.ranges import calibrate, write_ranges
from collage_evo.report.console import PlainConsole
from collage_evo.report.explain import BackendAnswer, Explanation, RegionExplanation, print_explanation, print_region
from collage_evo.report.progress import LineReporter
from collage_evo.report.result import RESULT, Latency, RegionResult, write_result
from collage_evo.run.context import Workplace
from collage_evo.run.directory import start_run
from collage_evo.run.samples import model_file
from collage_evo.run.stages.model import normalise as normalise_run
from collage_evo.run.stages.model import prepare
from collage_evo.target.target import Target
from tests.report.helpers import make_result
from tests.support.models import tiny_convnet, tiny_transformer
from tests.support.processor import needs


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("explain")
    onnx.save(tiny_transformer(), folder / "tiny.onnx")
    return load_config(
        str(folder / "tiny.onnx"), [f"cache.dir={folder / 'cache'}", "backends.use=[onnxruntime, ncnn]"]
    )


@pytest.fixture(scope="module")
def graph(config):
    return build_graph(normalise(load_model(config.model.source).original))


def by_name(found: Explanation) -> dict[str, BackendAnswer]:
    return {answer.backend: answer for answer in found.answers}


def node_of(graph, op_type: str):
    return next(node for node in graph.nodes if node.op_type == op_type)


def test_who_could_run_it_and_why_another_not(config, graph) -> None:
    answers = by_name(explain_node(config, node_of(graph, "Gather").name))
    assert answers["onnxruntime"].offers[0].operators == ("Gather",)
    assert {offer.reason for offer in answers["onnxruntime"].offers} == {"not measured"}
    assert not answers["ncnn"].offers
    assert answers["ncnn"].refusals[0].pattern == ""
    assert "Gather" in answers["ncnn"].refusals[0].reason


def test_where_only_float32_may_answer_nothing_else_is_offered(config, graph) -> None:
    name = node_of(graph, "MatMul").name
    chosen = ["backends.use=[openvino]", "accuracy.budget=exact"]
    (answer,) = explain_node(load_config(config.model.source, chosen), name).answers
    kinds = {get_backend("openvino").variant(offer.variant).arithmetic for offer in answer.offers}
    assert kinds == {Arithmetic.FLOAT32}


def test_a_measured_cost_is_found_and_a_failed_measurement_gives_its_reason(config, graph) -> None:
    node = node_of(graph, "Softmax")
    database = CostDatabase(Path(config.cache.dir) / "costs.sqlite")
    settings = CostSettings(config.costs.timing.settings(), config.costs.flush)
    measured = Measured((2.0, 3.0, 4.0), 0.0, 0.0)
    for backend, answer in (("onnxruntime", measured), ("ncnn", Failure(Fault.BUILD, "no"))):
        match = Match(1 << node.index, backend)
        database.put(CostKeys(graph, Target(), settings).of(match), answer)
    answers = by_name(explain_node(config, node.name))
    assert answers["onnxruntime"].offers[0].ms == 3.0
    assert (answers["ncnn"].offers[0].ms, answers["ncnn"].offers[0].reason) == (None, "build: no")


def test_an_unknown_node_is_answered_with_the_nearest(config, graph) -> None:
    with pytest.raises(InputError, match="Softmax"):
        explain_node(config, node_of(graph, "Softmax").name + "x")


def test_a_node_that_was_folded_away_is_answered_with_what_holds_it(config, tmp_path: Path) -> None:
    model = tiny_convnet()
    onnx.save(model, tmp_path / "net.onnx")
    other = load_config(str(tmp_path / "net.onnx"), ["backends.use=[onnxruntime]"])
    norm = next(node for node in model.graph.node if node.op_type == "BatchNormalization")
    for name in (norm.name, norm.output[0]):
        found = explain_node(other, name)
        assert found.folded == f"{norm.name}: BatchNormalization was folded into {found.node}"
        assert found.op_type == "Conv"
        assert by_name(found)["onnxruntime"].offers


def test_a_node_that_became_a_constant_tells_who_reads_it(tmp_path: Path) -> None:
    b = Builder("constant")
    x = b.input("x", (2, 3))
    shape = b.op("Shape", x, name="shape")
    onnx.save(b.model(b.op("Reshape", b.op("Exp", x), shape, name="same")), tmp_path / "net.onnx")
    found = explain_node(load_config(str(tmp_path / "net.onnx"), ["backends.use=[onnxruntime]"]), "shape")
    assert not found.answers
    assert "was folded into" in printed(print_explanation, found)


def printed(show, found: Explanation | RegionExplanation) -> str:
    console = PlainConsole(width=200, record=True, file=io.StringIO())
    show(found, console)
    return console.export_text()


def run_of(config, folder: Path, answer: str, nodes: list[str]) -> Path:
    """A run directory as far as explaining a region reads it: one region of ncnn and one of ONNX Runtime."""
    lanes = (("Mul",), ("Softmax",))
    regions = [RegionResult(name, "default", tuple(nodes), 0.25, lanes=lanes) for name in ("ncnn", "onnxruntime")]
    baselines = [
        Latency("onnxruntime", 1.5),
        Latency("ncnn", reason="build: it does not know Gather"),
        Latency("greedy:onnxruntime,ncnn", 2.5),
    ]
    folder.mkdir()
    result = replace(make_result(), answer=answer, placement=regions, baselines=baselines)
    write_result(folder / RESULT, result)
    return folder


def test_a_region_is_answered_as_one_piece_and_operator_by_operator(config, graph, tmp_path: Path) -> None:
    nodes = [node for node in graph.nodes if node.op_type in ("Softmax", "Mul")]
    run = run_of(config, tmp_path / "run", "placement", [node.name for node in nodes])
    database = CostDatabase(run / "work" / "costs.sqlite")
    settings = CostSettings(config.costs.timing.settings(), config.costs.flush)

    def put(nodes: int, ms: float) -> None:
        match = Match(nodes, "onnxruntime")
        key = CostKeys(graph, Target(), settings).of(match)
        database.put(key, Measured((ms,), 0.0, 0.0))

    put(sum(1 << node.index for node in nodes), 0.75)
    for node in nodes:
        put(1 << node.index, 0.5)
    found = explain_region(config, 1, run)
    assert found.nodes == tuple((node.name, node.op_type) for node in nodes)
    assert found.lanes == (("Mul",), ("Softmax",))
    answers = {answer.backend: answer for answer in found.answers}
    assert answers["onnxruntime"].offers[0].ms == 0.75
    assert answers["onnxruntime"].apart_ms == 1.0
    assert answers["ncnn"].offers[0].reason == "not measured"
    text = printed(print_region, found)
    assert "region 1: 2 node(s) on onnxruntime, 0.2500 ms of a run" in text
    assert "1.0000" in text


@needs(Arithmetic.INT8)
def test_a_region_is_offered_in_int8_where_the_run_had_ranges_for_it(tmp_path: Path) -> None:
    onnx.save(tiny_convnet(), tmp_path / "net.onnx")
    said = ["backends.use=[openvino]", "accuracy.int8_without_data=true", f"cache.dir={tmp_path / 'cache'}"]
    run = tmp_path / "run"
    config = start_run(run, load_config(str(tmp_path / "net.onnx"), said))
    place = Workplace(config, run, LineReporter(lambda line: None))
    place.work.mkdir()
    found = normalise_run(place, prepare(place, model_file(config)))
    feeds = [feeds for feeds, _ in read_references(place.files.reference)]
    write_ranges(place.files.ranges, calibrate(found.graph, feeds, 1, 60.0))
    conv = next(node for node in found.graph.nodes if node.op_type == "Conv")
    answered = run_of(config, tmp_path / "answered", "placement", [conv.name])
    shutil.copyfile(answered / "result.json", run / "result.json")
    (answer,) = explain_region(config, 0, run).answers
    kinds = {get_backend("openvino").variant(offer.variant).arithmetic for offer in answer.offers}
    assert kinds >= {Arithmetic.FLOAT32, Arithmetic.INT8}


def test_of_a_run_with_several_profiles_one_is_asked_for(config, graph, tmp_path: Path) -> None:
    run = run_of(config, tmp_path / "run", "placement", [])
    (run / "profiles" / "0").mkdir(parents=True)
    for explain in (lambda: explain_node(config, graph.nodes[0].name, run), lambda: explain_region(config, 0, run)):
        with pytest.raises(InputError, match="give the directory of one"):
            explain()


def test_a_backend_that_does_not_take_a_region_names_the_node(config, graph, tmp_path: Path) -> None:
    node = node_of(graph, "Gather")
    found = explain_region(config, 0, run_of(config, tmp_path / "run", "placement", [node.name]))
    answer = next(answer for answer in found.answers if answer.backend == "ncnn")
    assert [(one.node, one.op_type) for one in answer.not_taken] == [(node.name, "Gather")]
    assert f"ncnn: not Gather ({node.name}): " in printed(print_region, found)


def test_a_single_backend_s_only_region_has_the_times_of_each_backend_alone(config, graph, tmp_path: Path) -> None:
    found = explain_region(config, 0, run_of(config, tmp_path / "run", "onnxruntime", ["whatever"]))
    offers = {answer.backend: answer.offers for answer in found.answers}
    assert [offer.ms for offer in offers["onnxruntime"]] == [1.5]
    assert offers["ncnn"][0].reason == "build: it does not know Gather"
    assert len(found.nodes) == len(graph.nodes)


def test_a_region_that_is_not_there_or_not_of_this_model_is_refused(config, tmp_path: Path) -> None:
    run = run_of(config, tmp_path / "run", "placement", ["elsewhere"])
    with pytest.raises(InputError, match="0 to 1"):
        explain_region(config, 2, run)
    with pytest.raises(InputError, match="elsewhere"):
        explain_region(config, 0, run)
    with pytest.raises(InputError, match=r"result\.json"):
        explain_region(config, 0, tmp_path)


def test_it_prints_all_of_it(config, graph) -> None:
    text = printed(print_explanation, explain_node(config, node_of(graph, "Gather").name))
    assert "onnxruntime" in text
    assert "ncnn: cannot run Gather" in text
