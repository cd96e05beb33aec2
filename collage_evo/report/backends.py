"""Table of the known backends."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from collage_evo.backends.registry import Entry

MOST = 8
"""Variants of a backend on one device that are shown by name."""


def print_backends(entries: Sequence[Entry], console: Console) -> None:
    """A row for each backend and device; below, why others cannot be used, unshortened, so that it can be copied."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    shown = [name for entry in entries for device in entry.devices for name in _shown(_able(entry, device))]
    words = {"variants": [f"{variant}," for variant in shown]}
    for column in ("backend", "usable", "version", "device", "variants"):
        whole = max(map(len, words.get(column, ())), default=None)
        table.add_column(column, no_wrap=column in ("backend", "usable"), overflow="fold", min_width=whole)
    for entry in entries:
        usable = "yes" if entry.available else "no"
        offers = [(device, ", ".join(_shown(_able(entry, device)))) for device in entry.devices] or [("", "")]
        for place, offer in enumerate(offers):
            first_cells = (entry.name, usable, entry.version) if place == 0 else ("", "", "")
            table.add_row(*first_cells, *offer)
    console.print(table)
    for entry in entries:
        if not entry.available:
            console.print(f"{entry.name}: {entry.reason}", soft_wrap=True)
        reasons: dict[tuple[str, str], list[str]] = {}
        for variant, reason in entry.declined.items():
            reasons.setdefault((entry.device_of[variant], reason), []).append(variant)
        for (device, reason), variants in reasons.items():
            what = f"{entry.name}: not on {device} as {', '.join(variants)}: {reason}"
            console.print(what, soft_wrap=True)


def _shown(variants: Sequence[str]) -> list[str]:
    """The first of many, and the number of the others; ``--json`` has all."""
    few = MOST if len(variants) > MOST + 1 else len(variants)
    return [*variants[:few], *([f"and {len(variants) - few} more"] if len(variants) > few else [])]


def _able(entry: Entry, device: str) -> list[str]:
    """The variants that run on ``device``, without those that are declined here."""
    return [name for name, its in entry.device_of.items() if its == device and name not in entry.declined]
