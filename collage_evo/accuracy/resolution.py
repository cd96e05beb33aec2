"""What samples can tell: takes how many there are and what was judged on them, gives what a person has to know."""

from __future__ import annotations

import math

from collage_evo.accuracy.judge import Judgement

ONE_SIDED = 1.645
"""Standard errors within which a drop lies, in 95 of 100 cases, of the one that was measured."""


def resolvable_drop(spread: float, samples: int) -> float:
    """The smallest drop that ``samples`` can tell from none, where so large a share of them is judged otherwise.

    Each sample adds to the drop -1, 0 or 1, and is not 0 with probability ``spread``, so that the drop's variance is
    at most spread/samples (McNemar, Psychometrika 12, 1947).
    """
    return ONE_SIDED * math.sqrt(spread / samples)


def samples_needed(spread: float, drop: float) -> int:
    """How many samples tell ``drop`` from none."""
    return math.ceil(spread * (ONE_SIDED / drop) ** 2)


def sampling_notes(judged: Judgement, budget: float, shared: bool) -> tuple[str, ...]:
    """What there is to know of an error that was measured on so many samples, against ``budget``.

    ``shared``: they are those that the search saw too.
    """
    notes: list[str] = []
    if shared:
        few = "one sample" if judged.samples == 1 else f"{judged.samples} samples"
        told = "for calibration, search and check alike: on others the error may be larger"
        notes.append(f"There is only {few}, {told}")
    if not 0.0 < budget < math.inf:
        return tuple(notes)
    spread = None if judged.spread is None else max(judged.spread, 1.0 / judged.samples)
    if spread is not None and resolvable_drop(spread, judged.samples) > budget:
        notes.append(
            f"{judged.samples} held-out samples do not resolve a drop of {budget:.2g}: with {spread:.1%} of them "
            f"judged otherwise that takes some {samples_needed(spread, budget)}"
        )
    elif judged.high is not None and judged.error <= budget < judged.high:
        notes.append("The interval reaches beyond the budget: more samples would tell for certain")
    return tuple(notes)
