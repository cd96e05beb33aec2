"""Runs for one model in several profiles of input shapes: each profile is an ordinary run, and one artifact holds
all."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from collage_evo.answer.baselines import best_fallback, read_baselines, write_baselines
from collage_evo.answer.delivery import Delivery
from collage_evo.backends.select import half_installed
from collage_evo.config import Config
from collage_evo.config_model import Shapes
from collage_evo.effort import TIMED
from collage_evo.errors import AnswerStays
from collage_evo.files import Stored, link_or_copy
from collage_evo.graph.load.load import ModelFile
from collage_evo.report.finished import Finished, write_finished
from collage_evo.report.html import REPORT, write_overview
from collage_evo.report.progress import Reporter
from collage_evo.report.words import format_shapes, title
from collage_evo.run.at_work import at_work
from collage_evo.run.deadline import part_of_time, seconds_left
from collage_evo.run.directory import save_run, telling_to_resume
from collage_evo.run.evaluate import finish, on_threads_that_pay, open_records
from collage_evo.run.publisher import Publisher
from collage_evo.run.samples import FixedShapes, describe_batch, model_file, profiles_with_data, saved_shapes
from collage_evo.run.stages.baselines import FALLBACK_ARTIFACTS, FALLBACKS, Baselines
from collage_evo.run.store import Store
from collage_evo.runtime.artifact import read_artifact
from collage_evo.runtime.manifest import BEST

FOLDER = "profiles"
SAMPLED = Stored("work/profiles_with_data.json", tuple[bool, ...])
"""Whether the user's data has samples of each profile."""


def run_profiles(
    config: Config, directory: Path, reporter: Reporter, parsed: ModelFile | None = None
) -> tuple[Finished, ...]:
    """Search each requested profile of input shapes; a single one is searched in ``directory`` itself.

    Profiles share compiled pieces through the cache. ``best.collage`` holds the answers of all so
    far, from the first one on, on as many threads as the configuration sets; a single one may use fewer. ``parsed``:
    the user's model, if the caller has parsed it already.

    Raises:
        CollageError: bad input or a missing backend; the message explains what to do.
    """
    with at_work(directory), telling_to_resume(directory):
        return _searched(config, directory, reporter, parsed)


def _searched(config: Config, directory: Path, reporter: Reporter, parsed: ModelFile | None) -> tuple[Finished, ...]:
    saved = model_file(config)
    file = parsed if parsed == saved else saved  # a run that goes on has the model that it began with
    shapes_of_run = saved_shapes(config, directory, file)
    profiles = shapes_of_run.profiles
    reporter.ends_in(seconds_left())
    for name, reason in ({} if config.backends.use else half_installed(config.target)).items():
        reporter.log(f"{title(name)} takes no part: {reason}")
    note = describe_batch(config, profiles, file) if isinstance(shapes_of_run, FixedShapes) else ""
    if note:
        reporter.log(note)
    if len(profiles) == 1:
        shaped = with_shapes(config, profiles[0])
        with open_records(shaped, directory, reporter, file) as records:
            result = finish(on_threads_that_pay(records))
        if note:
            reporter.log(note)  # again: the first one is far above by now
        return (Finished(profiles[0], result, directory),)
    config = _in_part_of_time(config, len(profiles))
    runs = [_Run(with_shapes(config, shapes), directory / FOLDER / str(k)) for k, shapes in enumerate(profiles)]
    sampled = Store(directory).once(SAMPLED, lambda: profiles_with_data(config, profiles, file))
    for number, run in enumerate(runs):
        if any(sampled) and not sampled[number]:
            reporter.log(f"profile {run.name}: no sample of the data has its shapes: its inputs are random")
            runs[number] = replace(run, config=run.config.replacing("data", source=None))
    join = partial(_join, [run.directory for run in runs], directory)

    for number, run in enumerate(runs):
        reporter.within(number / (2 * len(runs)), (number + 1) / (2 * len(runs)))
        run.directory.mkdir(parents=True, exist_ok=True)
        save_run(run.directory, run.config, "run")
        if number:
            _share_fallback(runs[0].directory, run.directory)
        reporter.log(f"profile {run.name}: {format_shapes(run.config.model.one_profile())}")
        with open_records(run.config, run.directory, reporter, file) as records:
            records[Publisher].on_published = join
            _ = records[Baselines]
    reporter.log(f"first answers of all profiles in {join()}")
    finished: list[Finished] = []
    for number, (shapes, run) in enumerate(zip(profiles, runs, strict=True)):
        reporter.within((len(runs) + number) / (2 * len(runs)), (len(runs) + number + 1) / (2 * len(runs)))
        reporter.log(f"searching profile {run.name}: {format_shapes(shapes)}")
        with (
            part_of_time(1 / (len(runs) - number)),
            contextlib.suppress(AnswerStays),
            open_records(run.config, run.directory, reporter, file) as records,
        ):
            records[Publisher].on_published = join
            finished.append(Finished(shapes, finish(records), run.directory))
        join()
    if len(finished) < len(runs):
        raise AnswerStays(f"the run did not end: the answer so far is in {directory / BEST}")
    _write(directory, finished)
    return tuple(finished)


def _in_part_of_time(config: Config, profiles: int) -> Config:
    """``config`` for one of so many profiles: shares of a run's ``time`` for stages are those of its part of it."""
    if config.time is None:
        return config
    for key, share in TIMED.items():
        section, name = key.split(".")
        seconds, most_s = getattr(getattr(config, section), name), share * config.time
        if seconds <= most_s:  # more is what the user asked for
            config = config.replacing(section, **{name: min(seconds, most_s / profiles)})
    return config


def _share_fallback(first: Path, place: Path) -> None:
    """Let the profile in ``place`` have the fallback of the ``first`` one, if no other library takes any shapes."""
    fallbacks = read_baselines(first / FALLBACKS, first / FALLBACK_ARTIFACTS)
    if len(fallbacks) == 1 and fallbacks[0].outcome.ok and not (place / FALLBACKS).exists():
        shutil.rmtree(place / FALLBACK_ARTIFACTS, ignore_errors=True)  # of a run that was stopped here
        shutil.copytree(first / FALLBACK_ARTIFACTS, place / FALLBACK_ARTIFACTS, copy_function=link_or_copy)
        write_baselines(place / FALLBACKS, fallbacks)


@dataclass(frozen=True)
class _Run:
    config: Config
    directory: Path

    @property
    def name(self) -> str:
        return self.directory.name


def with_shapes(config: Config, shapes: Shapes) -> Config:
    """``config`` for one profile of input shapes; unchanged without any, as for open shapes."""
    return config.replacing("model", shapes=shapes) if shapes else config


def _join(places: Sequence[Path], directory: Path) -> Path:
    """One artifact of the profiles' answers so far, unchanged, with the fallback that is the best over all."""
    places = [place for place in places if (place / BEST).exists()]
    artifacts = [place / BEST for place in places]
    first = read_artifact(artifacts[0])
    best = best_fallback([read_baselines(place / FALLBACKS, place / FALLBACK_ARTIFACTS) for place in places])
    return Delivery(directory, first.target, first.signature, best.artifact if best else None).put(*artifacts)


def _write(directory: Path, finished: Sequence[Finished]) -> None:
    """``result.json`` and ``report.html`` of the whole: the results of the profiles, and their paths."""
    write_finished(directory, finished)
    links = {f"{one.directory.relative_to(directory).as_posix()}/{REPORT}": one for one in finished}
    write_overview(directory / REPORT, links, directory)
