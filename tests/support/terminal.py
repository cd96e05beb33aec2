"""A terminal of 80 columns."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.console import Console

from collage_evo.report.console import PlainConsole

WIDTH = 80


def printed(show: Callable[[Console], object], width: int = WIDTH) -> str:
    """What ``show`` prints there."""
    console = PlainConsole(width=width, file=io.StringIO(), record=True)
    show(console)
    return console.export_text()


def fits(text: str) -> bool:
    """Whether no line is longer, and no word is cut off."""
    return "…" not in text and all(len(line) <= WIDTH for line in text.splitlines())
