"""Error of an answer in words: its budget's unit, its samples, single samples and other metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from collage_evo.accuracy.invariance import Invariance, Movement
from collage_evo.accuracy.judge import Quality
from collage_evo.report.accuracy import describe_accuracy, describe_loss
from collage_evo.report.result import Accuracy, InvarianceResult

PLAIN = Accuracy("", 0.02, 0.02, 9e-3, 0.018, (8e-3, 9.9e-3), {"search": 32, "held_out": 20}, random=False)
ERROR, LABELS = Quality("", 0.018, worst=0.031), Quality("agreement", 0.1, score=0.9, reference=1.0)
JUDGED = {"held_out": (ERROR, LABELS), "over_budget": 5}
SCORES = (ERROR, LABELS, Quality("top1", 0.01, score=0.7, reference=0.71), Quality("psnr", 0.0))
STILL = Movement(4e-7, 3e-7)
MOVES = InvarianceResult(Invariance(Movement(0.05, 0.02), Movement(0.07, 0.03)), Invariance(STILL, STILL))
DETAILS = "20 held-out samples; worst sample 0.031; 5 of 20 exceed the budget; labels changed"


def counted(number: int, **changes: Any) -> dict[str, Any]:
    return {"samples": {"held_out": number, "search": 5}, **changes}


@pytest.mark.parametrize(
    ("describe", "changes", "text"),
    [
        (describe_loss, {"metric": "m.py:accuracy", "budget": "1%", "largest": 0.009, "error_held_out": 0.0045},
         "drop of m.py:accuracy 0.5%, budget 1% (20 held-out samples)"),
        (describe_loss, {"budget": "exact", "error_held_out": None, "error_search": None},
         "the budget is float32 throughout"),
        (describe_loss, counted(1), "relative error 0.018, budget 0.02 (1 held-out sample)"),
        (describe_loss, counted(1, unseen=False), "relative error 0.018, budget 0.02 (1 sample)"),
        (describe_loss, counted(2, over="worst"),
         "relative error of the worst sample 0.018, budget 0.02 (2 held-out samples)"),
        (describe_loss, counted(16, random=True), "relative error 0.018, budget 0.02 (16 random inputs)"),
        (describe_loss, JUDGED, f"relative error 0.018, budget 0.02 ({DETAILS}: 2 of 20)"),
        (describe_loss, {**JUDGED, "held_out": (ERROR, replace(LABELS, error=0.111))},
         f"relative error 0.018, budget 0.02 ({DETAILS}: 11 %)"),
        (describe_loss, {**JUDGED, "metric": "agreement", "held_out": (replace(LABELS, worst=1.0), ERROR)},
         "drop of agreement 0.018, budget 0.02 (20 held-out samples)"),
        (describe_loss, {**JUDGED, "held_out": ()}, "relative error 0.018, budget 0.02 (20 held-out samples)"),
        (describe_accuracy, {**counted(1), "unseen": False, "interval": None},
         "Relative error of the answer, all samples together: 0.009 on 5 samples that the search saw, 0.018 on 1 "
         "sample, also seen; budget 0.02."),
        (describe_accuracy, {"metric": "m.py:f", "budget": "1%", "error_held_out": None, "random": True,
                             "notes": ["Too few"]},
         "Drop of m.py:f, all samples together: 0.009 on 32 samples that the search saw; budget 1%. The samples are "
         "random numbers. Too few."),
        (describe_accuracy, {**JUDGED, "held_out": SCORES, "over": "worst"},
         "Relative error of the answer, of the worst sample: 0.009 on 32 samples that the search saw, 0.018 (95 % "
         "interval 0.008 to 0.0099) on 20 held-out samples; budget 0.02. Single samples: worst sample 0.031, 5 of 20 "
         "exceed the budget. On these also: labels changed: 2 of 20, top1 0.7 (the model itself 0.7100), psnr of "
         "identical outputs."),
        (describe_accuracy, {**counted(9), "interval": None, "invariance": MOVES},
         "Relative error of the answer, all samples together: 0.009 on 5 samples that the search saw, 0.018 on 9 "
         "held-out samples; budget 0.02. A row moves by up to 0.07 in a batch and beside padding, float32 by "
         "4.0e-07."),
        (describe_accuracy, {"error_search": None, "error_held_out": None},
         "Relative error of the answer, all samples together: not known; budget 0.02."),
    ],
)  # fmt: skip
def test_errors_in_words(describe: Callable[[Accuracy], str], changes: Mapping[str, Any], text: str) -> None:
    assert describe(replace(PLAIN, **changes)) == text
