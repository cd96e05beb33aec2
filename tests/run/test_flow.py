"""A run is a graph of values: whoever asks for one gets it with what it needs, and nothing else is done."""

from __future__ import annotations

import errno
import math
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from collage_evo import cli
from collage_evo.answer.so_far import read_so_far
from collage_evo.commands.pick import pick_answer
from collage_evo.config import Config, parse_config
from collage_evo.errors import (
    AnswerStays,
    ConfigError,
    DamagedFile,
    InputError,
    NotSearchable,
    SystemRefuses,
)
from collage_evo.genome.outcome import Outcome
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.models.builder import Builder
from collage_evo.pruning import SMALL_GAIN
from collage_evo.report.advice import advice
from collage_evo.report.progress import LineReporter
from collage_evo.run.context import RunContext
from collage_evo.run.directory import start_run
from collage_evo.run.flow import Flow, evaluate
from collage_evo.run.recorded import read_run
from collage_evo.run.search import NotSearched, SearchRecord
from collage_evo.run.stages.baselines import measure_baselines
from collage_evo.run.stages.evolve import evolve, measuring
from collage_evo.runtime.artifact import load_artifact, read_artifact
from collage_evo.runtime.manifest import BEST
from tests.runtime.helpers import sums
from tests.support.models import tiny_convnet
from tests.support.parsed import files_parsed
from tests.support.quick import QUICK, nested, options


def config_of(folder: Path) -> Config:
    onnx.save(tiny_convnet(), folder / "tiny.onnx")
    given = {**QUICK, "model.source": str(folder / "tiny.onnx"), "cache.dir": str(folder / "cache")}
    return parse_config(nested(given), (), "test")


def test_what_nobody_asks_for_is_not_made(tmp_path: Path) -> None:
    run = tmp_path / "run"
    found = evaluate(config_of(tmp_path), run, LineReporter(), lambda flow: flow.searchable)
    assert [node.op_type for node in found.graph.nodes]
    assert (run / "work" / "normalised.json").exists()
    assert not (run / "baselines.json").exists()


def test_a_value_is_made_once_however_many_ask_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, made = config_of(tmp_path), []

    def normalise(*_: object) -> Any:
        made.append("graph")
        return "graph"

    monkeypatch.setattr("collage_evo.run.flow.normalise", normalise)
    twice = evaluate(config, tmp_path / "run", LineReporter(), lambda flow: (flow.searchable, flow.searchable))
    assert (twice, made) == (("graph", "graph"), ["graph"])


@pytest.mark.parametrize("find", [Flow.search, Flow.recall])
def test_a_model_that_only_runs_whole_has_an_answer_first_and_then_says_why(
    find: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def whole(*_: object) -> None:
        raise NotSearchable("its weights are too large")

    monkeypatch.setattr("collage_evo.run.flow.normalise", whole)
    found = evaluate(config_of(tmp_path), tmp_path / "run", LineReporter(), lambda flow: flow.searched(find))
    assert found == NotSearched("its weights are too large")
    assert (tmp_path / "run" / "best.collage").is_dir()


def test_a_run_skips_its_search_where_an_early_mixture_suffices_and_resumed_it_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "x.npz", x=rng.standard_normal((24, 3, 16, 16)).astype(np.float32))
    onnx.save(tiny_convnet(), tmp_path / "tiny.onnx")
    given = {"model.source": str(tmp_path / "tiny.onnx"), "data.source": str(tmp_path / "x.npz")}
    given |= {"accuracy.budget": 0.5, "cache.dir": str(tmp_path / "cache"), "search.evaluations": None}
    config, run = parse_config(nested({**QUICK, **given, "search.seconds": None}), (), "test"), tmp_path / "run"
    monkeypatch.setattr("collage_evo.run.flow.exceeds_planned_time", lambda *_: True)
    monkeypatch.setattr("collage_evo.run.flow.suffices", lambda *_: True)
    any_gain = replace(SMALL_GAIN, number=math.inf)  # a tiny model gains nothing
    monkeypatch.setattr("collage_evo.search.mixtures.likely.SMALL_GAIN", any_gain)
    monkeypatch.setattr("collage_evo.run.budget.USUAL_S", 2.0)
    start_run(run, config)
    first = evaluate(config, run, LineReporter(), Flow.result)
    assert first.search is not None
    assert (first.search.skipped, first.search.generations, first.cost_model) == (True, 0, None)
    early = read_run(run).evaluated
    assert 0 < first.search.evaluations == len(early) < 8
    assert any("resume" in one for one in advice(first, run))
    picked = pick_answer(run, "0.4", LineReporter()).result
    assert picked.search is not None
    assert picked.search.skipped
    second = evaluate(config, run, LineReporter(), Flow.result)
    assert second.search is not None
    assert (second.search.skipped, second.search.generations > 0) == (False, True)
    assert early.keys() < read_run(run).evaluated.keys()
    assert second.cost_model is not None


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr("sys.argv", ["collage_evo", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0


def test_a_model_s_file_is_parsed_once_whoever_looks_into_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who types sizes without a name, who reads samples, and the run itself; and once more in a process later on."""
    model, data, run = tmp_path / "open.onnx", tmp_path / "x.npz", tmp_path / "run"
    onnx.save(sums("rows"), model)
    np.savez(data, x=np.ones((8, 4), np.float32), k=np.array([3] * 4))
    monkeypatch.setattr(Flow, "result", lambda flow: flow.model.digest)
    monkeypatch.setattr("collage_evo.cli.answers.print_answer", lambda *_: None)
    said = options({**QUICK, "cache.dir": str(tmp_path / "cache")})
    with files_parsed(model) as parsed:
        command(monkeypatch, "run", str(model), "--shapes", "[2, 4]", "--data", str(data), "--out", str(run), *said)
        assert len(parsed) == 1
    with files_parsed(model) as parsed:
        command(monkeypatch, "resume", str(run))
        assert len(parsed) == 1


def test_a_search_whose_graph_and_matches_were_not_kept_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "work").mkdir(parents=True)
    (run / "checkpoint.json").write_text("{}")
    with pytest.raises(InputError, match=r"work, from which .*, is missing or incomplete: search again with"):
        evaluate(config_of(tmp_path), run, LineReporter(), Flow.result)
    assert sorted(path.name for path in run.rglob("*")) == ["checkpoint.json", "work"]


def test_a_run_whose_answer_was_written_into_goes_on_once_that_is_deleted(tmp_path: Path) -> None:
    net, run = Builder("large"), tmp_path / "run"
    weights = np.random.default_rng(0).standard_normal((600, 600)).astype(np.float32)
    product = net.op("MatMul", net.input("x", (1, 600)), net.const(weights))
    onnx.save(net.model(net.op("Relu", product, output="y")), tmp_path / "m.onnx")
    given = {**QUICK, "model.source": str(tmp_path / "m.onnx"), "cache.dir": str(tmp_path / "cache")}
    config = parse_config(nested(given), (), "test")
    evaluate(config, run, LineReporter(), Flow.result)
    (answer,) = (path for path in (run / BEST).rglob("*.onnx") if path.stat().st_size > weights.nbytes)
    assert answer.stat().st_nlink > 1  # its piece in the cache, and the baseline if that is the answer
    with answer.open("r+b") as file:
        file.seek(weights.nbytes // 2)
        file.write(b"edited")
    with pytest.raises(InputError, match="was changed"):
        evaluate(config, run, LineReporter(), Flow.result)
    shutil.rmtree(run / BEST)
    evaluate(config, run, LineReporter(), Flow.result)
    assert read_artifact(run / BEST)
    assert read_artifact(run / "baselines" / "onnxruntime.collage")
    with load_artifact(run / BEST) as session:
        x = np.ones((1, 600), np.float32)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], np.maximum(x @ weights, 0), rtol=1e-3, atol=1e-3)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Path]:
    """A run that has measured all that it wants, announced a placement, and stopped before its final comparison."""
    folder = tmp_path_factory.mktemp("begun")
    config = config_of(folder)
    start_run(folder / "run", config)

    def announce(flow: Flow) -> None:
        record, space = flow.search(), flow.costs.space
        with measuring(flow.run, record.ranked[0], flow.baselines) as evaluator:
            flow.best_so_far.offers(evaluator, space)(record.ranked[0], Outcome(1e-6, error=0.0))
            flow.best_so_far.finish()

    evaluate(config, folder / "run", LineReporter(), announce)
    return config, folder / "run"


STAGES = [
    "on_normalised", "normalise", "calibrated_ranges", "find_matches", "predict_losses", "measure_early",
    "tune_backends", "gather_costs", "make_seeds", "evolve", "CompiledCandidates.compile", "hold_out", "deliver",
    "answer_speeds", "Ended", "write_result", "write_html",
]  # fmt: skip
"""Work of the stages after the first answer, as the flow has it."""


def failing(monkeypatch: pytest.MonkeyPatch, stage: str, error: BaseException) -> None:
    """From now on ``stage`` raises ``error``."""

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(f"collage_evo.run.flow.{stage}", fails)


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_that_fails_takes_no_answer_away(
    stage: str, begun: tuple[Config, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (config, before), run, lines = begun, tmp_path / "run", list[str]()
    shutil.copytree(before, run)
    if stage == "measure_early":
        (run / "work" / "early_mixtures.json").unlink()
        (run / "checkpoint.json").unlink()
    failing(monkeypatch, stage, ValueError("on\npurpose"))
    stays = stage in ("hold_out", "deliver", "Ended", "write_result")
    with pytest.raises(AnswerStays) if stays else nullcontext():
        result = evaluate(config, run, LineReporter(lines.append), Flow.result)
        assert result.best.median_ms
        assert (run / "result.json").is_file()
    with load_artifact(run / BEST) as session:
        assert session.run(None, random_inputs(tiny_convnet(), 0))
    assert any(f"a stage of the run failed: ValueError: on ({run}/details.log has more); " in line for line in lines)
    assert "on\npurpose" in (run / "details.log").read_text()


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("a key"),
        DamagedFile("a record"),
        SystemRefuses("no room"),
        OSError(errno.ENOSPC, "no room"),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_has_to_be_mended_first_ends_a_run_that_has_an_answer(
    error: BaseException, begun: tuple[Config, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(begun[1], tmp_path / "run")
    failing(monkeypatch, "evolve", error)
    with pytest.raises(type(error)):
        evaluate(begun[0], tmp_path / "run", LineReporter(), Flow.result)


def test_baselines_that_fail_after_the_first_answer_leave_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> None:
        measure_baselines(*args)
        raise ValueError("on purpose")

    monkeypatch.setattr("collage_evo.run.flow.measure_baselines", fails)
    with pytest.raises(AnswerStays):
        evaluate(config_of(tmp_path), tmp_path / "run", LineReporter(), Flow.result)
    assert read_so_far(tmp_path / "run" / BEST)


def test_a_failed_search_of_a_run_that_had_ended_leaves_its_answer_and_its_result(
    begun: tuple[Config, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(begun[1], tmp_path / "run")
    result = evaluate(begun[0], tmp_path / "run", LineReporter(), Flow.result)
    failing(monkeypatch, "evolve", ValueError("on purpose"))
    again = evaluate(begun[0], tmp_path / "run", LineReporter(), Flow.result)
    assert (again.best, again.speedup_over_best_single) == (result.best, result.speedup_over_best_single)


@pytest.mark.parametrize("searched", [True, False])
def test_the_answer_so_far_is_compared_if_a_later_stage_fails(
    searched: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A placement that the search announced, before it failed, or before its candidates could not be compiled."""

    def announces(run: RunContext, space: SearchSpace, *args: Any) -> SearchRecord:
        record, best = evolve(run, space, *args), args[3]
        with measuring(run, record.ranked[0], args[2]) as evaluator:
            best.offers(evaluator, space)(record.ranked[0], Outcome(1e-6, error=0.0))
            best.finish()
        if not searched:
            raise ValueError("on purpose")
        return record

    monkeypatch.setattr("collage_evo.run.flow.evolve", announces)
    if searched:
        failing(monkeypatch, "CompiledCandidates.compile", InputError("no placement could be compiled"))
    config, run = config_of(tmp_path), tmp_path / "run"
    found = evaluate(start_run(run, config), run, LineReporter(), Flow.result)
    assert found.candidate_speedup.rounds, "it was compared"
    assert (found.search is not None) == searched
    assert found.not_searched == ("" if searched else "ValueError: on purpose")
    assert read_so_far(run / BEST) is None, "the comparison has confirmed it"
    assert searched or "No search was possible: ValueError: on purpose." in (run / "report.html").read_text()
