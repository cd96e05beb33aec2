"""The command that tells again what a run found: show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from collage_evo.cli.app import Debug, Json, app
from collage_evo.report.console import PlainConsole


@app.command()
def show(
    run: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The directory of a run that ended.")],
    tables: Annotated[bool, typer.Option("--all", help="All tables too: times, errors, regions, memory.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Tell again what a run found; with --all, everything that it measured."""
    from collage_evo.report.finished import read_finished
    from collage_evo.report.terminal import print_profiles, print_summary

    found = read_finished(run)
    if as_json:
        print((run / "result.json").read_text())
        return
    console = PlainConsole()
    if tables:
        print_profiles(found.profiles, console)
    print_summary(found.profiles, run, console)
    for remark in found.remarks:
        console.print(remark, highlight=False)
