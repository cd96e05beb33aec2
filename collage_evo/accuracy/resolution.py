"""Resolution of a number of samples, as notes for the user (McNemar's test, exact intervals)."""

from __future__ import annotations

import math
from collections.abc import Callable

from collage_evo.accuracy.judge import Judgement
from collage_evo.statistics import share_interval

ONE_SIDED = 1.645
"""Standard errors within which the true drop lies, in 95 of 100 cases, of the measured one."""
MOST_BY_ONE = 0.25
"""From this share of the squared error on, a single sample decides the error, and few like it were seen."""


def samples_needed(changed: float, drop: float) -> int:
    """Number of samples that distinguish ``drop`` from none, if the share ``changed`` of them is judged differently.

    Each sample adds to the drop -1, 0 or 1, and is not 0 with probability ``changed``, so that the drop's variance is
    at most changed/samples (McNemar, Psychometrika 12, 1947).
    """
    return math.ceil(changed * (ONE_SIDED / drop) ** 2)


def share_of_worst(judged: Judgement) -> float:
    """The worst sample's part of the squared errors of all samples."""
    return max(judged.singles) ** 2 / sum(one**2 for one in judged.singles)


def sampling_notes(
    judged: Judgement, budget: float, shared: bool, advice: Callable[[int], str] = lambda needed: f"give {needed}"
) -> tuple[str, ...]:
    """Notes on an error that was measured on so many samples, against ``budget``.

    ``shared``: they are those that the search saw too. ``advice``: what to do for so many held-out samples.
    """
    notes: list[str] = []
    if shared:
        few = "is only one sample" if judged.samples == 1 else f"are only {judged.samples} samples"
        text = "for calibration, search and check alike: on others the error may be larger"
        notes.append(f"There {few}, {text}")
    if not 0.0 < budget < math.inf:
        return tuple(notes)
    if judged.over == "worst":
        most = share_interval(judged.beyond(budget), judged.samples, level=0.9)[1]
        notes.append(f"Of all samples to come at most {most:.1%} exceed the budget (95 % certain)")
    where = "these samples" if shared else "samples that the search never saw"
    if judged.error > budget:
        notes.append("Even in float32 the answer exceeds the budget on " + where)
    elif judged.over == "worst":
        pass  # the following is about all samples together
    elif judged.changed == 0.0 and judged.samples < ONE_SIDED / budget:
        notes.append(
            f"{_held_out(judged, shared)} not resolve a drop of {budget:.2g}, though none of them is judged "
            f"otherwise: that takes {_with_advice(math.ceil(ONE_SIDED / budget), advice)}"
        )
    elif judged.changed and judged.samples < samples_needed(judged.changed, budget):
        notes.append(
            f"{_held_out(judged, shared)} not resolve a drop of {budget:.2g}: with {judged.changed:.1%} of "
            f"them judged otherwise that takes some {_with_advice(samples_needed(judged.changed, budget), advice)}"
        )
    elif judged.score is None and (judged.worst or 0.0) > budget and share_of_worst(judged) > MOST_BY_ONE:
        share = f"{share_of_worst(judged):.0%} of the squared error"
        notes.append(
            f"One of {judged.samples} held-out samples has {share}: on others it may be several times as large. Give "
            "more samples, or bound each one's error (accuracy.over: worst)"
        )
    elif judged.high is not None and judged.high > budget:
        notes.append("The interval reaches beyond the budget: more samples would tell for certain")
    return tuple(notes)


def _with_advice(needed: int, advice: Callable[[int], str]) -> str:
    return f"{needed}: {advice(needed)}"


def _held_out(judged: Judgement, shared: bool) -> str:
    aside = "" if shared else "held-out "
    return f"1 {aside}sample does" if judged.samples == 1 else f"{judged.samples} {aside}samples do"
