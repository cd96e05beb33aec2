"""What the answer replaces is timed in turns with it: each library as it comes; the race's turns count too."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collage_evo.backends.registry import get_backend
from collage_evo.backends.variants import engine_name
from collage_evo.fitness.final.answer import ITSELF, Verdict
from collage_evo.fitness.final.baselines import Baseline
from collage_evo.fitness.final.race import Race
from collage_evo.fitness.final.sequential import LOOKS, Ratio
from collage_evo.fitness.outcome import Outcome
from collage_evo.policy import DEFAULT_POLICY
from collage_evo.report.progress import LineReporter
from collage_evo.run.stages import libraries
from collage_evo.run.stages.libraries import ANSWER, ROUNDS, as_they_come, measure_libraries

GAIN = Ratio(1.5, 1.4, 1.6, (1.5, 1.5))


def baseline(backend: str, variant: str = "default", ms: float = 2.0) -> Baseline:
    return Baseline(engine_name(backend, variant), backend, variant, Path(backend), Outcome(ms, n=9, error=1e-3))


def usual() -> str:
    """The variant that OpenVINO takes by itself on this processor."""
    variant = get_backend("openvino").like_defaults("cpu")
    assert variant is not None
    return variant.name


def test_a_library_as_it_comes_is_in_the_precision_that_it_chooses_itself() -> None:
    every = [("onnxruntime", "default"), ("onnxruntime", "nchw"), ("openvino", "default"), ("openvino", "bf16")]
    found = as_they_come([*(baseline(*one) for one in every), baseline("ncnn")], "cpu")
    assert [one.name for one in found] == ["onnxruntime", engine_name("openvino", usual())]
    in_float32 = as_they_come([baseline("openvino")], "cpu")
    assert [one.variant for one in in_float32] == (["default"] if usual() == "default" else [])
    assert not as_they_come([Baseline("onnxruntime", "onnxruntime", "default", Path("x"), Outcome(None))], "cpu")


def laps(ms: float, rounds: int) -> tuple[tuple[tuple[float, ...], ...], ...]:
    """Each round two bursts of two runs."""
    return (((ms, ms), (ms, ms)),) * rounds


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Path]]:
    """Who took turns with the answer, in which ONNX Runtime takes three times as long and OpenVINO half as long."""
    asked: list[Mapping[str, Path]] = []

    def race(artifacts: Mapping[str, Path], pool: Any, rounds: int, still: Callable[[Race], Collection[str]]) -> Race:
        asked.append(artifacts)
        ms = {ANSWER: 1.0, "onnxruntime": 3.0}
        found = Race({name: laps(ms.get(name, 0.5), rounds) for name in artifacts}, {}, {}, 7.0)
        assert still(found)
        return found

    monkeypatch.setattr(libraries, "race", race)
    return asked


def measured(verdict: Verdict, *baselines: Baseline, broke: Collection[str] = ()) -> dict[str, Any]:
    run: Any = SimpleNamespace(
        config=SimpleNamespace(policy=DEFAULT_POLICY),
        target=SimpleNamespace(device="cpu"),
        limits=SimpleNamespace(budget=0.01),
        whole=None,
        reporter=LineReporter(print),
        stage=lambda name, total: contextlib.nullcontext(),
    )
    return {one.name: one for one in measure_libraries(run, verdict, Path("best"), baselines, broke)}


def verdict_of(answer: str, best: str, rounds: Mapping[str, int]) -> Verdict:
    race = Race({name: laps(1.0 if name == answer else 1.5, count) for name, count in rounds.items()}, {}, {}, 5.0)
    speedup = ITSELF if answer == best else GAIN
    return Verdict(answer, best, speedup, answer, speedup, race)


def test_the_best_library_has_the_very_figure_of_the_race_and_who_is_far_behind_has_turns(turns: list[Any]) -> None:
    openvino = engine_name("openvino", usual())
    verdict = verdict_of("placement-0", openvino, {"placement-0": 6, openvino: 6})
    found = measured(verdict, baseline("onnxruntime"), baseline("openvino", usual()))
    assert found[openvino].speedup.estimate == GAIN.estimate
    assert turns == [{ANSWER: Path("best"), "onnxruntime": Path("onnxruntime")}]
    assert found["onnxruntime"].speedup.estimate == pytest.approx(3.0)
    assert len(found["onnxruntime"].speedup.rounds) == ROUNDS


def test_who_ran_long_enough_in_the_race_needs_no_more_turns(turns: list[Any]) -> None:
    verdict = verdict_of("placement-0", "ncnn", {"placement-0": LOOKS[0], "ncnn": LOOKS[0], "onnxruntime": LOOKS[0]})
    found = measured(verdict, baseline("onnxruntime"), baseline("ncnn"))
    assert not turns
    assert found["onnxruntime"].speedup.estimate == pytest.approx(1.5)


def test_a_library_that_is_the_answer_is_one_by_definition(turns: list[Any]) -> None:
    found = measured(verdict_of("onnxruntime", "onnxruntime", {"onnxruntime": 3}), baseline("onnxruntime"))
    assert found["onnxruntime"].speedup.by_definition
    assert not turns


def test_a_library_that_broke_the_budget_after_the_race_does_not_keep_it(turns: list[Any]) -> None:
    openvino = baseline("openvino", usual())
    verdict = verdict_of("onnxruntime", "onnxruntime", {"onnxruntime": 6})
    found = measured(verdict, baseline("onnxruntime"), openvino, broke={openvino.name})
    assert not found[openvino.name].keeps
    assert found[openvino.name].speedup.estimate == pytest.approx(0.5)
