"""What a person is told where samples are too few for the budget."""

from __future__ import annotations

import pytest

from collage_evo.accuracy.judge import Judgement
from collage_evo.accuracy.resolution import resolvable_drop, samples_needed, sampling_notes


def test_a_drop_of_one_percent_at_three_percent_disagreement_needs_some_800_samples() -> None:
    assert samples_needed(changed=0.03, drop=0.01) == pytest.approx(800, rel=0.05)
    assert resolvable_drop(0.03, samples_needed(0.03, 0.01)) == pytest.approx(0.01, rel=0.01)


def test_too_few_samples_for_a_drop_are_told_with_how_many_it_takes() -> None:
    judged = Judgement(0.0, 100, -0.03, 0.03, changed=0.03)
    (note,) = sampling_notes(judged, budget=0.01, shared=False)
    assert note.startswith("100 held-out samples do not resolve a drop of 0.01: with 3.0% of them judged otherwise")
    assert str(samples_needed(0.03, 0.01)) in note
    assert sampling_notes(judged, budget=0.05, shared=False) == ()


def test_that_no_sample_moved_resolves_no_more_than_one_would() -> None:
    (note,) = sampling_notes(Judgement(0.0, 50, 0.0, 0.0, changed=0.0), budget=0.01, shared=False)
    assert note.endswith("though none of them is judged otherwise: that takes 165: give 165")
    (note,) = sampling_notes(Judgement(0.0, 50, 0.0, 0.0, changed=0.0), 0.01, False, lambda needed: f"set {needed}")
    assert note.endswith("that takes 165: set 165")
    assert not sampling_notes(Judgement(0.0, 165, 0.0, 0.0, changed=0.0), budget=0.01, shared=False)


@pytest.mark.parametrize(
    ("judged", "budget", "told"),
    [
        (Judgement(0.018, 40, 0.015, 0.021), 0.02, "The interval reaches beyond the budget"),
        (Judgement(0.018, 40, 0.017, 0.019), 0.02, ""),
        (Judgement(0.018, 40, 0.017, 0.019), 0.0, ""),  # float32 alone
        (
            Judgement(0.012, 113, 0.005, 0.019, singles=(0.11, *[0.007] * 112)),
            0.05,
            "One of 113 held-out samples has 69% of the squared error",
        ),
        (Judgement(0.012, 113, 0.005, 0.019, singles=(0.04, *[0.007] * 112)), 0.05, ""),
        (Judgement(0.04, 113, 0.03, 0.05, singles=(0.06, *[0.04] * 112)), 0.05, ""),
        (Judgement(0.05, 40, 0.04, 0.06), 0.02, "Even in float32"),
    ],
)
def test_intervals_single_samples_and_float32_over_the_budget_are_told(
    judged: Judgement, budget: float, told: str
) -> None:
    notes = sampling_notes(judged, budget, shared=False)
    assert len(notes) == bool(told)
    assert "".join(notes).startswith(told)


def test_samples_that_served_for_everything_are_told() -> None:
    (note,) = sampling_notes(Judgement(0.001, 1), budget=0.02, shared=True)
    assert note.startswith("There is only one sample, for calibration, search and check alike")
    (note,) = sampling_notes(Judgement(0.001, 2), budget=0.02, shared=True)
    assert note.startswith("There are only 2 samples, for")


def test_samples_that_the_search_saw_are_not_called_unseen() -> None:
    for judged in (Judgement(0.05, 1, 0.04, 0.06), Judgement(0.0, 1, changed=0.0), Judgement(0.0, 1, changed=1.0)):
        told = " ".join(sampling_notes(judged, budget=0.02, shared=True))
        assert "held-out" not in told
        assert "never saw" not in told
    assert "1 held-out sample does not resolve" in sampling_notes(Judgement(0.0, 1, changed=0.0), 0.02, False)[0]


def test_of_a_worst_sample_the_share_that_may_be_worse_is_told() -> None:
    judged = Judgement(0.005, 30, 0.004, 0.006, singles=(0.01,) * 30, over="worst")
    (note,) = sampling_notes(judged, budget=0.02, shared=False)
    assert note == "Of all samples to come at most 9.5% exceed the budget (95 % certain)"
