"""What a person is told where samples are too few for the budget."""

from __future__ import annotations

import re

import pytest

from collage_evo.accuracy.judge import Judgement
from collage_evo.accuracy.resolution import sampling_notes

ONE = "There is only one sample, for calibration, search and check alike"
HEAVY, LIGHT = (0.11, *[0.007] * 112), (0.04, *[0.007] * 112)


@pytest.mark.parametrize(
    ("judged", "budget", "shared", "told"),
    [
        (Judgement(0.018, 40, 0.015, 0.021), 0.02, False, ["The interval reaches beyond the budget"]),
        (Judgement(0.018, 40, 0.017, 0.019), 0.02, False, []),
        (Judgement(0.018, 40, 0.017, 0.019), 0.0, False, []),  # float32 alone
        (Judgement(0.05, 40, 0.04, 0.06), 0.02, False, ["Even in float32"]),
        (
            Judgement(0.0, 100, -0.03, 0.03, changed=0.03),
            0.01,
            False,
            [r"100 held-out samples do not resolve a drop of 0\.01: with 3\.0% of them .* 812: give"],
        ),
        (Judgement(0.0, 100, -0.03, 0.03, changed=0.03), 0.05, False, []),
        (Judgement(0.0, 50, 0.0, 0.0, changed=0.0), 0.01, False, [".* none of them is judged .* takes 165: give"]),
        (Judgement(0.0, 165, 0.0, 0.0, changed=0.0), 0.01, False, []),
        (Judgement(0.0, 1, changed=0.0), 0.02, False, ["1 held-out sample does not resolve"]),
        (Judgement(0.012, 113, 0.005, 0.019, singles=HEAVY), 0.05, False, ["One of 113 held-out samples has 69% of"]),
        (Judgement(0.012, 113, 0.005, 0.019, singles=LIGHT), 0.05, False, []),
        (Judgement(0.04, 113, 0.03, 0.05, singles=(0.06, *[0.04] * 112)), 0.05, False, []),
        (
            Judgement(0.005, 30, 0.004, 0.006, singles=(0.01,) * 30, over="worst"),
            0.02,
            False,
            [r"Of all samples to come at most 9\.5% exceed the budget \(95 % certain\)$"],
        ),
        (Judgement(0.001, 1), 0.02, True, [ONE]),
        (Judgement(0.001, 2), 0.02, True, ["There are only 2 samples, for"]),
        (Judgement(0.05, 1, 0.04, 0.06), 0.02, True, [ONE, "Even in float32 .* on these samples"]),
        (Judgement(0.0, 1, changed=0.0), 0.02, True, [ONE, "1 sample does not resolve .* none of them"]),
        (Judgement(0.0, 1, changed=1.0), 0.02, True, [ONE, "1 sample does not resolve .* 100.0% of them"]),
    ],
)
def test_notes(judged: Judgement, budget: float, shared: bool, told: list[str]) -> None:
    notes = sampling_notes(judged, budget, shared)
    assert len(notes) == len(told)
    assert all(map(re.match, told, notes))
    assert not shared or "never saw" not in " ".join(notes)


def test_what_to_do_is_the_callers() -> None:
    judged = Judgement(0.0, 50, 0.0, 0.0, changed=0.0)
    assert sampling_notes(judged, 0.01, False, lambda needed: f"set {needed}")[0].endswith("that takes 165: set 165")
