"""The explanation of one node: what it is made of, and how it is printed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

NOT_MEASURED = "not measured"
SHOWN_OPERATORS = 5
SHOWN_REASONS = 8


@dataclass(frozen=True)
class Offer:
    """One way to run the node: a match that holds it. ``ms`` is None where nothing usable was measured."""

    pattern: str
    variant: str
    operators: tuple[str, ...]
    ms: float | None
    reason: str = ""
    """Why there is no cost."""


@dataclass(frozen=True)
class Refusal:
    """Something that a pattern proposed around the node, or the node itself, and why the backend does not take it."""

    pattern: str
    operators: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class BackendAnswer:
    """What one backend says to the node; offers from small to large."""

    backend: str
    offers: tuple[Offer, ...]
    refusals: tuple[Refusal, ...]
    cut: bool
    """Its enumeration stopped at the bound: there may be more offers."""


@dataclass(frozen=True)
class Explanation:
    """Every backend's answer for one node of the normalised model."""

    node: str
    op_type: str
    tensors: tuple[str, ...]
    answers: tuple[BackendAnswer, ...]


def print_explanation(found: Explanation, console: Console) -> None:
    """What the node is, a table of offers from all backends, then each backend's refusals."""
    console.print(f"{found.node}: {found.op_type}", markup=False, soft_wrap=True)
    for tensor in found.tensors:
        console.print(f"  {tensor}", markup=False, soft_wrap=True)
    console.print(_offers(found.answers))
    for answer in found.answers:
        for offer in answer.offers:
            if offer.reason not in ("", NOT_MEASURED):
                what = f"{_engine(answer.backend, offer.variant)} on {_short(offer.operators)}"
                console.print(f"{what}: {offer.reason}", markup=False, soft_wrap=True)
    offers = [offer for answer in found.answers for offer in answer.offers]
    if offers and all(offer.reason == NOT_MEASURED for offer in offers):
        console.print("no cost is known yet: run the search with this configuration, it measures them")
    for answer in found.answers:
        _print_refusals(answer, console)


def _offers(answers: Sequence[BackendAnswer]) -> Table:
    table = Table(title="who could run it", box=SIMPLE_HEAD)
    for column in ("backend", "pattern", "operators", "ms"):
        right = column == "ms"
        table.add_column(column, justify="right" if right else "left", no_wrap=right, overflow="fold")
    for answer in answers:
        for offer in answer.offers:
            failed = offer.reason if offer.reason == NOT_MEASURED else "failed"
            cost = failed if offer.ms is None else f"{offer.ms:.4f}"
            engine = _engine(answer.backend, offer.variant)
            table.add_row(engine, offer.pattern, _short(offer.operators), cost)
    return table


def _engine(backend: str, variant: str) -> str:
    return backend if variant == "default" else f"{backend}/{variant}"


def _print_refusals(answer: BackendAnswer, console: Console) -> None:
    if answer.cut:
        console.print(f"{answer.backend}: the enumeration was cut at its bound, there may be more matches")
    count = Counter((r.pattern, _short(r.operators), r.reason) for r in answer.refusals)
    for (pattern, operators, reason), number in list(count.items())[:SHOWN_REASONS]:
        what = f"pattern {pattern}" if pattern else "the operator itself"
        times = f" ({number} times)" if number > 1 else ""
        console.print(f"{answer.backend}: not {what} on {operators}{times}: {reason}", markup=False, soft_wrap=True)
    if len(count) > SHOWN_REASONS:
        console.print(f"{answer.backend}: and {len(count) - SHOWN_REASONS} more refusals: see --json")


def _short(operators: Sequence[str]) -> str:
    if len(operators) <= SHOWN_OPERATORS:
        return " ".join(operators)
    return f"{' '.join(operators[: SHOWN_OPERATORS - 1])} ... ({len(operators)})"
