"""A run is a graph of values: whoever asks for one gets it with what it needs, and nothing else is done."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from collage_evo import cli
from collage_evo.commands.pick import pick_answer
from collage_evo.config import Config, parse_config
from collage_evo.errors import InputError, NotSearchable
from collage_evo.models.builder import Builder
from collage_evo.report.advice import advice
from collage_evo.report.progress import LineReporter
from collage_evo.run.directory import start_run
from collage_evo.run.flow import Flow, evaluate
from collage_evo.run.recorded import read_run
from collage_evo.run.search import NotSearched
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
    monkeypatch.setattr("collage_evo.run.stages.early.GAINS", math.inf)  # a tiny model gains nothing
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
