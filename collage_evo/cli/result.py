"""Prints what a run found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from collage_evo.report.console import PlainConsole

if TYPE_CHECKING:
    from collage_evo.report.summary import Finished


def print_answer(directory: Path, found: Sequence[Finished], as_json: bool) -> None:
    from collage_evo.report.terminal import print_summary

    if as_json:
        print((directory / "result.json").read_text())
    else:
        print_summary(found, directory, PlainConsole())
