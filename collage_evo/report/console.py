"""The terminal: takes text with names out of a person's files, prints it so that no name acts on the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from collage_evo.errors import printable


class PlainConsole(Console):
    """A console for which text is text: markup means nothing in it, control characters are shown as escapes."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(markup=False, emoji=False, **settings)

    def render_str(self, text: str, **style: Any) -> Text:
        """Every string that is printed, and every cell of a table, comes by here."""
        return super().render_str(printable(text), **style)
