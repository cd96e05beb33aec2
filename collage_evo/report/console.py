"""The terminal: names out of a person's files are printed so that none acts on it; tables that all look alike."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from collage_evo.errors import printable


class PlainConsole(Console):
    """A console for which text is text: markup means nothing in it, control characters are shown as escapes."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(markup=False, emoji=False, **settings)

    def render_str(self, text: str, **style: Any) -> Text:
        """Every string that is printed, and every cell of a table, comes by here."""
        return super().render_str(printable(text), **style)


def new_table(title: str, *columns: str) -> Table:
    """An empty table. Columns stand right, in one line; ``-name`` left, ``name...`` left and folded."""
    table = Table(title=title, box=SIMPLE_HEAD)
    for column in columns:
        folds, left = column.endswith("..."), column.startswith("-")
        name = column.removesuffix("...").removeprefix("-")
        justify: JustifyMethod = "left" if left or folds else "right"
        table.add_column(name, justify=justify, no_wrap=not folds, overflow="fold" if folds else "ellipsis")
    return table
