"""HTML report of a run as one self-contained page: the verdict, the answer, its speed and error, the reasons, the
rest."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from jinja2 import Environment, FunctionLoader

from collage_evo.answer.answer import Proof
from collage_evo.errors import InputError, printable
from collage_evo.files import write_whole
from collage_evo.report.accuracy import accuracy_notes, describe_accuracy, describe_loss
from collage_evo.report.advice import advice
from collage_evo.report.blocks import precisions_of, rows_of
from collage_evo.report.finished import Finished
from collage_evo.report.front import PHASES, describe_point, fastest_baselines, has_front, points_by_phase, spread_of
from collage_evo.report.operators import time_spent
from collage_evo.report.pictures import NARROW, WIDE, curve_svg, front_svg, sizes_svg
from collage_evo.report.places import ANNOTATED, COMMAND, DETAILS, home_of
from collage_evo.report.result import Result
from collage_evo.report.sizes import size_rows
from collage_evo.report.summary import (
    describe_answer,
    describe_gain,
    describe_speed,
    format_level,
    gains,
    rank_of_best,
    verdict,
    verdict_of_profiles,
)
from collage_evo.report.terminal import describe_check, describe_speeds
from collage_evo.report.words import (
    capitalised,
    format_engine,
    format_ms,
    format_name,
    format_number,
    format_ratio,
    format_shapes,
    title,
)
from collage_evo.search.evolution.origin import origin_in

REPORT = "report.html"
"""The page in a run directory."""
CURVE_FROM = 10
"""Placements from which on a search has a picture of its times. Chosen: fewer are told by a sentence."""
MARKS = {
    "answer": "the answer",
    "single": "a baseline: one library on the whole model",
    "pareto": "a placement, the fastest at its error",
    "placement": "another placement",
    "answer brief": "the answer, timed briefly",
    "single brief": "a baseline, timed briefly",
    "pareto brief": "a placement, timed briefly, that seemed the fastest at its error",
    "placement brief": "another placement, timed briefly",
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
    search, speed = result.search, describe_speed(result)
    curve = curve_svg(search.convergence) if search and search.evaluations >= CURVE_FROM else ""
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
            speed=speed,
            spread=spread_of(result.best) if speed == f"{format_ms(result.best_ms)} ms" else "",
            bars=bars(result),
            itself=[capitalised(line) for line in gains(result) if line.startswith("this is")],
            loss=capitalised(describe_loss(result.accuracy)),
            share=error_share(result),
            notes=accuracy_notes(result.accuracy),
            why=why(result),
            advice=[capitalised(line) + ("" if COMMAND in line else ".") for line in advice(result, path.parent)],
            pictures=pictures,
            marks=[(kind, label) for kind, label in MARKS.items() if f'class="{kind}"' in "".join(pictures)],
            front=points_by_phase(result.front) if front else [],
            rows=rows_of(result.placement),
            precisions=precisions_of(result.placement),
            spent={
                "part of the network": time_spent(result.placement, by_part=True),
                "kind of operator": time_spent(result.placement, by_part=False),
            },
            singles=singles_in_words(result),
            speeds=describe_speeds(result.speeds, result.target["threads"]) if result.speeds is not None else "",
            accuracy=describe_accuracy(result.accuracy) if front else "",
            check=describe_check(result),
            curve=curve,
            sizes=[sizes_svg(result.by_size, width) for width in (WIDE, NARROW)] if result.by_size else [],
            size_rows=size_rows(result.by_size) if result.by_size else [],
            directory=path.parent,
            home=home_of(path.parent),
            details=(home_of(path.parent) / DETAILS).exists(),
            annotated=(path.parent / ANNOTATED).exists(),
        )
    )
    write_whole(path, page)


def write_picture(path: Path, result: Result) -> None:
    """Write latency against error as an SVG file of its own, in the page's light colours.

    Raises:
        InputError: nothing ran in a lower precision than float32, so that there is no such picture.
    """
    if not has_front(result):
        raise InputError("nothing ran in a lower precision than float32: there is no latency against error to draw")
    page = _environment().get_template("picture.css.j2").render()
    light, rules = page.partition("@media")[0], page[page.index("svg.front") :]
    colours = dict(re.findall(r"--(\w+): (#\w+)", light))
    more = "svg { background: var(--paper); font: 12px system-ui, sans-serif; } .hint:not(.legend) { display: none; }"
    head, title, rest = front_svg(result.front, result.accuracy, legend=True).partition("<title")
    named = head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    drawn = f"{named}<style>{rules}{more}</style>{title}{rest}\n"
    write_whole(path, re.sub(r"var\(--(\w+)\)", lambda match: colours[match[1]], drawn))  # not all viewers know var()


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
    speedups = {one.name: one.speedup for one in result.libraries}
    speedups.setdefault(result.best_single, result.speedup_over_best_single)
    over = {one.name for one in result.libraries if not one.keeps}
    longest = max(1.0, *(speedup.estimate for speedup in speedups.values()))
    libraries = [
        Bar(
            format_name(name),
            100 * speedup.estimate / longest,
            f"the answer is {describe_gain(speedup)} as fast{'; it exceeds the budget' if name in over else ''}",
        )
        for name, speedup in sorted(speedups.items(), key=lambda item: item[1].estimate)
        if not speedup.by_definition
    ]
    return [Bar("The answer", 100 / longest, describe_speed(result), answer=True), *libraries]


def facts(result: Result) -> list[tuple[str, str]]:
    """Conditions of the numbers, by name: date, command, machine, model, versions."""
    environment, model = result.environment, result.model
    cores = f"; {result.target['threads']} of {environment['cores']} cores used"
    accelerator = f"; {result.target['accelerator']}" if result.target.get("accelerator") else ""
    rows = [
        ("Date", date_of(result)),
        ("Command", printable(environment["command"]) or "none: a Python program called the package"),
        ("Processor", f"{environment['cpu']}{cores}{accelerator}"),
        ("Model", model.get("source", "")),
        ("Model's SHA-256", model.get("sha256", "")),
        ("System", f"{environment['system']}, Python {environment['python']}"),
        *((title(name), version) for name, version in environment["backends"].items()),
        *((name, version) for name, version in environment["libraries"].items()),
    ]
    return [(name, value) for name, value in rows if value]


def date_of(result: Result) -> str:
    """Date of the result, in the time zone of that machine."""
    return str(result.environment["date"]).replace("T", " ")


def error_share(result: Result) -> float | None:
    """The error in percent of the budget; None if that is no number."""
    error, largest = result.accuracy.error, result.accuracy.largest
    if error is None or not largest or result.accuracy.budget == "exact":
        return None
    return max(0.0, 100.0 * error / largest)


def _environment() -> Environment:
    """Jinja environment of the templates in this directory; it escapes values of a result."""
    folder = resources.files("collage_evo.report")
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True,
        loader=FunctionLoader(lambda name: folder.joinpath(name).read_text()),
    )  # fmt: skip
    environment.filters |= {
        "ms": format_ms,
        "spread": spread_of,
        "described": describe_point,
        "engine": lambda region: format_engine(region.backend, region.variant),
        "format_name": format_name,
    }
    return environment


Single = tuple[str, str, str, str, str, bool]
"""A library that ran the whole model: its name, ms, their spread, error, remark; whether it is the answer."""

IN_TURNS, AT_START, NOT_TIMED = "Timed in turns with the answer", PHASES["at first"], "Not timed"
SINGLES = (IN_TURNS, AT_START, NOT_TIMED)
"""Phases of a run that time libraries."""


def why(result: Result) -> list[str]:
    """How the answer was decided, what would have been faster, and which libraries could not run the model."""
    return [_decided(result), *_over(result), *_failed(result)]


def _decided(result: Result) -> str:
    """The comparison that the answer won, or why no placement did."""
    if result.proof is Proof.NONE:
        return "Time was over before the final comparison: the answer is the fastest by single times of the run."
    open_end = " The comparison ended before it decided." if result.proof is Proof.UNDECIDED else ""
    speed, tried, best = result.speedup_over_best_single, result.candidate_speedup, format_name(result.best_single)
    if result.not_searched:
        return f"No search was possible: {result.not_searched}."
    if not speed.by_definition:
        proof = f": the whole {format_level(speed)} interval is above 1"
        earlier = "; it won an earlier comparison, and this one does not decide"
        return (
            f"It was timed in turns with the best libraries, {len(speed.rounds)} rounds over {speed.seconds:.0f} s, "
            f"and was {describe_gain(speed)} as fast as {best}, the best of them"
            f"{proof if speed.low > 1.0 else earlier}."
        )
    if tried.by_definition or not tried.rounds:
        left_out = result.by_size is not None and result.by_size.left_out
        keeps = "is as fast as the libraries at every size" if left_out else "meets the budget"
        return f"No placement that {keeps} was compared, so the answer is {best}."
    rival = format_name(result.rival or result.best_single)
    return (
        f"No placement was proved faster than every baseline: the best one was {describe_gain(tried)} as fast as "
        f"{rival} in {len(tried.rounds)} rounds over {tried.seconds:.0f} s, and the {format_level(tried)} interval "
        f"has to be above 1 as a whole.{open_end}"
    )


def _over(result: Result) -> list[str]:
    """Points that are faster than the answer and not allowed."""
    over = [p for p in result.front if not p.feasible and p.error is not None and p.latency_ms < result.best_ms]
    if not over:
        return []
    fastest = min(over, key=lambda point: point.latency_ms)
    gain = format_ratio(result.best_ms / fastest.latency_ms)
    return [
        f"{fastest.what or fastest.how} would be about {gain} times as fast ({format_ms(fastest.latency_ms)} ms), "
        f"but its error of {format_number(fastest.error)} exceeds the budget."
    ]


def _failed(result: Result) -> list[str]:
    """Libraries that could not run the whole model."""
    reasons = [f"{one.reason}." for one in result.baselines if one.reason and one.median_ms is None]
    return list(dict.fromkeys(reasons))


def singles_in_words(result: Result) -> list[tuple[str, list[Single]]]:
    """Each library that ran the whole model, under the phase of the run that timed it; the answer is in the first.

    The fastest first. Times of two phases compare only approximately, since the machine's other load may change.
    """
    errors = {point.single: point.error for point in result.front if point.single}
    fastest = {point.single for point in fastest_baselines(result.front)}
    rows: dict[str, list[tuple[float, Single]]] = {phase: [] for phase in SINGLES}
    if result.placed:
        error = format_number(result.point.error if result.point else None)
        row = "The answer", format_ms(result.best_ms), spread_of(result.best), error, "", True
        rows[IN_TURNS].append((result.best_ms, row))
    for one in result.baselines:
        if origin_in(one.name):  # a placement by a rule of thumb, no library
            continue
        ms, answer = one.median_ms, one.name == result.answer
        remark = rank_of_best(result) if one.name == result.best_single else one.reason
        if not remark and fastest and one.name not in fastest:
            remark = "another way of the same library"
        error = "-" if ms is None else format_number(errors.get(one.name))
        remark = f"the answer, {remark}" if answer else remark
        phase = NOT_TIMED if ms is None else AT_START if one.scaled else IN_TURNS
        order = math.inf if ms is None else ms
        rows[phase].append((order, (format_name(one.name), format_ms(ms), spread_of(one), error, remark, answer)))
    return [(phase, [row for _, row in sorted(timed)]) for phase, timed in rows.items() if timed]
