"""Command that measures an answer on this machine again: compare."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from collage_evo.cli.app import (
    ACCURACY,
    COMPARISON,
    MODEL,
    TIME,
    ArtifactPath,
    Debug,
    Json,
    Quiet,
    Trust,
    command,
)
from collage_evo.codec import to_json, to_plain
from collage_evo.report.console import PlainConsole


@command()
def compare(
    artifact: ArtifactPath,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="FILE",
            help="The model's own ONNX file (default: the run's).",
            rich_help_panel=MODEL,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="DATA", help="Input samples, as for run (default: the run's).", rich_help_panel=MODEL
        ),
    ] = None,
    shapes: Annotated[
        str | None,
        typer.Option(
            metavar="SHAPES",
            help="Shapes of open inputs: 'ids: [1, 1..512]' (default: the run's).",
            rich_help_panel=MODEL,
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="ERROR",
            help="Largest error (default: the artifact's budget).",
            rich_help_panel=ACCURACY,
        ),
    ] = None,
    at_least: Annotated[
        float,
        typer.Option(
            "--at-least",
            min=0.01,
            metavar="RATIO",
            help="Required speed-up over each library.",
            rich_help_panel=COMPARISON,
        ),
    ] = 1.0,
    libraries: Annotated[
        list[str] | None,
        typer.Option(
            "--library",
            metavar="NAME",
            help="Compare with this library; repeatable (default: all that are usable here).",
            rich_help_panel=COMPARISON,
        ),
    ] = None,
    front: Annotated[
        bool,
        typer.Option(
            "--front",
            help="Compare with the run's other placements; libraries only by --library.",
            rich_help_panel=COMPARISON,
        ),
    ] = False,
    python: Annotated[
        str,
        typer.Option(
            "--python",
            metavar="PATH",
            help="Compare with the libraries that another Python has.",
            rich_help_panel=COMPARISON,
        ),
    ] = "",
    seconds: Annotated[
        float,
        typer.Option(
            min=1,
            metavar="SECONDS",
            help="Measuring time for each profile of shapes.",
            rich_help_panel=TIME,
        ),
    ] = 30.0,
    as_json: Json = False,
    quiet: Quiet = False,
    trust: Trust = False,
    debug: Debug = False,
) -> int:
    """Time an artifact against libraries or its run's front.

    Exit code 4: it is slower; 5: it exceeds the budget, or does not run on this machine. With --python, 4: do not
    upgrade; 6: run the search again with the other libraries.
    """
    from collage_evo.accuracy.budget import budget_option
    from collage_evo.cli.shapes import shape_values
    from collage_evo.commands.compare import compare as compare_one
    from collage_evo.commands.compared import subjects
    from collage_evo.report.comparison import print_comparison, verdict
    from collage_evo.report.progress import reporter

    allowed, code = None if budget is None else budget_option(budget), 0
    comparisons = []
    for compared in subjects(artifact, against, data, trust, partial(shape_values, shapes)):
        with reporter(quiet) as progress:
            comparisons.append(
                compare_one(compared, progress, allowed, libraries or (), seconds, at_least, front, python)
            )
        code = max(code, comparisons[-1].exit_code(at_least))
    if as_json:
        records = [
            {**to_plain(one), "verdict": verdict(one, at_least), "exit_code": one.exit_code(at_least)}
            for one in comparisons
        ]
        print(to_json(records[0] if len(records) == 1 else records, indent=1))
    else:
        for one in comparisons:
            print_comparison(one, at_least, PlainConsole())
    return code
