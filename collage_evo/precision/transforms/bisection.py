"""Bisection of operators that were not tried: sets of them are tried at once, and halves of a set show who causes it.

As in adaptive group testing (Hwang, "A method for detecting all defective members in a population by group testing",
1972), few trials find the operators that hold most of the error, where time does not suffice for one of each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import chain
from typing import TypeVar

T = TypeVar("T", bound=Hashable)
LEAST_PART = 0.1
"""Share of a set's squared error that its second half has at least: squares add up roughly. Chosen."""
LEAST = 1e-30
"""Squared errors below this are equal."""


def bisected(
    estimates: Mapping[T, float],
    tried: Mapping[T, float],
    expected_ms: Mapping[T, float],
    budget: float,
    error2: Callable[[Sequence[T]], float],
    is_over: Callable[[], bool],
) -> dict[tuple[T, ...], float]:
    """The squared errors of sets of trials that are not in ``tried``, measured until a mixture at the budget consists
    of what was measured, and leaves no part of a set out, or until the time is over.

    The first set is what the mixture would contain, then what it contains instead; if there is no more, the first
    half of the set of which it leaves out the most time: bisection of what errs too much finds who causes it.

    Args:
        estimates: the squared error of each trial by itself, measured or estimated.
        tried: those that were measured.
        expected_ms: what the operator of each takes.
        budget: the relative error of the mixture.
        error2: measures the squared error of several at once.
        is_over: whether no further set is measured.
    """
    sets = dict[tuple[T, ...], float]()
    while not is_over():
        mixture = _mixture(attributed(estimates, tried, sets), expected_ms, budget)
        known = {*tried, *chain.from_iterable(sets)}
        left_out_ms = {
            one: sum(expected_ms[trial] for trial in one if trial not in mixture) for one in sets if len(one) > 1
        }
        if new := tuple(trial for trial in mixture if trial not in known):
            sets[new] = error2(new)
        elif any(left_out_ms.values()):
            whole = max(left_out_ms, key=left_out_ms.__getitem__)
            half, all2 = len(whole) // 2, sets.pop(whole)
            sets[whole[:half]] = its = error2(whole[:half])
            sets[whole[half:]] = max(all2 - its, LEAST_PART * all2)
        else:
            break
    return sets


def attributed(
    estimates: Mapping[T, float], tried: Mapping[T, float], sets: Mapping[tuple[T, ...], float]
) -> dict[T, float]:
    """The squared error of each trial, where those in ``sets`` that were not ``tried`` by themselves share the
    measured error of their set in proportion to their ``estimates``."""
    found = dict(estimates)
    for together, error2 in sets.items():
        factor = error2 / max(LEAST, sum(found[trial] for trial in together))
        found |= {trial: factor * found[trial] for trial in together if trial not in tried}
    return found


def _mixture(errors2: Mapping[T, float], expected_ms: Mapping[T, float], budget: float) -> Mapping[T, float]:
    """The trials of a mixture at the budget, those that take the most time for their squared error first."""
    mixture = dict[T, float]()
    for trial in sorted(errors2, key=lambda one: errors2[one] / expected_ms[one]):
        if sum(mixture.values()) + errors2[trial] <= budget**2:
            mixture[trial] = errors2[trial]
    return mixture
