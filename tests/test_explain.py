"""``explain`` names, for one node, who could run it at what cost, and each refusal with its reason."""

from __future__ import annotations

import io
from pathlib import Path

import onnx
import pytest
from rich.console import Console

from collage_evo.config import load_config
from collage_evo.errors import InputError
from collage_evo.explain import explain_node
from collage_evo.fitness.costs import CostSettings, cost_key
from collage_evo.fitness.database import CostDatabase
from collage_evo.fitness.jobs import Answer
from collage_evo.graph.load import load_model
from collage_evo.graph.normalise import normalise
from collage_evo.graph.read import build_graph
from collage_evo.patterns.match import Match
from collage_evo.report.explain import BackendAnswer, Explanation, print_explanation
from collage_evo.testing.models import tiny_transformer


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


def test_a_measured_cost_is_found_and_a_failed_measurement_gives_its_reason(config, graph) -> None:
    node = node_of(graph, "Softmax")
    database = CostDatabase(Path(config.cache.dir) / "costs.sqlite")
    settings = CostSettings(config.costs.timing.settings(), config.costs.flush)
    for backend, answer in (("onnxruntime", Answer((2.0, 3.0, 4.0))), ("ncnn", Answer(reason="build: no"))):
        match = Match(1 << node.index, backend)
        database.put(cost_key(graph, match, config.target.device, config.target.threads, settings), answer)
    answers = by_name(explain_node(config, node.name))
    assert answers["onnxruntime"].offers[0].ms == 3.0
    assert (answers["ncnn"].offers[0].ms, answers["ncnn"].offers[0].reason) == (None, "build: no")


def test_every_pattern_is_answered_for(config, graph) -> None:
    from collage_evo.backends.registry import get_backend

    for answer in explain_node(config, node_of(graph, "Softmax").name).answers:
        said = {offer.pattern for offer in answer.offers} | {refusal.pattern for refusal in answer.refusals}
        assert {pattern.name for pattern in get_backend(answer.backend).patterns()} <= said
        assert all(refusal.reason for refusal in answer.refusals)
        assert "there is no Softmax in it" in {r.reason for r in answer.refusals if r.pattern == "epilogue"}


def test_an_unknown_node_is_answered_with_the_nearest(config, graph) -> None:
    with pytest.raises(InputError, match="Softmax"):
        explain_node(config, node_of(graph, "Softmax").name + "x")


def test_it_prints_all_of_it(config, graph) -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    print_explanation(explain_node(config, node_of(graph, "Gather").name), console)
    text = console.export_text()
    assert "onnxruntime" in text
    assert "ncnn: not the operator itself on Gather" in text
