"""Error of an answer in words: against its budget, on which samples, by which metrics."""

from __future__ import annotations

from collage_evo.accuracy.judge import Quality
from collage_evo.report.result import Accuracy
from collage_evo.report.words import describe_request, format_count, format_number


def describe_loss(accuracy: Accuracy) -> str:
    """The error that the budget bounds, in the budget's own words."""
    held_out = accuracy.error_held_out is not None
    error = accuracy.error_held_out if held_out else accuracy.error_search
    count = accuracy.samples.get("held_out" if held_out else "search", 0)
    data = format_count(count, "random input" if accuracy.random else "sample")
    if held_out and not accuracy.random and accuracy.unseen:
        data += " that the search had not seen"
    what = f"loss of {accuracy.metric}" if accuracy.metric else "error"
    if accuracy.budget == "exact":
        allowed = "the budget is float32 throughout"
        return f"{what} {format_number(error)}, which is rounding; {allowed}" if error is not None else allowed
    kind = "drop of the metric" if accuracy.metric else "relative, of the outputs"
    kind += ", of the worst sample" if accuracy.over == "worst" else ""
    budget = format_budget(accuracy.budget)
    return f"{what} {_in_unit(error, accuracy)}, {budget} ({kind}, {data})"


def _in_unit(error: float | None, accuracy: Accuracy) -> str:
    """An error in the unit of the budget: a share of the metric if the budget is a share, a plain number else."""
    asked = str(accuracy.budget).strip()
    if error is None or not asked.endswith("%") or not accuracy.largest:
        return format_number(error)
    return f"{format_number(error / accuracy.largest * float(asked[:-1]))}%"


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
    found = f"{what}: {', '.join(parts) or 'not known'}; {format_budget(accuracy.budget)}."
    return f"{found}{_describe_worst(accuracy)}{_describe_others(accuracy)}{random}{notes}"


def _describe_worst(accuracy: Accuracy) -> str:
    """Errors of single samples, if they are known."""
    if not accuracy.held_out or accuracy.over_budget is None:
        return ""
    chosen, count = accuracy.held_out[0], accuracy.samples.get("held_out", 0)
    if chosen.name and chosen.worst in (0.0, 1.0):
        return ""  # samples are right or wrong: the error counts them already
    samples = " held-out samples" if accuracy.unseen else ""
    verb = "is" if accuracy.over_budget == 1 else "are"
    beyond = f"{accuracy.over_budget} of {count}{samples} {verb} over the budget"
    return f" The worst single sample: {format_number(chosen.worst)}; {beyond}."


def _describe_others(accuracy: Accuracy) -> str:
    """Results of other metrics on the held-out samples, in a sentence; empty if there are none."""
    parts = [
        f"relative error {format_number(one.error)}" if not one.name else f"{one.name} {format_score(one)}"
        for one in accuracy.held_out[1:]
    ]
    return f" On these also: {', '.join(parts)}." if parts else ""


def format_score(quality: Quality) -> str:
    """A metric's score and, if the model itself has one other than 1, that too."""
    if quality.score is None:
        return "of identical outputs" if quality.error == 0.0 else "not known"
    if quality.name == "psnr":
        return f"{quality.score:.1f} dB"
    own = "" if quality.reference in (None, 1.0) else f" (the model itself {quality.reference:.4f})"
    return f"{quality.score:.6g}{own}"


def format_budget(budget: float | str) -> str:
    """The budget in words."""
    return "float32 only" if budget == "exact" else f"budget {describe_request(budget)}"
