"""HTML report of a run as one self-contained page: the verdict, the answer, its speed and error, the reasons, the
rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from jinja2 import Environment, FunctionLoader

from collage_evo.errors import printable
from collage_evo.files import write_whole
from collage_evo.report.advice import advice
from collage_evo.report.blocks import precisions_of, rows_of
from collage_evo.report.curve import curve_svg
from collage_evo.report.front import describe_accuracy, has_front, rows_by_phase
from collage_evo.report.picture import NARROW, WIDE, front_svg
from collage_evo.report.places import COMMAND, home_of
from collage_evo.report.result import Result
from collage_evo.report.summary import (
    Finished,
    accuracy_notes,
    describe_answer,
    describe_gain,
    describe_library,
    describe_loss,
    describe_speed,
    gains,
)
from collage_evo.report.terminal import describe_check, describe_speeds
from collage_evo.report.verdict import verdict, verdict_of_profiles
from collage_evo.report.why import singles_in_words, why
from collage_evo.report.words import capitalised, format_engine, format_ms, format_name, format_shapes, title

MARKS = {
    "answer": "the answer",
    "single": "a library on the whole model",
    "pareto": "a combination, fastest at its error",
    "placement": "another combination",
    "answer brief": "the answer, timed briefly",
    "single brief": "a library, timed briefly",
    "pareto brief": "a combination, timed briefly, that seemed fastest at its error",
    "placement brief": "another combination, timed briefly",
}
"""Classes of marks in the picture, and their meaning."""


@dataclass(frozen=True)
class Bar:
    """A library's time next to the answer's: the length of the bar, of 100, and its caption."""

    name: str
    percent: float
    label: str
    answer: bool = False


def write_html(path: Path, result: Result) -> None:
    """Write ``report.html``."""
    front = has_front(result)
    pictures = [front_svg(result.front, result.accuracy, width) for width in (WIDE, NARROW)] if front else []
    single_ms = _single_in_search(result)
    curve = curve_svg(result.search.convergence, single_ms) if result.search else ""
    page = (
        _environment()
        .get_template("report.html.j2")
        .render(
            result=result,
            title=result.model["name"],
            verdict=verdict(result),
            facts=facts(result),
            date=date_of(result),
            answer=describe_answer(result),
            speed=describe_speed(result),
            bars=bars(result),
            itself=[capitalised(line) for line in gains(result) if line.startswith("this is")],
            loss=capitalised(describe_loss(result.accuracy)),
            share=error_share(result),
            notes=accuracy_notes(result.accuracy),
            why=why(result),
            advice=[capitalised(line) + ("" if COMMAND in line else ".") for line in advice(result, path.parent)],
            pictures=pictures,
            marks=[(kind, label) for kind, label in MARKS.items() if f'class="{kind}"' in "".join(pictures)],
            front=rows_by_phase(result.front) if front else [],
            rows=rows_of(result.placement),
            precisions=precisions_of(result.placement),
            singles=singles_in_words(result),
            speeds=describe_speeds(result.speeds, result.target["threads"]) if result.speeds is not None else "",
            accuracy=describe_accuracy(result.accuracy) if front else "",
            check=describe_check(result),
            curve=curve,
            dashed=bool(curve) and single_ms is not None,
            directory=path.parent,
            home=home_of(path.parent),
        )
    )
    write_whole(path, page)


def write_overview(path: Path, finished: Mapping[str, Finished], directory: Path) -> None:
    """Write ``report.html`` of a run with several profiles; their own pages are at the keys of ``finished``."""
    first = next(iter(finished.values())).result
    rows = [
        {
            "link": link,
            "shapes": format_shapes(one.shapes),
            "answer": describe_answer(one.result),
            "ms": format_ms(one.result.best.median_ms),
            "gains": gains(one.result),
            "loss": describe_loss(one.result.accuracy),
        }
        for link, one in finished.items()
    ]
    page = (
        _environment()
        .get_template("overview.html.j2")
        .render(
            title=first.model["name"],
            verdict=verdict_of_profiles([one.result for one in finished.values()]),
            facts=facts(first),
            date=date_of(first),
            result=first,
            rows=rows,
            directory=directory,
        )
    )
    write_whole(path, page)


def bars(result: Result) -> list[Bar]:
    """The answer, each library with its defaults, and the best single one: longer bars are slower; the answer is
    first."""
    longest = max([1.0, *(one.speedup.estimate for one in result.libraries)])
    longest = max(longest, result.speedup_over_best_single.estimate)
    found = [Bar("The answer", 100 / longest, describe_speed(result), answer=True)]
    others = {describe_library(one): one.speedup for one in result.libraries if not one.speedup.by_definition}
    if not result.speedup_over_best_single.by_definition:
        others.setdefault(format_name(result.best_single), result.speedup_over_best_single)
    found += [
        Bar(name, 100 * speedup.estimate / longest, f"{describe_gain(speedup)} as long")
        for name, speedup in sorted(others.items(), key=lambda item: item[1].estimate)
    ]
    return found


def facts(result: Result) -> list[tuple[str, str]]:
    """Conditions of the numbers, by name: date, command, machine, model, versions; older results lack some."""
    made, model, threads = result.environment, result.model, result.target["threads"]
    cores = f"; {threads} of {made['cores']} cores used" if "cores" in made else ""
    accelerator = f"; {result.target['accelerator']}" if result.target.get("accelerator") else ""
    command = made.get("command")
    rows = [
        ("Date", date_of(result)),
        ("Command", "" if command is None else printable(command) or "none: a Python program called the package"),
        ("Processor", f"{made['cpu']}{cores}{accelerator}"),
        ("Model", model.get("source", "")),
        ("Model's SHA-256", model.get("sha256", "")),
        ("System", f"{made['system']}, Python {made['python']}"),
        *((title(name), version) for name, version in made["backends"].items()),
        *((name, version) for name, version in made.get("libraries", {}).items()),
    ]
    return [(name, value) for name, value in rows if value]


def date_of(result: Result) -> str:
    """Date of the result, in the time zone of that machine; empty for older results without a date."""
    return str(result.environment.get("date", "")).replace("T", " ")


def error_share(result: Result) -> float | None:
    """The error in percent of the budget, at most 100; None if that is no number."""
    accuracy = result.accuracy
    error = accuracy.error_held_out if accuracy.error_held_out is not None else accuracy.error_search
    if error is None or not accuracy.largest or accuracy.budget == "exact":
        return None
    return max(0.0, min(100.0, 100.0 * error / accuracy.largest))


def _environment() -> Environment:
    """Jinja environment of the templates in this directory; it escapes values of a result."""
    folder = resources.files("collage_evo.report")
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True,
        loader=FunctionLoader(lambda name: folder.joinpath(name).read_text()),
    )  # fmt: skip
    environment.filters |= {
        "ms": format_ms,
        "engine": lambda region: format_engine(region.backend, region.variant),
        "format_name": format_name,
    }
    return environment


def _single_in_search(result: Result) -> float | None:
    """The best library's latency by the search's own times; those of the final comparison are of another phase."""
    backend, _, variant = result.best_single.partition("/")
    kinds = (f"single:{result.best_single}", f"single:{backend}/{variant or 'default'}")
    return next((seed.latency.median_ms for seed in result.seeds if seed.kind in kinds), None)
