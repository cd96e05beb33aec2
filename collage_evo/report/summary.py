"""Summary of a run in at most fifteen lines: the verdict, the answer, its speed-up, its error, what to do next."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from collage_evo.answer.answer import Proof
from collage_evo.answer.baselines import USUAL
from collage_evo.report.accuracy import accuracy_notes, describe_invariance, describe_loss
from collage_evo.report.advice import advice
from collage_evo.report.finished import Finished
from collage_evo.report.places import ANNOTATED, COMMAND, command
from collage_evo.report.result import LibraryResult, Result, Speedup
from collage_evo.report.words import (
    SIMPLIFIED,
    Part,
    call_counts,
    capitalised,
    describe_parts,
    format_count,
    format_ms,
    format_name,
    format_ratio,
    format_shapes,
    title,
)

LINES, WIDTH = 15, 80
USE = "Use the artifact"
ONE_FILE = "exported, it is one file, model.onnx, for ONNX Runtime in any language"
LARGEST_FILE = 2**31
"""Bytes that an ONNX file holds at most."""


def summary(finished: Sequence[Finished], directory: Path | None) -> list[str]:
    """At most ``LINES`` lines of ``WIDTH`` characters about a run in ``directory``; only paths may be longer.

    Without a permanent ``directory`` it names no path and no command, but how a program saves the answer.

    If it is too long, notes are dropped first, then the second piece of advice, the speed-ups over further libraries,
    and what was not proved. The speed-up that the verdict is about stays.
    """
    places = IN_MEMORY if directory is None else _places(directory)
    room, lines = LINES - len(places), list[str]()
    if len(finished) == 1:
        return [*_fitting(_ranked(finished[0].result, directory), room), *places]
    block = [verdict_of_profiles([one.result for one in finished])]
    block += [f"{finished[0].result.model['name']}, {len(finished)} profiles of input shapes:"]
    block += [f"  {format_shapes(one.shapes)}: {in_one_line(one.result)}" for one in finished]
    for number, line in enumerate(block):
        broken = _broken(line)
        last = number == len(block) - 1
        if len(lines) + len(broken) > room - (0 if last else 1):
            lines += [f"  and {len(block) - number} more, in the report"]
            break
        lines += broken
    return [*lines, *places]


def _ranked(result: Result, directory: Path | None) -> list[tuple[int, str]]:
    """The sentences of the end of a run in their order, each with its rank: those of high rank are dropped first."""
    speedups, cpu = gains(result), result.environment["cpu"]
    held = [f"Not measured on a processor of that kind, but on {cpu}."] if result.target.get("held") else []
    deciding = next((line for line in speedups if " times " in line), "")
    details = (
        (0, [describe_answer(result), *([result.by_size.served] if result.by_size else [])]),
        (1, [ONE_FILE] if result.by_size and _fits_one_file(result) else []),
        (1, result.by_size.left_out[:1] if result.by_size else []),
        (0, [describe_loss(result.accuracy), *held]),
        (1, _conditions(result)),
        (1, [describe_invariance(found)] if (found := result.accuracy.invariance) else []),
        (2, not_proved(result)),
        *((0 if line == deciding else 3, [line]) for line in speedups),
        (5, accuracy_notes(result.accuracy)),
    )
    ranked = [(0, verdict(result)), (0, describe_model(result))]
    ranked += [(rank, f"  {line}") for rank, lines in details for line in lines]
    return ranked + [(rank, f"Next: {line}") for rank, line in zip((1, 4), _next(result, directory), strict=False)]


def _fits_one_file(result: Result) -> bool:
    """Whether an answer for every size is a file of ONNX Runtime's, other than the user's own."""
    size = sum(one.disk_bytes for one in result.serving if one.name == "best")
    return result.answer != USUAL and [one.backend for one in result.placement] == [USUAL] and size < LARGEST_FILE


def _fitting(ranked: Sequence[tuple[int, str]], room: int) -> list[str]:
    """As many of the sentences as ``room`` lines take, those of low rank first, in their order."""
    taken: dict[int, list[str]] = {}
    for number in sorted(range(len(ranked)), key=lambda number: ranked[number][0]):
        broken = _broken(ranked[number][1])
        if len(broken) + sum(map(len, taken.values())) <= room:
            taken[number] = broken
    return [line for number in sorted(taken) for line in taken[number]]


IN_MEMORY = (
    "Its folder is temporary: result.save(PATH) keeps the artifact,",
    "result.export(PATH) plain files; result.table() has all tables.",
)
"""Replaces the paths if there is no permanent directory."""


def _next(result: Result, directory: Path | None) -> list[str]:
    """Advice; without a permanent directory only advice that needs none."""
    if directory is None:
        return [line for line in advice(result, Path()) if COMMAND not in line]
    return advice(result, directory)


def _broken(line: str) -> list[str]:
    """``line`` in lines of ``WIDTH``; a command at its end gets a line of its own, so that it can be copied."""
    sentence, command, rest = line.partition(COMMAND)
    broken = textwrap.wrap(sentence, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return [*broken, f"    {command}{rest}"] if command else broken


def _places(directory: Path) -> list[str]:
    """Paths of all outputs, and commands for more of them: each on a line of its own, to be copied."""
    annotated = f", and {ANNOTATED} for Netron" if (directory / ANNOTATED).exists() else ""
    return [
        f"Artifact: {directory / 'best.collage'} (load it with collage_evo.load)",
        f"Report: {directory / 'report.html'}{annotated}; plain files, and all tables:",
        f"    {command('export', directory, '--to FOLDER')}",
        f"    {command('show', directory, '--all')}",
    ]


def describe_answer(result: Result) -> str:
    """The answer, as one phrase."""
    parts = [Part.of(r.backend, r.variant, [one.arithmetic for one in r.operators]) for r in result.placement]
    lanes = max((len(region.lanes) for region in result.placement), default=0)
    side = f", up to {lanes} parts side by side" if lanes else ""
    what, files = describe_parts(parts), {result.best_single, *(library.name for library in result.libraries)}
    # in the words of a library on the user's own file, which it is faster than
    alike = result.placed and what in map(format_name, files)
    before, after = result.model.get("file_nodes", "all"), result.model["nodes"]
    return what + (f"{SIMPLIFIED} ({before} operators to {after})" if alike else "") + side


def describe_model(result: Result) -> str:
    """The model, the machine's share, and the answer's time."""
    threads = result.target["threads"]
    where = "" if result.target["device"] == "cpu" else f" and {result.target['device']}"
    return f"{result.model['name']} on {format_count(threads, 'thread')}{where}: {describe_speed(result)}"


def describe_speed(result: Result) -> str:
    """The answer's time, of one run or of the full machine: also by ``session.run``, if the call adds enough to
    matter."""
    speeds = result.speeds
    if result.objective == "throughput" and speeds is not None and speeds.runs_per_second is not None:
        return f"{speeds.runs_per_second:.3g} runs a second in {format_count(speeds.sessions, 'session')}"
    if not _call_adds(result):
        return f"{format_ms(result.best_ms)} ms"
    return f"{format_ms(_with_call(result))} ms by session.run, {format_ms(result.call_ms)} of them for the call"


def gains(result: Result) -> list[str]:
    """Speed-up of the answer over the best baseline, then over each library with its defaults, with intervals."""
    best = next((one for one in result.libraries if one.name == result.best_single), None)
    lines, named = [], False

    def line(speedup: Speedup, library: str, more: str) -> str:
        nonlocal named
        sure = "" if speedup.low > 1.0 or speedup.high < 1.0 else ", not for certain"
        level = "" if named else f"{format_level(speedup)} interval "
        interval = f"{level}{format_interval(speedup)}"
        around = f" ({interval}{sure})" if speedup.rounds else ""
        named = True
        return f"{_gain(result, speedup.estimate)} {library}{around}{more}"

    if best is None:
        single = format_name(result.best_single)
        if result.speedup_over_best_single.by_definition:
            lines.append(f"{single} is {rank_of_best(result)}: no placement is proved faster")
        else:
            lines.append(line(result.speedup_over_best_single, single, ", the best baseline"))
    for library in sorted(result.libraries, key=lambda one: (one is not best, -one.speedup.estimate)):
        also = f", {rank_of_best(result)}" if library is best else ""
        if library.speedup.by_definition:
            lines.append(f"this is {format_name(library.name)} with its defaults{also}")
        else:
            wrong = "" if library.keeps else ", which exceeds the budget"
            lines.append(line(library.speedup, f"{format_name(library.name)} with its defaults", f"{also}{wrong}"))
    return lines


def rank_of_best(result: Result) -> str:
    """What the best single backend is among the others: one that is the answer may be level with a faster one."""
    may_win = [point for point in result.front if point.single and point.raced and point.feasible]
    raced = {point.single: point.latency_ms for point in may_win}
    level = result.answer == result.best_single and min(raced.values(), default=0.0) < raced.get(result.answer, 0.0)
    return "which no baseline is proved faster than" if level else "the best baseline"


def not_proved(result: Result) -> list[str]:
    """The best placement, if it may be faster than the answer and was not proved to be, with its figures."""
    tried = result.candidate_speedup
    if result.placed or tried.by_definition or not tried.rounds or tried.estimate <= 1.0:
        return []
    return [
        f"not proved faster: the best placement, {describe_gain(tried)} as fast as "
        f"{format_name(result.rival or result.best_single)} in {len(tried.rounds)} rounds of the final comparison"
    ]


def _conditions(result: Result) -> Iterator[str]:
    """What is special about the run: it skipped its search, or the machine changed."""
    if result.changed:
        yield f"{capitalised(result.changed)}."
    if result.search is not None and result.search.skipped:
        yield "the run skipped the search, which takes long for this model: resume it to search"
    if result.proof is Proof.UNDECIDED:
        yield "the final comparison ended before it decided"


def format_interval(speedup: Speedup) -> str:
    """Both ends."""
    return f"{format_ratio(speedup.low)} to {format_ratio(speedup.high)}"


def format_level(speedup: Speedup) -> str:
    """Confidence level of the interval, as ``98 %``."""
    return f"{100 * speedup.level:g} %"


def describe_gain(speedup: Speedup) -> str:
    """``1.22 times (1.02 to 1.46)``: the estimate and its interval."""
    interval = f" ({format_interval(speedup)})" if speedup.rounds else ""
    return f"{format_ratio(speedup.estimate)} times{interval}"


def in_one_line(result: Result) -> str:
    """An answer in one line: what it is, its time, and its speed-up over each library with its defaults."""
    over = [
        f"{format_ratio(one.speedup.estimate)} times as fast as {title(one.backend)}"
        for one in result.libraries
        if not one.speedup.by_definition
    ]
    return ", ".join([f"{describe_answer(result)}, {describe_speed(result)}", *over])


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
        return "Keep what you have", "nothing that was measured meets the budget"
    if result.proof is Proof.NONE:
        times = f"{_gain(result, result.speedup_over_best_single.estimate)} {format_name(result.best_single)}"
        faster = f", and earlier times make this answer {times}" if result.placed else ""
        return "Not confirmed", f"time was over before the final comparison{faster}"
    action, reason = _proved(result)
    if action != USE or not (rival := _made_up_for(result)):
        return action, reason
    call = f"a call of the artifact's session adds {format_ms(result.call_ms)} ms"
    if len(result.placement) == 1:
        return "Export the answer", f"{reason}, in {title(result.placement[0].backend)} alone; {call}"
    return "Keep what you have", f"{call}, no less than the artifact wins over {rival}"


def _proved(result: Result) -> tuple[str, str]:
    """What the times of execution prove, without those of calls."""
    answer = next((one for one in result.libraries if one.name == result.answer), None)
    if result.placed:
        speedup, best = result.speedup_over_best_single, f"{format_name(result.best_single)}, the best baseline"
        return USE, f"{_earlier(speedup)}{_gain(result, speedup.estimate)} {best}"
    usual = next((one for one in result.libraries if one.backend == USUAL), None)
    if result.answer == USUAL or (usual is not None and usual is answer):
        over = any(not one.keeps and one.speedup.high < 1.0 for one in result.libraries)
        what = "within the budget" if over else "that was measured"
        return f"Keep {title(USUAL)}", f"nothing {what} is proved faster"
    earlier = _earlier(usual.speedup) if usual is not None and usual.keeps else ""
    if answer is not None:
        return f"Switch to {title(answer.backend)} with its defaults", f"{earlier}{_over_usual(result, usual)}"
    return USE, f"{earlier}{format_name(result.answer)} is {_over_usual(result, usual)}"


def _earlier(speedup: Speedup) -> str:
    """How an answer came about that this comparison does not prove faster."""
    return "" if speedup.low > 1.0 else "it won an earlier comparison, and this one does not decide: "


def _call_adds(result: Result) -> bool:
    """Whether the time that ``session.run`` adds to the execution matters, as it does for models of microseconds."""
    return result.objective == "latency" and call_counts(result.best_ms, result.call_ms)


def _made_up_for(result: Result) -> str:
    """The library with its defaults over which the answer gains no more than its own call adds; empty: none.

    Only the answer's call is counted, so that errors favour staying with the library.
    """
    times_ms = {one.backend: one.latency_ms for one in result.libraries if one.keeps and one.latency_ms is not None}
    fastest = min(times_ms, key=times_ms.__getitem__, default="")
    if not fastest or not _call_adds(result) or times_ms[fastest] > _with_call(result):
        return ""
    return title(fastest)


def _with_call(result: Result) -> float:
    """The answer's time by ``session.run``, ms."""
    return result.best_ms + (result.call_ms or 0.0)


def _over_usual(result: Result, usual: LibraryResult | None) -> str:
    """The answer's relation to the assumed library of the user, which it is not."""
    if usual is None:
        return f"the fastest that was measured, and {title(USUAL)} had no part in the final comparison"
    broken = "" if usual.keeps else ", which exceeds the budget"
    return f"{_gain(result, usual.speedup.estimate)} {title(USUAL)}{broken}"


def _gain(result: Result, ratio: float) -> str:
    what = "the throughput of" if result.objective == "throughput" else "as fast as"
    return f"{format_ratio(ratio)} times {what}"


def _breaks_budget(result: Result) -> bool:
    """Whether the answer exceeds the budget, by the search's samples or by held-out ones."""
    error, largest = result.accuracy.error_held_out, result.accuracy.largest
    on_held_out = error is not None and largest is not None and error > largest
    return on_held_out or (result.point is not None and not result.point.feasible)
