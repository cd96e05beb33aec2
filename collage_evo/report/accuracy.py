"""Error of an answer in words: against its budget, on which samples, by which metrics."""

from __future__ import annotations

import math

from collage_evo.accuracy.judge import Quality
from collage_evo.accuracy.named import LABELS
from collage_evo.report.result import Accuracy, InvarianceResult
from collage_evo.report.words import capitalised, describe_request, format_count, format_number


def describe_loss(accuracy: Accuracy) -> str:
    """The error that the budget bounds, in the budget's own words."""
    held_out, error = accuracy.error_held_out is not None, accuracy.error
    count = accuracy.samples.get("held_out" if held_out else "search", 0)
    seen = "held-out sample" if held_out and accuracy.unseen else "sample"
    data = format_count(count, "random input" if accuracy.random else seen)
    what = f"drop of {accuracy.metric}" if accuracy.metric else "relative error"
    what += " of the worst sample" if accuracy.over == "worst" else ""
    if accuracy.budget == "exact":
        allowed = "the budget is float32 throughout"
        return f"{what} {format_number(error)}, which is rounding; {allowed}" if error is not None else allowed
    details = "; ".join([data, *_singles(accuracy), *_changed_labels(accuracy)])
    return f"{what} {_in_unit(error, accuracy)}, {format_budget(accuracy.budget)} ({details})"


def _in_unit(error: float | None, accuracy: Accuracy) -> str:
    """An error in the unit of the budget: a share of the metric if the budget is a share, a plain number else."""
    asked = str(accuracy.budget).strip()
    if error is None or not asked.endswith("%") or not accuracy.largest:
        return format_number(error)
    return f"{format_number(error / accuracy.largest * float(asked[:-1]))}%"


def describe_invariance(found: InvarianceResult) -> str:
    """How far a row moves, in one line."""
    both = ((found.answer.batch, "in a batch"), (found.answer.padding, "beside padding"))
    where = " and ".join(place for one, place in both if one is not None)
    answer, float32 = (format_number(one.largest) for one in (found.answer, found.float32))
    return f"a row moves by up to {answer} {where}, float32 by {float32}"


def accuracy_notes(accuracy: Accuracy) -> list[str]:
    """Notes on the error, as sentences."""
    return [note.rstrip(".") + "." for note in accuracy.notes]


def describe_accuracy(accuracy: Accuracy) -> str:
    """The answer's error, and the samples of its measurement, in one line; and notes on these."""
    what = f"Drop of {accuracy.metric}" if accuracy.metric else "Relative error of the answer"
    what += ", of the worst sample" if accuracy.over == "worst" else ", all samples together"
    counts, parts = accuracy.samples, []
    if accuracy.error_search is not None:
        seen = format_count(counts.get("search", 0), "sample")
        parts.append(f"{format_number(accuracy.error_search)} on {seen} that the search saw")
    held_out = format_count(counts.get("held_out", 0), "held-out sample" if accuracy.unseen else "sample")
    held_out += "" if accuracy.unseen else ", also seen"
    if accuracy.error_held_out is not None:
        text = format_number(accuracy.error_held_out)
        if accuracy.interval is not None:
            text += " (95 % interval {} to {})".format(*map(format_number, accuracy.interval))
        parts.append(f"{text} on {held_out}")
    random = " The samples are random numbers." if accuracy.random else ""
    notes = "".join(f" {note}." for note in accuracy.notes)
    errors = f"{what}: {', '.join(parts) or 'not known'}; {format_budget(accuracy.budget)}."
    singles = f" Single samples: {', '.join(_singles(accuracy))}." if _singles(accuracy) else ""
    moves = f" {capitalised(describe_invariance(accuracy.invariance))}." if accuracy.invariance else ""
    return f"{errors}{singles}{_describe_others(accuracy)}{moves}{random}{notes}"


def _singles(accuracy: Accuracy) -> list[str]:
    """Errors of single samples, if they are known."""
    if not accuracy.held_out or accuracy.over_budget is None:
        return []
    chosen, count = accuracy.held_out[0], accuracy.samples.get("held_out", 0)
    if count < 2 or (chosen.name and chosen.worst in (0.0, 1.0)):
        return []  # samples are right or wrong: the error counts them already
    verb = "exceeds" if accuracy.over_budget == 1 else "exceed"
    return [f"worst sample {format_number(chosen.worst)}", f"{accuracy.over_budget} of {count} {verb} the budget"]


def _changed_labels(accuracy: Accuracy) -> list[str]:
    """Changed labels, if the outputs are scores of classes and the budget limits something else."""
    others = [one for one in accuracy.held_out[1:] if one.name == LABELS and one.error is not None]
    return [format_score(one, accuracy) for one in others]


def _describe_others(accuracy: Accuracy) -> str:
    """Results of other metrics on the held-out samples, in a sentence; empty if there are none."""
    parts = [
        f"relative error {format_number(one.error)}" if not one.name else format_score(one, accuracy)
        for one in accuracy.held_out[1:]
    ]
    return f" On these also: {', '.join(parts)}." if parts else ""


def format_score(quality: Quality, accuracy: Accuracy) -> str:
    """A metric's name and score and, if the model itself has one other than 1, that too."""
    if quality.name == LABELS and quality.error is not None:
        count = accuracy.samples.get("held_out", 0)
        changed = quality.error * count
        whole = math.isclose(changed, round(changed), abs_tol=1e-6)  # samples of several rows have several labels
        return "labels changed: " + (f"{round(changed)} of {count}" if whole else f"{100 * quality.error:.2g} %")
    if quality.score is None:
        return f"{quality.name} {'of identical outputs' if quality.error == 0.0 else 'not known'}"
    if quality.name == "psnr":
        return f"psnr {quality.score:.1f} dB"
    reference = "" if quality.reference in (None, 1.0) else f" (the model itself {quality.reference:.4f})"
    return f"{quality.name} {quality.score:.6g}{reference}"


def format_budget(budget: float | str) -> str:
    """The budget in words."""
    return "float32 only" if budget == "exact" else f"budget {describe_request(budget)}"
