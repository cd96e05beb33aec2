"""Prints what a run found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from collage_evo.report.console import PlainConsole

if TYPE_CHECKING:
    from collage_evo.run.profiles import ProfileResult


def print_answer(directory: Path, found: Sequence[ProfileResult], as_json: bool) -> None:
    from collage_evo.api import print_results

    if as_json:
        print((directory / "result.json").read_text())
    else:
        print_results(found, PlainConsole())
        print(f"written: {directory}/best.collage, {directory}/result.json, {directory}/report.html")
