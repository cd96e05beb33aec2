"""A run makes the records that are wanted, and has an answer whatever fails after the first one."""

from __future__ import annotations

import errno
import functools
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
from collage_evo.answer.answer import Proof
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
from collage_evo.files import Stored
from collage_evo.genome.outcome import Outcome
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.prepare import PreparedModel, SearchableModel
from collage_evo.models.builder import Builder
from collage_evo.pruning import SMALL_GAIN
from collage_evo.report.advice import advice
from collage_evo.report.finished import read_finished
from collage_evo.report.progress import LineReporter
from collage_evo.report.result import Result
from collage_evo.report.summary import summary
from collage_evo.run.context import RunContext
from collage_evo.run.deadline import PartIsOver
from collage_evo.run.directory import start_run
from collage_evo.run.evaluate import TIME_OVER, found_by, open_records, planned
from collage_evo.run.plan import PLAN
from collage_evo.run.publisher import Publisher
from collage_evo.run.recorded import read_run
from collage_evo.run.records import Plan, Row
from collage_evo.run.search import NotSearched, Searched, SearchRecord
from collage_evo.run.stages.baselines import Baselines
from collage_evo.run.stages.evolve import evolve, measuring
from collage_evo.run.stages.held_out import UNJUDGED
from collage_evo.run.stages.threads import OnThreads
from collage_evo.runtime.artifact import load_artifact, read_artifact
from collage_evo.runtime.manifest import BEST
from tests.runtime.helpers import sums
from tests.support.models import tiny_convnet
from tests.support.parsed import files_parsed
from tests.support.quick import QUICK, nested, options
from tests.support.runs import run_in
from tests.support.typed import not_none


def config_of(folder: Path) -> Config:
    onnx.save(tiny_convnet(), folder / "tiny.onnx")
    given = {**QUICK, "model.source": str(folder / "tiny.onnx"), "cache.dir": str(folder / "cache")}
    return parse_config(nested(given), (), "test")


def test_records_that_nobody_wants_are_not_made(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with open_records(config_of(tmp_path), run, LineReporter()) as records:
        assert records[SearchableModel].graph.nodes
    assert (run / "work" / "normalised.json").exists()
    assert not (run / "baselines.json").exists()


def raising(row: Row, error: BaseException) -> Row:
    """``row`` that raises ``error`` once it has made its record."""

    @functools.wraps(row.make)
    def fails(*needs: object) -> None:
        row.make(*needs)
        raise error

    return replace(row, make=fails)


def plan_failing(record: object, error: BaseException) -> Plan:
    """The plan whose row for ``record`` raises ``error``."""
    return Plan(tuple(raising(row, error) if row.record is record else row for row in PLAN.rows))


def test_a_model_that_only_runs_whole_has_an_answer_first_and_then_a_reason(tmp_path: Path) -> None:
    plan = plan_failing(SearchableModel, NotSearchable("its weights are too large"))
    with open_records(config_of(tmp_path), tmp_path / "run", LineReporter(), plan=plan) as records:
        assert found_by(lambda: planned(records)[Searched]) == NotSearched("its weights are too large")
    assert (tmp_path / "run" / "best.collage").is_dir()


def test_a_run_skips_its_search_where_an_early_mixture_suffices_and_resumed_it_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).standard_normal((24, 3, 16, 16)).astype(np.float32))
    onnx.save(tiny_convnet(), tmp_path / "tiny.onnx")
    given = {"model.source": str(tmp_path / "tiny.onnx"), "data.source": str(tmp_path / "x.npz")}
    given |= {"accuracy.budget": 0.5, "cache.dir": str(tmp_path / "cache"), "search.evaluations": None}
    config, run = parse_config(nested({**QUICK, **given, "search.seconds": None}), (), "test"), tmp_path / "run"
    monkeypatch.setattr("collage_evo.run.plan.exceeds_planned_time", lambda *_: True)
    monkeypatch.setattr("collage_evo.run.plan.suffices", lambda *_: True)
    any_gain = replace(SMALL_GAIN, number=math.inf)  # a tiny model gains nothing
    monkeypatch.setattr("collage_evo.search.mixtures.likely.SMALL_GAIN", any_gain)
    monkeypatch.setattr("collage_evo.run.budget.USUAL_S", 2.0)
    start_run(run, config)
    first = run_in(run, config)
    assert first.search is not None
    assert (first.search.skipped, first.search.generations, first.cost_model) == (True, 0, None)
    early = read_run(run).evaluated
    assert 0 < first.search.evaluations == len(early) < 8
    telling = [region for region in first.placement if region.backend in ("onnxruntime", "openvino")]
    assert all(one.ms is not None for region in telling for one in region.operators)
    assert any("resume" in one for one in advice(first, run))
    picked = pick_answer(run, "0.4", LineReporter()).result
    assert not_none(picked.search).skipped
    second = run_in(run, config)
    searched = not_none(second.search)
    assert (searched.skipped, searched.generations > 0) == (False, True)
    assert early.keys() < read_run(run).evaluated.keys()
    assert second.cost_model is not None


def command(*words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 0


def test_a_model_s_file_is_parsed_once_whoever_looks_into_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who types sizes without a name, who reads samples, and the run itself; and once more in a process later on."""
    model, data, run = tmp_path / "open.onnx", tmp_path / "x.npz", tmp_path / "run"
    onnx.save(sums("rows"), model)
    np.savez(data, x=np.ones((8, 4), np.float32), k=np.array([3] * 4))
    monkeypatch.setattr("collage_evo.run.profiles.finish", lambda records: records[PreparedModel].digest)
    monkeypatch.setattr("collage_evo.cli.answers.print_answer", lambda *_: None)
    said = options({**QUICK, "cache.dir": str(tmp_path / "cache")})
    with files_parsed(model) as parsed:
        command("run", str(model), "--shapes", "[2, 4]", "--data", str(data), "--out", str(run), *said)
        assert len(parsed) == 1
    with files_parsed(model) as parsed:
        command("resume", str(run))
        assert len(parsed) == 1


def test_a_search_whose_graph_and_matches_were_not_kept_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "work").mkdir(parents=True)
    (run / "checkpoint.json").write_text("{}")
    with pytest.raises(InputError, match=r"work, from which .*, is missing or incomplete: search again with"):
        run_in(run, config_of(tmp_path))
    assert sorted(path.name for path in run.rglob("*")) == ["checkpoint.json", "work"]


def test_a_run_whose_answer_was_written_into_goes_on_once_that_is_deleted(tmp_path: Path) -> None:
    net, run = Builder("large"), tmp_path / "run"
    weights = np.random.default_rng(0).standard_normal((600, 600)).astype(np.float32)
    product = net.op("MatMul", net.input("x", (1, 600)), net.const(weights))
    onnx.save(net.model(net.op("Relu", product, output="y")), tmp_path / "m.onnx")
    given = {**QUICK, "model.source": str(tmp_path / "m.onnx"), "cache.dir": str(tmp_path / "cache")}
    config = parse_config(nested(given), (), "test")
    run_in(run, config)
    (answer,) = (path for path in (run / BEST).rglob("*.onnx") if path.stat().st_size > weights.nbytes)
    assert answer.stat().st_nlink > 1  # its piece in the cache, and the baseline if that is the answer
    with answer.open("r+b") as file:
        file.seek(weights.nbytes // 2)
        file.write(b"edited")
    with pytest.raises(InputError, match="was changed"):
        run_in(run, config)
    shutil.rmtree(run / BEST)
    run_in(run, config)
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

    with open_records(config, folder / "run", LineReporter()) as records:
        found, best, run = records[Searched], records[Publisher], records[RunContext]
        placement, space = found.record.ranked[0], found.costs.space
        with measuring(run, placement, records[Baselines]) as evaluator:
            best.offers(evaluator, space)(placement, Outcome(1e-6, error=0.0))
            best.finish()
    return config, folder / "run"


RECORDS = [row.record for row in PLAN.rows]
LATER = [record for record in RECORDS[RECORDS.index(Baselines) :] if record is not OnThreads]
"""Records that a run makes after its first answer."""
STEPS = (
    *("CompiledCandidates.compile", "hold_out", "deliver", "answer_speeds"),
    *("run_result", "write_result", "write_html"),
)
"""Steps of the last row."""


def failing(monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException) -> None:
    """From now on ``step`` raises ``error``."""

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(f"collage_evo.run.final.{step}", fails)


def check_answer(run: Path, config: Config, plan: Plan, stays: bool) -> None:
    """An answer is left of a run whose row raises ``ValueError``; ``stays``: that was not compared with others."""
    lines = list[str]()
    with pytest.raises(AnswerStays) if stays else nullcontext():
        assert run_in(run, config, LineReporter(lines.append), plan).best.median_ms
        assert (run / "result.json").is_file()
    with load_artifact(run / BEST) as session:
        assert session.run(None, random_inputs(tiny_convnet(), 0))
    assert any(f"a stage of the run failed: ValueError: on ({run}/details.log has more); " in line for line in lines)
    assert "on\npurpose" in (run / "details.log").read_text()


@pytest.mark.parametrize("record", LATER, ids=lambda record: record.__name__)
def test_a_row_that_fails_takes_no_answer_away(record: object, begun: tuple[Config, Path], tmp_path: Path) -> None:
    (config, before), run = begun, tmp_path / "run"
    shutil.copytree(before, run)
    (row,) = (row for row in PLAN.rows if row.record is record)
    if isinstance(row.stored, Stored):  # else the record is read, and not made
        (run / row.stored.path).unlink(missing_ok=True)
    check_answer(run, config, plan_failing(record, ValueError("on\npurpose")), stays=record in (Baselines, Result))


@pytest.mark.parametrize("step", STEPS)
def test_a_step_of_the_comparison_that_fails_takes_no_answer_away(
    step: str, begun: tuple[Config, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (config, before), run = begun, tmp_path / "run"
    shutil.copytree(before, run)
    failing(monkeypatch, step, ValueError("on\npurpose"))
    check_answer(run, config, PLAN, stays=step in ("hold_out", "deliver", "run_result", "write_result"))


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
def test_an_error_to_mend_first_ends_a_run_that_has_an_answer(
    error: BaseException, begun: tuple[Config, Path], tmp_path: Path
) -> None:
    shutil.copytree(begun[1], tmp_path / "run")
    with pytest.raises(type(error)):
        run_in(tmp_path / "run", begun[0], plan=plan_failing(Searched, error))


def test_baselines_that_fail_after_the_first_answer_leave_it(tmp_path: Path) -> None:
    with pytest.raises(AnswerStays):
        run_in(tmp_path / "run", config_of(tmp_path), plan=plan_failing(Baselines, ValueError("on purpose")))
    assert read_so_far(tmp_path / "run" / BEST)


def test_a_failed_search_of_a_run_that_had_ended_leaves_its_answer_and_its_result(
    begun: tuple[Config, Path], tmp_path: Path
) -> None:
    shutil.copytree(begun[1], tmp_path / "run")
    result = run_in(tmp_path / "run", begun[0])
    again = run_in(tmp_path / "run", begun[0], plan=plan_failing(Searched, ValueError("on purpose")))
    assert (again.best, again.speedup_over_best_single) == (result.best, result.speedup_over_best_single)


def announcing(error: BaseException | None = None) -> Plan:
    """The plan whose search announces a placement, and then raises ``error``."""

    @functools.wraps(evolve)
    def announces(*needs: Any) -> SearchRecord:
        record, (run, costs, _, _, baselines, best, _) = evolve(*needs), needs
        with measuring(run, record.ranked[0], baselines) as evaluator:
            best.offers(evaluator, costs.space)(record.ranked[0], Outcome(1e-6, error=0.0))
            best.finish()
        if error:
            raise error
        return record

    return PLAN.replacing(Row(announces))


@pytest.mark.parametrize("searched", [True, False])
def test_the_answer_so_far_is_compared_if_a_later_stage_fails(
    searched: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A placement that the search announced, before it failed, or before its candidates could not be compiled."""
    if searched:
        failing(monkeypatch, "CompiledCandidates.compile", InputError("no placement could be compiled"))
    config, run = config_of(tmp_path), tmp_path / "run"
    found = run_in(run, start_run(run, config), plan=announcing(None if searched else ValueError("on purpose")))
    assert found.candidate_speedup.rounds, "it was compared"
    assert (found.search is not None) == searched
    assert found.not_searched == ("" if searched else "ValueError: on purpose")
    assert read_so_far(run / BEST) is None, "the comparison has confirmed it"
    assert searched or "No search was possible: ValueError: on purpose." in (run / "report.html").read_text()


def test_the_answer_so_far_is_compared_where_only_the_time_for_that_is_left(tmp_path: Path) -> None:
    config, run = config_of(tmp_path), tmp_path / "run"
    found = run_in(run, start_run(run, config), plan=announcing(PartIsOver()))
    assert found.candidate_speedup.rounds
    assert (found.search, found.not_searched) == (None, TIME_OVER)
    assert found.proof is not Proof.NONE


def test_an_answer_that_there_was_no_time_to_judge_is_delivered_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def over(*_: object) -> None:
        raise PartIsOver

    monkeypatch.setattr("collage_evo.run.stages.held_out.held_out_samples", over)
    config, run = config_of(tmp_path), tmp_path / "run"
    found = run_in(run, start_run(run, config), plan=plan_failing(SearchableModel, PartIsOver()))
    assert found.proof is not Proof.NONE
    assert read_so_far(run / BEST) is None
    assert UNJUDGED in found.accuracy.notes


def test_an_answer_that_exceeds_the_budget_is_withdrawn_where_there_was_no_time_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def excludes(run: RunContext, model: PreparedModel, compiled: Any, *_: object) -> None:
        compiled.excluded.add("placement-0")
        raise PartIsOver

    monkeypatch.setattr("collage_evo.run.final.hold_out", excludes)
    config, run = config_of(tmp_path), tmp_path / "run"
    found = run_in(run, start_run(run, config), plan=announcing())
    known = not_none(read_so_far(run / BEST))
    assert (found.proof, found.placed, found.best_ms) == (Proof.NONE, False, known.latency_ms)
    assert known.latency_ms > 1e-6


@pytest.mark.parametrize(
    ("plan", "placed"),
    [
        (announcing(), True),
        (announcing(PartIsOver()), True),
        (plan_failing(SearchableModel, PartIsOver()), False),
    ],
)
def test_an_answer_that_was_not_compared_in_time_has_a_result_that_says_so(
    plan: Plan, placed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, run = config_of(tmp_path), tmp_path / "run"
    with monkeypatch.context() as patched:
        failing(patched, "hold_out", PartIsOver())
        result = run_in(run, start_run(run, config), plan=plan)
    known, speedup = read_so_far(run / BEST), result.speedup_over_best_single
    assert (result.proof, result.best_ms, result.placed) == (Proof.NONE, not_none(known).latency_ms, placed)
    assert (speedup.low <= 1.0, speedup.rounds) == (True, ())
    (said,) = read_finished(run)
    assert (said.result.proof, said.result.best) == (result.proof, result.best)
    assert "Not confirmed: time was over before the final comparison" in " ".join(summary([said], run))
    assert "Time was over before the final comparison" in (run / "report.html").read_text()
    assert any("resume" in one for one in advice(result, run))
    assert (run_in(run, config).proof is not Proof.NONE, read_so_far(run / BEST)) == (True, None)
