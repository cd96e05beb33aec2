"""Commands that search for an answer: run, resume."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from collage_evo.cli.app import (
    BatchInvariant,
    Budget,
    Data,
    Debug,
    EffortOption,
    Json,
    Like,
    Metric,
    Out,
    Overwrite,
    PrecisionOption,
    Processor,
    Quiet,
    Resume,
    Set,
    ShapesOption,
    Threads,
    Time,
    Trust,
    command,
    require_given_once,
)
from collage_evo.cli.held import hold_process
from collage_evo.cli.stop import end_in_time, leave, resumable


@command()
def run(
    source: Annotated[
        str, typer.Argument(metavar="MODEL", help="An ONNX file, builtin:NAME or a YAML configuration.")
    ],
    shapes: ShapesOption = None,
    data: Data = None,
    budget: Budget = None,
    precision: PrecisionOption = None,
    metric: Metric = None,
    batch_invariant: BatchInvariant = None,
    effort: EffortOption = None,
    time: Time = None,
    threads: Threads = None,
    processor: Processor = None,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
    like: Like = None,
    overrides: Set = None,
    debug: Debug = False,
) -> None:
    """Find the fastest way to run a model within an error budget."""
    from collage_evo.accuracy.budget import EXACT
    from collage_evo.api import search_in
    from collage_evo.arguments import ModelAndData, resolve
    from collage_evo.cli.answers import print_answer
    from collage_evo.cli.shapes import shape_values
    from collage_evo.config import read_config
    from collage_evo.report.progress import reporter
    from collage_evo.run.deadline import deadline, process_age_s
    from collage_evo.run.directory import run_directory
    from collage_evo.run.samples import model_file
    from collage_evo.yaml_values import overridden

    named = {"--effort": effort, "--time": time, "--threads": threads, "--shapes": shapes, "--data": data}
    named |= {"--for": processor, "--batch-invariant": batch_invariant}
    named |= {"--precision exact": precision if precision == EXACT else None, "--budget": budget, "--metric": metric}
    require_given_once({**named, "--like": like, "--out": out}, overrides)
    keys = overridden(read_config(source), overrides or ())
    options = {"effort": effort, "time": time, "target.threads": threads, "target.processor": processor}
    options |= {"data.source": data, "accuracy.batch_invariant": batch_invariant}
    config = resolve(keys, options, source, budget=budget, precision=precision, metric=metric, like=like)
    hold_process(config)
    seconds, file = None if resume else config.time, model_file(config)
    unread = partial(leave, None, "error: the time was over while the model was read; give more", 2)
    with deadline(seconds, unread, process_age_s()):
        config = config.replacing("model", **shape_values(shapes, file))
    directory = run_directory(config, source, out)
    files = ModelAndData(directory, file)
    time_is_over = partial(end_in_time, directory, as_json)
    with resumable(directory, as_json), deadline(seconds, time_is_over, process_age_s(), directory):
        profiles = search_in(
            directory, config, files, reporter(quiet), resume=resume, overwrite=overwrite, source=source
        )
    print_answer(directory, profiles, as_json)


@command(name="resume")
def resume_run(
    directory: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The directory of a run that was stopped.")],
    overrides: Set = None,
    trust: Trust = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Continue a run, sweep or tuning that was stopped.

    -s may only enlarge limits such as search.seconds.
    """
    from collage_evo.cli.studies import run_study
    from collage_evo.run.directory import enlarge_budget, kind_of_run, reopen_run, require_trusted

    saved = reopen_run(directory)
    require_trusted(directory, saved, trust)
    hold_process(saved)
    config, kind = enlarge_budget(directory, saved, overrides or ()), kind_of_run(directory)
    if kind == "run":
        from collage_evo.cli.answers import print_answer
        from collage_evo.report.progress import reporter
        from collage_evo.run.profiles import run_profiles

        with resumable(directory, as_json), reporter(quiet) as progress:
            profiles = run_profiles(config.untimed(), directory, progress)
        print_answer(directory, profiles, as_json)
    else:
        run_study(directory, config, kind, as_json, quiet)
