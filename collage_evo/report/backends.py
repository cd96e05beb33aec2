"""Takes the backends that are known, prints them as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from collage_evo.backends.registry import Entry


def print_backends(entries: Sequence[Entry], console: Console) -> None:
    """A row for each backend; below, the reason for each that cannot be used, whole, so that it can be copied."""
    table = Table(box=SIMPLE_HEAD)
    for column in ("backend", "usable", "version", "devices", "variants", "extra"):
        table.add_column(column, no_wrap=column in ("backend", "usable"), overflow="fold")
    for entry in entries:
        usable = "yes" if entry.available else "no"
        offers = (", ".join(entry.devices), ", ".join(entry.variants))
        table.add_row(entry.name, usable, entry.version, *offers, entry.extra)
    console.print(table)
    for entry in entries:
        if not entry.available:
            console.print(f"{entry.name}: {entry.reason}", markup=False, soft_wrap=True)
