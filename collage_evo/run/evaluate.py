"""Evaluation of a run: its records, opened, searched and ended, whatever fails after the first answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from collage_evo.answer.delivery import Delivery
from collage_evo.config import Config
from collage_evo.errors import AnswerStays, NotSearchable
from collage_evo.fitness.jobs import REGIONS, recorded_regions
from collage_evo.genome.failure import Failure
from collage_evo.graph.load.load import ModelFile
from collage_evo.graph.prepare import PreparedModel
from collage_evo.patterns.match import Placement
from collage_evo.report.finished import result_in
from collage_evo.report.html import REPORT, write_html
from collage_evo.report.progress import Reporter
from collage_evo.report.result import Result
from collage_evo.run.at_work import at_work
from collage_evo.run.budget import SEARCH_SECONDS, SEARCH_SKIPPED, USUAL_S, comparison_s, seconds_each
from collage_evo.run.context import RunContext
from collage_evo.run.deadline import in_time
from collage_evo.run.final import compared_so_far
from collage_evo.run.machine import Backends, chosen_backends
from collage_evo.run.open import open_run
from collage_evo.run.plan import PLAN, WITHOUT_SEARCH, SearchSkipped
from collage_evo.run.publisher import Publisher
from collage_evo.run.records import Plan, Records, Row
from collage_evo.run.samples import model_file
from collage_evo.run.search import Found, NotSearched, Placed, Searched, found_so_far
from collage_evo.run.stages.baselines import Baselines
from collage_evo.run.stages.model import NORMALISED
from collage_evo.run.stages.threads import OnThreads, settled
from collage_evo.run.warm_start import WarmStart, begin_like
from collage_evo.runtime.manifest import read_infos
from collage_evo.search.evolution import checkpoint

TIME_OVER = "the time of the run was over"
"""Why the search of a run with a deadline gave nothing."""


@contextlib.contextmanager
def open_records(
    config: Config, directory: Path, reporter: Reporter, file: ModelFile | None = None, plan: Plan = PLAN
) -> Iterator[Records]:
    """The records of the run in ``directory``, which ``plan`` makes on demand; stored ones are read.

    ``file``: the user's model, if the caller has parsed it already.

    Raises:
        CollageError: bad input or a missing backend; the message explains what to do.
    """
    with at_work(directory):
        config, file = settled(config, directory), file or model_file(config)
        backends = chosen_backends(config)
        config, warm = begin_like(config, reporter, file)
        with open_run(config, directory, reporter, file) as (run, model):
            yield Records(plan, {RunContext: run, PreparedModel: model, Backends: backends, WarmStart: warm})


def result_of(config: Config, directory: Path, reporter: Reporter, plan: Plan = PLAN) -> Result:
    """The result of the run in ``directory`` on the threads of ``config``: see :func:`finish`."""
    with open_records(config, directory, reporter, plan=plan) as records:
        return finish(records)


def on_threads_that_pay(records: Records) -> Records:
    """The same records on fewer threads than the configuration allows, if as many do not pay."""
    run = records[RunContext]
    target = run.config.target
    if target.threads == 1 or target.accelerated or run.config.search.objective != "latency":
        return records
    decided = run.attempt(lambda: records[OnThreads], f"{target.threads} threads are used")
    if isinstance(decided, Failure) or not decided.reason:
        return records
    run.reporter.log(decided.reason)
    if decided.used == target.threads:
        return records
    run.machine.close()
    run = run.on_threads(decided.used)
    backends = chosen_backends(run.config)
    model, warm = records[PreparedModel], records[WarmStart]
    return Records(records.plan, {RunContext: run, PreparedModel: model, Backends: backends, WarmStart: warm})


def planned(records: Records) -> Records:
    """The same records under the plan that the run follows: one that skips its search measures its mixtures only.

    Raises:
        NotSearchable: the model only runs whole.
    """
    if not records[SearchSkipped].skips:
        return records
    records[RunContext].reporter.log("the run skips the search, which takes long for this model: resume it to search")
    return records.under(WITHOUT_SEARCH)


def found_in_time(records: Records) -> Found | None:
    """What the search finds, or why there was none; None if only the time of the final comparison was left before."""
    run, baselines = records[RunContext], records[Baselines]
    comparing_s = comparison_s(seconds_each(run.seconds, baselines), run.open_shapes is not None)
    return in_time(lambda: found_by(lambda: planned(records)[Searched]), comparing_s)


def found_by(search: Callable[[], Searched]) -> Found:
    """What ``search`` returns; or why there was none."""
    try:
        return search()
    except NotSearchable as reason:
        return NotSearched(str(reason))


def finish(records: Records) -> Result:
    """The answer, published as ``best.collage``, and all measurements, as ``result.json`` has them.

    If a row fails after the first answer, the answer so far and the baselines are compared; that of a run that had
    ended stays.

    Raises:
        AnswerStays: that comparison failed too.
    """
    run, delivery = records[RunContext], records[Delivery]
    answered = delivery.answered
    before = result_in(run.directory) if answered else None
    instead = "the answer stays" if before else "what is left of the run decides"
    _search_if_resumed(run)
    found = run.attempt(lambda: found_in_time(records), instead)
    if before is not None and isinstance(found, Failure):
        return before
    if isinstance(found, Failure):
        return _compare_what_is_left(records, NotSearched(found.message))
    if found is None:
        run.reporter.log("what is left of the time is for the final comparison")
        return _compare_what_is_left(records, NotSearched(TIME_OVER))
    if before is not None and found.measured == (before.search.evaluations if before.search else 0):
        run.reporter.log("nothing new was measured: the answer stays")
        if not (report := run.directory / REPORT).exists():  # a kill came between the two files
            write_html(report, before)
        return before
    ended = run.attempt(lambda: records.having({Found: found})[Result], instead)
    if not isinstance(ended, Failure):
        return ended
    if before is not None and delivery.answered == answered:
        return before
    return _compare_what_is_left(records, found)


def _search_if_resumed(run: RunContext) -> None:
    """Search in a run that had skipped that, if it has ended, or the user gave time for a search."""
    goes_on = result_in(run.directory) is not None or run.config.search.seconds is not None
    if run.store.get(SEARCH_SKIPPED) and goes_on:
        checkpoint.remove(run.directory)  # its genomes are of the expected space
        run.store.put(SEARCH_SECONDS, USUAL_S)
        run.store.put(SEARCH_SKIPPED, False)


def _compare_what_is_left(records: Records, found: Found) -> Result:
    """The result of a comparison of the answer so far and the baselines. Raises as :func:`finish`."""
    run, best, delivery = records[RunContext], records[Publisher], records[Delivery]
    if best.placed is None:
        recorded = run.attempt(lambda: recorded_placement(run, delivery.best), "the answer so far stays")
        best.placed = None if isinstance(recorded, Failure) else recorded
    if best.comparable:
        left = records.having({Found: found_so_far(found, best.placed)}).under(
            records.plan.replacing(Row(compared_so_far, bound="final.seconds"))
        )
        ended = run.attempt(lambda: left[Result], "the answer so far stays")
        if not isinstance(ended, Failure):
            return ended
    raise AnswerStays(f"the run did not end: the answer so far is in {delivery.best}")


def recorded_placement(run: RunContext, best: Path) -> Placed | None:
    """The answer so far in ``best``, which an earlier process of the run published; None if it is no placement.

    Raises:
        InputError: its record cannot be read.
    """
    (info,) = read_infos(best)
    regions = recorded_regions(info, len(info.get(REGIONS, ())))
    normalised = run.store.get(NORMALISED)
    if normalised is None or not regions:
        return None
    return Placed(normalised.searchable(run.files).graph, Placement(regions))
