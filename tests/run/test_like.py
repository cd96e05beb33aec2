"""A run that begins with another one's answer measures what was good there, and says how much carried over."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from collage_evo.config import Config, changed, parse_config
from collage_evo.errors import InputError
from collage_evo.genome.encoding import decode
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Outcome
from collage_evo.report.progress import LineReporter
from collage_evo.report.result import LibraryResult, Result, Speedup
from collage_evo.report.words import describe_failure
from collage_evo.run.directory import reopen_run, start_run
from collage_evo.run.recorded import read_run
from collage_evo.run.samples import model_file
from collage_evo.run.warm_start import LIKE_SECONDS, PLACEMENTS, WarmStart, begin_like
from collage_evo.run.warm_start import QUICK as QUICKER
from collage_evo.search.evolution.origin import Origin, Way
from tests.graph.ir.test_align import with_one_more
from tests.support.models import chain, tiny_convnet
from tests.support.parsed import files_parsed
from tests.support.quick import QUICK, nested
from tests.support.runs import run_in

pytestmark = pytest.mark.slow
SETTINGS = {**QUICK, "search.evaluations": 3}


def configured(folder: Path, model: onnx.ModelProto, **more: Any) -> Config:
    onnx.save(model, folder / "model.onnx")
    given = {**SETTINGS, "model.source": str(folder / "model.onnx"), "cache.dir": str(folder / "cache"), **more}
    return parse_config(nested(given), (), "test")


def run(config: Config, directory: Path) -> tuple[Result, Sequence[str]]:
    lines: list[str] = []
    return run_in(directory, start_run(directory, config), LineReporter(lines.append)), lines


def begin(config: Config, told: Callable[[str], None] = lambda text: None) -> tuple[Config, WarmStart]:
    return begin_like(config, LineReporter(told), model_file(config))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first")
    run(configured(folder, tiny_convnet(seed=0)), folder / "run")
    return folder / "run"


def like(first: Path, model: onnx.ModelProto, folder: Path) -> tuple[Result, str]:
    found, lines = run(configured(folder, model, **{"search.like": str(first)}), folder / "run")
    return found, "\n".join(lines)


def test_new_weights_take_placements_and_costs_over_and_measure_no_cost(first: Path, tmp_path: Path) -> None:
    with files_parsed(tmp_path / "model.onnx") as parsed:
        found, told = like(first, tiny_convnet(seed=1), tmp_path)
    assert len(parsed) == 1
    count = len(read_run(first).graph.nodes)
    assert f"{count} of {count} operators carry over" in told
    assert "costs from profiles" not in found.wall_seconds
    assert found.seeds[0].kind == Origin(Way.TRANSFERRED)
    before, now = read_run(first), read_run(tmp_path / "run")
    assert now.space.cost.match_ms == pytest.approx(before.space.cost.match_ms)
    transferred = [one for one in now.evaluated.values() if one.kind == Origin(Way.TRANSFERRED, seeded=True)]
    assert transferred
    assert {decode(one.genome, now.space).key for one in transferred} <= before.evaluated.keys()
    assert found.numerics["max_relative_error"] is not None


def test_of_nearly_the_same_graph_what_has_a_pair_carries_over(first: Path, tmp_path: Path) -> None:
    found, told = like(first, with_one_more(tiny_convnet(seed=1), "Gemm"), tmp_path)
    count = len(read_run(first).graph.nodes)
    assert f"{count} of {count + 1} operators carry over" in told
    assert "costs from profiles" not in found.wall_seconds
    costs = read_run(tmp_path / "run").space.cost
    assert 0 < len(costs.estimated) < len(costs.match_ms)


def test_of_another_model_nothing_carries_over_and_all_is_as_usual(first: Path, tmp_path: Path) -> None:
    config = configured(tmp_path, chain(2), **{"search.like": str(first)})
    lines: list[str] = []
    same, earlier = begin(config, lines.append)
    assert (same, earlier) == (config, WarmStart())
    assert "carries over" in lines[0]


def test_a_run_like_another_has_less_to_do_unless_the_person_says_how_much(first: Path, tmp_path: Path) -> None:
    config = configured(tmp_path, tiny_convnet(), **{"search.like": str(first)})
    quick, earlier = begin(config)
    assert earlier.earlier is not None
    assert quick.final.seconds == QUICKER["final"]["seconds"]
    assert quick.search == config.search
    free = changed(config, {"search.seconds": None, "search.evaluations": None, "final.seconds": 77.0}, "test")
    quick, _ = begin(free)
    assert (quick.search.seconds, quick.search.evaluations) == (LIKE_SECONDS, PLACEMENTS)
    assert quick.final.seconds == 77.0


def test_a_run_that_is_not_there_or_has_not_ended_is_told(first: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\(--like\) needs the run directory nowhere, which is missing: restore"):
        begin(configured(tmp_path, chain(1), **{"search.like": "nowhere"}))
    begun = tmp_path / "begun"
    start_run(begun, configured(tmp_path, chain(1)))
    with pytest.raises(InputError, match="has not ended: continue it with"):
        begin(configured(tmp_path, chain(1), **{"search.like": str(begun)}))


def test_a_run_whose_other_is_gone_goes_on_once_it_is_back(first: Path, tmp_path: Path) -> None:
    other = shutil.copytree(first, tmp_path / "other")
    start_run(tmp_path / "run", configured(tmp_path, tiny_convnet(), **{"search.like": str(other)}))
    other.rename(tmp_path / "moved")
    with pytest.raises(InputError, match=r"warm start .* needs the run directory .*other"):
        run_in(tmp_path / "run", reopen_run(tmp_path / "run"))
    (tmp_path / "moved").rename(other)
    begun, earlier = begin(reopen_run(tmp_path / "run"))
    assert earlier.earlier is not None
    assert begun.final.seconds == QUICKER["final"]["seconds"]


def test_a_backend_that_was_far_behind_is_not_measured_again(first: Path, tmp_path: Path) -> None:
    copy = json.loads((first / "baselines.json").read_text())
    slow = {**copy[0], "name": "onnxruntime/nchw", "variant": "nchw"}
    slow["outcome"] = {**slow["outcome"], "latency_ms": 1e3 * copy[0]["outcome"]["latency_ms"]}
    original = (first / "baselines.json").read_text()
    try:
        (first / "baselines.json").write_text(json.dumps([*copy, slow]))
        _, earlier = begin(configured(tmp_path, tiny_convnet(), **{"search.like": str(first)}))
        assert list(earlier.far) == [("onnxruntime", "nchw")]
    finally:
        (first / "baselines.json").write_text(original)


def test_who_was_not_tried_for_what_an_earlier_run_told_is_said_to_be_so_in_any_run_after_it(
    first: Path, tmp_path: Path
) -> None:
    (alone, *_) = read_run(first).baselines
    broken = Failure(Fault.BUILD, detail="Check failed: (a != b)")
    failures = (Failure(Fault.KNOWN, "it took 3.0 times as long"), broken)
    others = tuple(
        replace(alone, name=name, variant=name, exact=False, outcome=Outcome.unfit(failure))
        for name, failure in zip(("known", "broken"), failures, strict=True)
    )
    earlier = replace(read_run(first), directory=tmp_path)
    earlier.__dict__["baselines"] = (alone, *others)
    told = WarmStart(earlier).far
    assert told[alone.backend, "known"] == "it took 3.0 times as long"
    assert told[alone.backend, "broken"] == f"in {tmp_path} ONNX Runtime in float32 (broken) cannot compile it"
    assert describe_failure(failures[0], "openvino") == "OpenVINO was not tried: it took 3.0 times as long"


@pytest.mark.parametrize("how", ["best", "part", "compared"])
def test_who_won_or_was_compared_is_measured_again_however_slow_it_was_at_first(
    first: Path, tmp_path: Path, how: str
) -> None:
    """A library that was disturbed when it was first timed, or whose pieces won and not the whole of it."""
    recorded = read_run(first)
    (alone, *_), result = recorded.baselines, recorded.result
    slow = replace(
        alone, name="openvino", backend="openvino", variant="default", outcome=replace(alone.outcome, latency_ms=1e6)
    )
    failed = replace(slow, outcome=Outcome.unfit(Failure(Fault.CRASH, "late")))
    region = replace(result.placement[0], backend="openvino", variant="default")
    library = LibraryResult("openvino", "openvino", "default", 1.0, None, Speedup(1.0, 1.0, 1.0, ()))
    took_part: dict[str, Result] = {
        "best": replace(result, best_single="openvino"),
        "part": replace(result, placement=[*result.placement, region]),
        "compared": replace(result, libraries=[library]),
    }
    other = replace(region, backend=alone.backend)
    without = replace(result, best_single=alone.name, libraries=(), placement=[other])
    for baseline in (slow, failed):
        for told, expected in ((took_part[how], []), (without, [("openvino", "default")])):
            earlier = replace(recorded, directory=tmp_path, result=told)
            earlier.__dict__["baselines"] = (alone, baseline)
            assert list(WarmStart(earlier).far) == expected
