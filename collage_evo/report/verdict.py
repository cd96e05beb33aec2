"""Verdict of a run: use the artifact, switch to a library, or change nothing, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from collage_evo.report.result import LibraryResult, Result
from collage_evo.report.words import format_ms, format_name, format_ratio, title

USUAL = "onnxruntime"
"""Backend that a user with an ONNX file is assumed to use now."""
COUNTS = 0.05
"""A call that adds a smaller share of a run's time is not mentioned: repeated timings differ by as much."""


def verdict(result: Result) -> str:
    """What to do after a run, and why, as one sentence with a full stop.

    Only a proof by the final comparison, with the whole interval above 1, is a reason to change anything.
    """
    action, reason = _decision(result)
    return f"{action}: {reason}."


def verdict_of_profiles(results: Sequence[Result]) -> str:
    """The same for several profiles of input shapes, which share an artifact: the number of profiles for each
    decision."""
    if len(results) == 1:
        return verdict(results[0])
    actions = Counter(_decision(result)[0] for result in results)
    if len(actions) == 1:
        return f"{next(iter(actions))}, for all {len(results)} profiles of input shapes."
    counted = [f"{action} ({count} of {len(results)} profiles)" for action, count in actions.most_common()]
    return f"{', '.join([counted[0], *(one[:1].lower() + one[1:] for one in counted[1:])])}."


def _decision(result: Result) -> tuple[str, str]:
    """What to do, and the reason."""
    if _breaks_budget(result):
        return "Keep what you have", "nothing that was measured keeps the budget"
    answer = next((one for one in result.libraries if one.name == result.answer), None)
    if answer is None and (rival := _made_up_for(result)):
        call = f"a call of the artifact's session adds {format_ms(result.call_ms)} ms"
        return "Keep what you have", f"{call}, no less than the artifact wins over {rival}"
    if result.answer == "placement":
        speedup, best = result.speedup_over_best_single, f"{format_name(result.best_single)}, the best library"
        gain = f"{_gain(result, speedup.estimate)} {best}"
        earlier = "" if speedup.low > 1.0 else "it won an earlier comparison, and this one does not decide: "
        return "Use the artifact", f"{earlier}{gain}"
    usual = next((one for one in result.libraries if one.backend == USUAL), None)
    same = result.answer == USUAL or (usual is not None and usual is answer)
    if same or (usual is not None and usual.keeps and usual.speedup.low <= 1.0):
        return f"Keep {title(USUAL)}", "nothing that was measured is proved faster"
    if answer is not None:
        return f"Switch to {title(answer.backend)} with its defaults", _over_usual(result, usual)
    return "Use the artifact", f"{format_name(result.answer)} is {_over_usual(result, usual)}"


def call_counts(result: Result) -> bool:
    """Whether the time that ``session.run`` adds to the execution matters, as it does for models of microseconds."""
    return result.objective == "latency" and (result.call_ms or 0.0) > COUNTS * (result.best.median_ms or 0.0)


def _made_up_for(result: Result) -> str:
    """The library with its defaults over which the answer gains no more than its own call adds; empty: none.

    Only the answer's call is counted, so that errors favour staying with the library.
    """
    libraries = [one for one in result.libraries if one.keeps and one.latency_ms is not None]
    if not libraries or not call_counts(result):
        return ""
    fastest = min(libraries, key=lambda one: one.latency_ms or 0.0)
    whole = (result.best.median_ms or 0.0) + (result.call_ms or 0.0)
    return title(fastest.backend) if (fastest.latency_ms or 0.0) <= whole else ""


def _over_usual(result: Result, usual: LibraryResult | None) -> str:
    """The answer's relation to the assumed library of the user, which it is not."""
    if usual is None:
        return f"the fastest that was measured, and {title(USUAL)} had no part in the final comparison"
    broken = "" if usual.keeps else ", which breaks the budget"
    return f"{_gain(result, usual.speedup.estimate)} {title(USUAL)}{broken}"


def _gain(result: Result, ratio: float) -> str:
    what = "the throughput of" if result.objective == "throughput" else "as fast as"
    return f"{format_ratio(ratio)} times {what}"


def _breaks_budget(result: Result) -> bool:
    """Whether the answer is over the budget, by the search's samples or by held-out ones."""
    point = next((point for point in result.front if point.answer), None)
    error, largest = result.accuracy.error_held_out, result.accuracy.largest
    return (point is not None and not point.feasible) or (
        error is not None and largest is not None and error > largest
    )
