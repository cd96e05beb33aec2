"""``explain`` names, for one node or region, who could run it at what cost, and each refusal with its reason."""

from __future__ import annotations

import io
import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from collage_evo.answer.baselines import Baseline, write_baselines
from collage_evo.backends.enumerate import Matches
from collage_evo.backends.registry import get_backend
from collage_evo.backends.variants import Arithmetic
from collage_evo.commands.explain import explain_node, explain_pruning, explain_region
from collage_evo.config import load_config
from collage_evo.costs.matches import CostTable
from collage_evo.costs.saved_costs import COSTS, MeasuredCosts, SavedCosts
from collage_evo.errors import InputError
from collage_evo.files import write_json
from collage_evo.fitness.jobs import WorkFiles
from collage_evo.fitness.references import read_references
from collage_evo.genome.cost_model import Border, CostModel
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Outcome
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.load.files import read_model
from collage_evo.graph.prepare import PreparedModel
from collage_evo.models.builder import Builder
from collage_evo.patterns.match import Match
from collage_evo.precision.quantise.ranges import calibrate
from collage_evo.precision.quantise.rules import Range
from collage_evo.report.console import PlainConsole
from collage_evo.report.explain import (
    BackendAnswer,
    Explanation,
    PruningExplanation,
    RegionExplanation,
    print_explanation,
    print_pruning,
    print_region,
)
from collage_evo.report.finished import RESULT, write_result
from collage_evo.report.progress import LineReporter
from collage_evo.report.result import Latency, RegionResult
from collage_evo.run.context import RunContext
from collage_evo.run.directory import start_run
from collage_evo.run.machine import Backends, chosen_backends
from collage_evo.run.open import open_run
from collage_evo.run.plan import PLAN
from collage_evo.run.records import Records
from collage_evo.run.stages.baselines import NormalisedBaselines
from collage_evo.run.stages.matches import MATCHES
from collage_evo.run.stages.precision import Calibrated
from collage_evo.run.store import Store
from tests.support.models import tiny_convnet, tiny_transformer
from tests.support.processor import needs
from tests.support.results import result as approved
from tests.support.typed import not_none


def recorded(folder: Path, model: onnx.ModelProto, *said: str) -> Path:
    """The directory of a run of ``model`` that stopped when it had found its matches."""
    onnx.save(model, folder / "net.onnx")
    overrides = [f"cache.dir={folder / 'cache'}", *said]
    config, place = load_config(str(folder / "net.onnx"), overrides), folder / "run"
    backends = chosen_backends(config)
    baselines = NormalisedBaselines(Baseline(one.name, one.name, "default", Path(), Outcome(1.0)) for one in backends)
    with open_run(start_run(place, config), place, LineReporter(lambda line: None)) as (run, prepared):
        given = {RunContext: run, PreparedModel: prepared, Backends: backends, NormalisedBaselines: baselines}
        _ = Records(PLAN, {**given, Calibrated: Calibrated(None)})[Matches]
    return place


def with_costs(run: Path, ms: Mapping[Match, float], failures: Mapping[Match, Failure]) -> None:
    """Give ``run`` costs of a search: these standalone times and ``failures``, and none for the other matches."""
    graph, enumerated = graph_in(run), Store(run).get(MATCHES)
    matches = tuple(dict.fromkeys((*not_none(enumerated).found.matches, *ms)))
    times = tuple(ms.get(match, math.inf) for match in matches)
    table = CostTable(times, {matches.index(match): failure for match, failure in failures.items()})
    costs = CostModel((1.0,) * len(matches), {match.engine: Border(0.0, 0.0) for match in matches})
    measured = MeasuredCosts(table, SearchSpace(graph, matches, costs), len(ms), 0, 0)
    Store(run).put(COSTS, SavedCosts.of("", measured))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("explain"), tiny_transformer(), "backends.use=[onnxruntime, ncnn]")


@pytest.fixture
def run(place: Path, tmp_path: Path) -> Path:
    """The same, for a test that adds records to it."""
    return shutil.copytree(place, tmp_path / "run")


def graph_in(run: Path) -> Graph:
    return build_graph(read_model(run / "work" / "normalised.onnx"))


@pytest.fixture(scope="module")
def graph(place: Path) -> Graph:
    return graph_in(place)


def by_name(found: Explanation) -> dict[str, BackendAnswer]:
    return {answer.backend: answer for answer in found.answers}


def node_of(graph, op_type: str):
    return next(node for node in graph.nodes if node.op_type == op_type)


def test_who_could_run_it_and_why_another_not(place, graph) -> None:
    answers = by_name(explain_node(place, node_of(graph, "Gather").name))
    assert answers["onnxruntime"].offers[0].operators == ("Gather",)
    assert {offer.reason for offer in answers["onnxruntime"].offers} == {"not measured"}
    assert not answers["ncnn"].offers
    assert answers["ncnn"].refusals[0].pattern == ""
    assert "Gather" in answers["ncnn"].refusals[0].reason


def test_where_only_float32_may_answer_nothing_else_is_offered(graph, tmp_path: Path) -> None:
    run = recorded(tmp_path, tiny_transformer(), "backends.use=[openvino]", "accuracy.budget=exact")
    (answer,) = explain_node(run, node_of(graph, "MatMul").name).answers
    kinds = {get_backend("openvino").variant(offer.variant).arithmetic for offer in answer.offers}
    assert kinds == {Arithmetic.FLOAT32}


def test_a_measured_cost_is_found_and_a_failed_measurement_gives_its_reason(run, graph) -> None:
    node = node_of(graph, "Softmax")
    failures = {Match(1 << node.index, "ncnn"): Failure(Fault.BUILD, "no")}
    with_costs(run, {Match(1 << node.index, "onnxruntime"): 3.0}, failures)
    answers = by_name(explain_node(run, node.name))
    assert answers["onnxruntime"].offers[0].ms == 3.0
    assert (answers["ncnn"].offers[0].ms, answers["ncnn"].offers[0].reason) == (None, "build: no")


def test_a_run_that_has_no_matches_says_why(place, tmp_path: Path) -> None:
    begun = shutil.copytree(place, tmp_path / "begun")
    (begun / "work" / "matches.json").unlink()
    with pytest.raises(InputError, match=r"no record of its matches: continue it with .* resume"):
        explain_node(begun, "x")
    write_result(begun / RESULT, replace(approved(), not_searched="no backend takes node x"))
    with pytest.raises(InputError, match="has no matches, as no search was possible: no backend takes node x"):
        explain_node(begun, "x")


def test_the_run_stays_as_it_is(run, graph) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    explain_node(run, node_of(graph, "Softmax").name)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_an_unknown_node_is_answered_with_the_nearest(place, graph) -> None:
    with pytest.raises(InputError, match="Softmax"):
        explain_node(place, node_of(graph, "Softmax").name + "x")


def test_a_node_that_was_folded_away_is_answered_with_what_holds_it(tmp_path: Path) -> None:
    model = tiny_convnet()
    other = recorded(tmp_path, model, "backends.use=[onnxruntime]")
    norm = next(node for node in model.graph.node if node.op_type == "BatchNormalization")
    for name in (norm.name, norm.output[0]):
        found = explain_node(other, name)
        assert found.folded == f"{norm.name}: BatchNormalization was folded into {found.node}"
        assert found.op_type == "Conv"
        assert by_name(found)["onnxruntime"].offers


def test_a_node_that_became_a_constant_tells_who_reads_it(tmp_path: Path) -> None:
    b = Builder("constant")
    x = b.input("x", (2, 3))
    model = b.model(b.op("Reshape", b.op("Exp", x), b.op("Shape", x, name="shape"), name="same"))
    found = explain_node(recorded(tmp_path, model, "backends.use=[onnxruntime]"), "shape")
    assert not found.answers
    assert "was folded into" in printed(print_explanation, found)


def printed(show, found: Explanation | PruningExplanation | RegionExplanation) -> str:
    console = PlainConsole(width=200, record=True, file=io.StringIO())
    show(found, console)
    return console.export_text()


def with_answer(run: Path, answer: str, nodes: list[str]) -> Path:
    """``run`` with a result: one region of ncnn and one of ONNX Runtime, both of these ``nodes``."""
    lanes = (("Mul",), ("Softmax",))
    regions = [RegionResult(name, "default", tuple(nodes), 0.25, lanes=lanes) for name in ("ncnn", "onnxruntime")]
    baselines = [
        Latency("onnxruntime", 1.5),
        Latency("ncnn", reason="build: it does not know Gather"),
        Latency("greedy:onnxruntime,ncnn", 2.5),
    ]
    write_result(run / RESULT, replace(approved(), answer=answer, placement=regions, baselines=baselines))
    return run


def test_a_region_is_answered_as_one_piece_and_operator_by_operator(run, graph) -> None:
    nodes = [node for node in graph.nodes if node.op_type in ("Softmax", "Mul")]
    with_answer(run, "placement", [node.name for node in nodes])
    whole = Match(sum(1 << node.index for node in nodes), "onnxruntime")
    with_costs(run, {whole: 0.75, **{Match(1 << node.index, "onnxruntime"): 0.5 for node in nodes}}, {})
    found = explain_region(run, 1)
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
    said = ["backends.use=[openvino]", "accuracy.int8_without_data=true"]
    run = recorded(tmp_path, tiny_convnet(), *said)
    graph, files = graph_in(run), WorkFiles(run / "work")
    feeds = [feeds for feeds, _ in read_references(files.reference)]
    write_json(files.ranges, dict[str, Range], calibrate(graph, feeds, 1, 60.0))
    with_answer(run, "placement", [node_of(graph, "Conv").name])
    (answer,) = explain_region(run, 0).answers
    kinds = {get_backend("openvino").variant(offer.variant).arithmetic for offer in answer.offers}
    assert kinds >= {Arithmetic.FLOAT32, Arithmetic.INT8}


def test_of_a_run_with_several_profiles_one_is_asked_for(run, graph) -> None:
    with_answer(run, "placement", [])
    (run / "profiles" / "0").mkdir(parents=True)
    for explain in (lambda: explain_node(run, graph.nodes[0].name), lambda: explain_region(run, 0)):
        with pytest.raises(InputError, match="give the directory of one"):
            explain()


def test_a_backend_that_does_not_take_a_region_names_the_node(run, graph) -> None:
    node = node_of(graph, "Gather")
    found = explain_region(with_answer(run, "placement", [node.name]), 0)
    answer = next(answer for answer in found.answers if answer.backend == "ncnn")
    assert [(one.node, one.op_type) for one in answer.not_taken] == [(node.name, "Gather")]
    assert f"ncnn: not Gather ({node.name}): " in printed(print_region, found)


def test_a_single_backend_s_only_region_has_the_times_of_each_backend_alone(run, graph) -> None:
    found = explain_region(with_answer(run, "onnxruntime", ["whatever"]), 0)
    offers = {answer.backend: answer.offers for answer in found.answers}
    assert [offer.ms for offer in offers["onnxruntime"]] == [1.5]
    assert offers["ncnn"][0].reason == "build: it does not know Gather"
    assert len(found.nodes) == len(graph.nodes)


def test_a_region_that_is_not_there_or_not_of_this_model_is_refused(run, tmp_path: Path) -> None:
    with_answer(run, "placement", ["elsewhere"])
    with pytest.raises(InputError, match="0 to 1"):
        explain_region(run, 2)
    with pytest.raises(InputError, match="elsewhere"):
        explain_region(run, 0)
    with pytest.raises(InputError, match=r"result\.json"):
        explain_region(tmp_path, 0)


def test_it_prints_all_of_it(place, graph) -> None:
    text = printed(print_explanation, explain_node(place, node_of(graph, "Gather").name))
    assert "onnxruntime" in text
    assert "ncnn: cannot run Gather" in text


def test_what_a_run_pruned_is_told_with_the_rule_that_decided(run, graph) -> None:
    slow = Failure(Fault.FAR_BEHIND, "given up after 1 run, 4.0 times as slow as the best", rule="slow_baseline")
    baselines = [
        Baseline("ncnn", "ncnn", "default", Path("n"), Outcome(4.0, failure=slow)),
        Baseline("tvm", "tvm", "default", Path("t"), Outcome.unfit(Failure(Fault.CRASH))),
    ]
    write_baselines(run / "baselines.json", baselines)
    store = Store(run)
    enumerated = store.get(MATCHES)
    excluded = Failure(Fault.FAR_BEHIND, "takes 3.0 times as long", rule="slow_precision")
    store.put(MATCHES, replace(enumerated, excluded=((("ncnn", "bf16"), excluded),)))
    given_up = Failure(Fault.FAR_BEHIND, "given up during its first run", rule="slow_match")
    node = node_of(graph, "Softmax")
    with_costs(run, {}, {Match(1 << node.index, "ncnn"): given_up})
    found = explain_pruning(run)
    assert [(one.what, one.rule) for one in found.pruned] == [
        ("ncnn", "slow_baseline"),
        ("ncnn/bf16 on parts of the model", "slow_precision"),
        ("ncnn on Softmax", "slow_match"),
    ]
    text = printed(print_pruning, found)
    assert "given up: ncnn: given up after 1 run, 4.0 times as slow as the best, by rule slow_baseline" in text
    assert "not tried: ncnn/bf16 on parts of the model: takes 3.0 times as long, by rule slow_precision" in text
    assert "a match that takes 4 times as long as the best known way to run its operators" in text
    refusals = by_name(explain_node(run, node.name))["ncnn"].refusals
    assert refusals[-1].reason == "variant bf16 takes no part: takes 3.0 times as long (by rule slow_precision)"
