"""What the answer replaces takes part in the final race: each library with its defaults."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from collage_evo.answer.answer import ITSELF, Verdict
from collage_evo.answer.baselines import Baseline, near_defaults
from collage_evo.answer.race import Race
from collage_evo.answer.sequential import Ratio
from collage_evo.backends.registry import get_backend
from collage_evo.backends.variants import engine_name
from collage_evo.genome.outcome import Outcome
from collage_evo.hardware.target import Target
from collage_evo.report.result import LibraryResult
from collage_evo.run.result_parts import library_results
from tests.support.typed import not_none

GAIN = Ratio(1.5, 1.4, 1.6, (1.5, 1.5))


def baseline(backend: str, variant: str = "default", ms: float = 2.0) -> Baseline:
    return Baseline(engine_name(backend, variant), backend, variant, Path(backend), Outcome(ms, n=9, error=1e-3))


def usual() -> str:
    """The variant that OpenVINO takes by itself on this processor."""
    variant = not_none(get_backend("openvino").like_defaults(Target()))
    return variant.name


def test_a_library_as_it_comes_is_in_the_precision_that_it_chooses_itself() -> None:
    every = [("onnxruntime", "default"), ("onnxruntime", "nchw"), ("openvino", "default"), ("openvino", "bf16")]
    found = near_defaults([*(baseline(*one) for one in every), baseline("ncnn")], Target(), math.inf)
    assert [one.name for one in found] == ["onnxruntime", engine_name("openvino", usual())]
    in_float32 = near_defaults([baseline("openvino")], Target(), math.inf)
    assert [one.variant for one in in_float32] == (["default"] if usual() == "default" else [])
    failed = Baseline("onnxruntime", "onnxruntime", "default", Path("x"), Outcome(None))
    assert not near_defaults([failed], Target(), math.inf)


def test_a_library_several_times_as_slow_as_the_fastest_does_not_race() -> None:
    every = [baseline("onnxruntime", ms=3.0), baseline("openvino", usual(), ms=1.0)]
    assert [one.backend for one in near_defaults(every, Target(), 3.0)] == ["onnxruntime", "openvino"]
    assert [one.backend for one in near_defaults(every, Target(), 2.9)] == ["openvino"]


def laps(ms: float, rounds: int) -> tuple[tuple[tuple[float, ...], ...], ...]:
    """Each round two bursts of two runs."""
    return (((ms, ms), (ms, ms)),) * rounds


def compared(verdict: Verdict, *defaults: Baseline, excluded: Collection[str] = ()) -> dict[str, LibraryResult]:
    return {one.name: one for one in library_results(verdict, defaults, 0.98, 0.01, excluded)}


def verdict_of(answer: str, best: str, rounds: Mapping[str, int]) -> Verdict:
    race = Race({name: laps(1.0 if name == answer else 1.5, count) for name, count in rounds.items()}, {}, {}, 5.0)
    speedup = ITSELF if answer == best else GAIN
    return Verdict(answer, best, speedup, answer, speedup, race)


def test_all_ratios_are_of_the_race_and_the_best_library_has_its_very_figure() -> None:
    openvino = engine_name("openvino", usual())
    verdict = verdict_of("placement-0", openvino, {"placement-0": 6, openvino: 6, "onnxruntime": 3})
    found = compared(verdict, baseline("onnxruntime"), baseline("openvino", usual()))
    assert found[openvino].speedup.estimate == GAIN.estimate
    assert found["onnxruntime"].speedup.estimate == pytest.approx(1.5)
    assert len(found["onnxruntime"].speedup.rounds) == 3
    assert {one.speedup.seconds for one in found.values()} == {5.0}


def test_a_library_that_failed_in_the_race_has_no_row() -> None:
    assert not compared(verdict_of("ncnn", "ncnn", {"ncnn": 3}), baseline("onnxruntime"))


def test_a_library_that_is_the_answer_is_one_by_definition() -> None:
    found = compared(verdict_of("onnxruntime", "onnxruntime", {"onnxruntime": 3}), baseline("onnxruntime"))
    assert found["onnxruntime"].speedup.by_definition


def test_a_library_that_broke_the_budget_after_the_race_does_not_keep_it() -> None:
    openvino = baseline("openvino", usual())
    verdict = verdict_of("onnxruntime", "onnxruntime", {"onnxruntime": 6, openvino.name: 3})
    found = compared(verdict, openvino, excluded={openvino.name})
    assert not found[openvino.name].keeps
    assert found[openvino.name].speedup.estimate == pytest.approx(1.5)
