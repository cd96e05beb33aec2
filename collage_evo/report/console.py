"""Console that prints names from a user's files without acting on them, and tables in one style."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from collage_evo.errors import printable


class PlainConsole(Console):
    """A console for plain text: it interprets no markup, and shows control characters as escapes."""

    def __init__(self, **settings: Any) -> None:
        # in a notebook each line would be displayed, besides being captured or recorded
        super().__init__(markup=False, emoji=False, force_jupyter=False, **settings)

    def render_str(self, text: str, **style: Any) -> Text:
        """Convert every string that is printed, and every cell of a table."""
        return super().render_str(printable(text), **style)


def new_table(title: str, *columns: str) -> Table:
    """An empty table. Columns are right-aligned, in one line; ``-name`` left-aligned, ``name...`` left-aligned and
    folded."""
    table = Table(title=title, box=SIMPLE_HEAD)
    for column in columns:
        folds, left = column.endswith("..."), column.startswith("-")
        name = column.removesuffix("...").removeprefix("-")
        justify: JustifyMethod = "left" if left or folds else "right"
        table.add_column(name, justify=justify, no_wrap=not folds, overflow="fold" if folds else "ellipsis")
    return table
