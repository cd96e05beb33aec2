"""Explanation of one node or region, or of what a run pruned: its data, and its output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from collage_evo.backends.variants import engine_name
from collage_evo.hardware.target import CPU
from collage_evo.multimap import firsts, multimap
from collage_evo.report.console import new_table
from collage_evo.report.result import RewrittenNodes

NOT_MEASURED = "not measured"
EXPECTED, MEASURED = "expected times", "times of the whole model, expected one by one"
"""Costs are times of parts by themselves, or out of profiles: not measured in a run of the model."""
SHOWN_OPERATORS = 5
SHOWN_NODES = 20
"""Nodes of a region that are listed."""
SHOWN_REASONS = 8


@dataclass(frozen=True)
class Offer:
    """One way to run the node: a match that contains it. ``ms`` is None without a usable measurement."""

    pattern: str
    variant: str
    operators: tuple[str, ...]
    ms: float | None
    reason: str = ""
    """Reason for a missing cost."""
    device: str = CPU
    estimated: bool = False
    """Whether the cost comes neither from a measurement nor from a library's profile."""


@dataclass(frozen=True)
class Refusal:
    """A proposal of a pattern around the node, or the node itself, and why the backend refuses it; or a variant that
    takes no part, without operators."""

    pattern: str
    operators: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class BackendAnswer:
    """One backend's answer for the node; offers from small to large."""

    backend: str
    offers: tuple[Offer, ...]
    refusals: tuple[Refusal, ...]
    cut: bool
    """Its enumeration stopped at the bound: there may be more offers."""


@dataclass(frozen=True)
class Explanation:
    """Every backend's answer for one node; ``folded`` names the node that absorbed the requested one, if one did."""

    node: str
    op_type: str
    tensors: tuple[str, ...]
    answers: tuple[BackendAnswer, ...]
    folded: str = ""


@dataclass(frozen=True)
class NotTaken:
    """A node of a region that a backend refuses, and why."""

    node: str
    op_type: str
    reason: str


@dataclass(frozen=True)
class RegionAnswer:
    """One backend's answer for a region as one piece.

    ``reason``: why it supports each node but not all as one piece. ``apart_ms``: its nodes one by one, if all were
    measured.
    """

    backend: str
    offers: tuple[Offer, ...]
    not_taken: tuple[NotTaken, ...]
    reason: str
    apart_ms: float | None


@dataclass(frozen=True)
class RegionExplanation:
    """One region of a run's answer: its engine, ``ms`` of a run, each node with its operator, and alternatives.

    ``lanes``: the steps of each lane, in words, if parts of it run in parallel. ``rewrites``: which of its nodes are
    rewritten.
    """

    region: int
    backend: str
    variant: str
    ms: float | None
    nodes: tuple[tuple[str, str], ...]
    answers: tuple[RegionAnswer, ...]
    lanes: tuple[tuple[str, ...], ...] = ()
    rewrites: tuple[RewrittenNodes, ...] = ()
    measured: bool = False
    """Whether the offers' times are measured on the whole model, as for an answer of a single backend."""


@dataclass(frozen=True)
class Pruned:
    """Something that a run pruned: what, why, and by which rule. ``count``: equal ones."""

    what: str
    reason: str
    rule: str
    action: str
    count: int = 1


@dataclass(frozen=True)
class PruningRule:
    """A rule, with its number in a run: the key that holds it, if one does, and where it comes from."""

    name: str
    line: str
    basis: str
    key: str


@dataclass(frozen=True)
class PruningExplanation:
    """What a run pruned, and all rules."""

    pruned: tuple[Pruned, ...]
    rules: tuple[PruningRule, ...]


def print_pruning(explanation: PruningExplanation, console: Console) -> None:
    """Print what was pruned, then the rules."""
    for one in explanation.pruned:
        times = f" ({one.count} times)" if one.count > 1 else ""
        console.print(f"{one.action}: {one.what}: {one.reason}, by rule {one.rule}{times}", soft_wrap=True)
    console.print("rules:")
    for rule in explanation.rules:
        console.print(f"  {rule.name}: {rule.line}; {rule.key or rule.basis}", highlight=False, soft_wrap=True)


def print_explanation(explanation: Explanation, console: Console, everything: bool = False) -> None:
    """Print the node, a table of offers from all backends, then each backend's refusals.

    Unless ``everything`` is asked for, matches without a cost are only counted, but for the first one of each engine.
    """
    if explanation.folded:
        console.print(explanation.folded, highlight=False, soft_wrap=True)
    if not explanation.answers:
        return
    console.print(f"{explanation.node}: {explanation.op_type}", soft_wrap=True)
    for tensor in explanation.tensors:
        console.print(f"  {tensor}", soft_wrap=True)
    table = new_table(f"Backends that can run it; {EXPECTED}", "backend...", "pattern...", "operators...", "ms")
    hidden = 0
    for answer in explanation.answers:
        offers = answer.offers if everything else _telling(answer.offers)
        hidden += len(answer.offers) - len(offers)
        for offer in offers:
            _add(table, answer.backend, offer, offer.pattern)
    console.print(table)
    if hidden:
        console.print(f"and {hidden} larger matches that were not measured: see --all")
    for answer in explanation.answers:
        _print_failures(answer.backend, answer.offers, console)
    offers = [offer for answer in explanation.answers for offer in answer.offers]
    if offers and all(offer.reason == NOT_MEASURED for offer in offers):
        console.print("no cost is known: the run measured none of them")
    for answer in explanation.answers:
        _print_refusals(answer, console, everything)


def print_region(explanation: RegionExplanation, console: Console) -> None:
    """Print the region, a table of engines that could run it as one piece, then why others cannot."""
    spent = "" if explanation.ms is None else f", {explanation.ms:.4f} ms of a run"
    engine, count = engine_name(explanation.backend, explanation.variant), len(explanation.nodes)
    console.print(f"region {explanation.region}: {count} node(s) on {engine}{spent}", highlight=False)
    for written in explanation.rewrites:
        console.print(f"rewritten, {written.rewrite}: {', '.join(written.nodes)}", highlight=False, soft_wrap=True)
    for name, op_type in explanation.nodes[:SHOWN_NODES]:
        console.print(f"  {name}: {op_type}", highlight=False, soft_wrap=True)
    if len(explanation.nodes) > SHOWN_NODES:
        console.print(f"  and {len(explanation.nodes) - SHOWN_NODES} more nodes: see --json", highlight=False)
    for lane, steps in enumerate(explanation.lanes):
        console.print(f"lane {lane}: {'; '.join(steps)}", highlight=False, soft_wrap=True)
    title = f"Backends that can run it as one piece; {MEASURED if explanation.measured else EXPECTED}"
    table = new_table(title, "backend...", "one by one, ms", "operators...", "ms")
    for answer in explanation.answers:
        apart = NOT_MEASURED if answer.apart_ms is None else f"{answer.apart_ms:.4f}"
        for offer in answer.offers:
            _add(table, answer.backend, offer, apart)
    console.print(table)
    for answer in explanation.answers:
        _print_failures(answer.backend, answer.offers, console)
    for answer in explanation.answers:
        if answer.reason:
            console.print(f"{answer.backend}: not as one piece: {answer.reason}", soft_wrap=True)
        nodes = multimap(((one.op_type, one.reason), one.node) for one in answer.not_taken)
        for (op_type, reason), names in list(nodes.items())[:SHOWN_REASONS]:
            console.print(f"{answer.backend}: not {op_type} ({', '.join(names)}): {reason}", soft_wrap=True)
        if len(nodes) > SHOWN_REASONS:
            console.print(f"{answer.backend}: and {len(nodes) - SHOWN_REASONS} more refusals: see --json")


def _telling(offers: Sequence[Offer]) -> list[Offer]:
    """Those that were tried, and the first one of each variant that was not."""
    untried = firsts((offer.variant, offer) for offer in offers if offer.reason == NOT_MEASURED)
    return [offer for offer in offers if offer.reason != NOT_MEASURED or untried[offer.variant] is offer]


def _add(table: Table, backend: str, offer: Offer, other: str) -> None:
    failed = offer.reason if offer.reason == NOT_MEASURED else "failed"
    cost = failed if offer.ms is None else f"{'about ' if offer.estimated else ''}{offer.ms:.4f}"
    where = "" if offer.device == CPU else f" on {offer.device}"
    table.add_row(engine_name(backend, offer.variant) + where, other, short(offer.operators), cost)


def _print_failures(backend: str, offers: Sequence[Offer], console: Console) -> None:
    for offer in offers:
        if offer.reason not in ("", NOT_MEASURED):
            engine = engine_name(backend, offer.variant)
            console.print(f"{engine} on {short(offer.operators)}: {offer.reason}", soft_wrap=True)


def _print_refusals(answer: BackendAnswer, console: Console, everything: bool) -> None:
    if answer.cut:
        console.print(f"{answer.backend}: the enumeration was cut at its bound, there may be more matches")
    count = Counter(map(_sentence, answer.refusals))
    most = len(count) if everything else SHOWN_REASONS
    for sentence, number in list(count.items())[:most]:
        console.print(f"{answer.backend}: {sentence}{f' ({number} times)' if number > 1 else ''}", soft_wrap=True)
    if len(count) > most:
        console.print(f"{answer.backend}: and {len(count) - most} more refusals: see --all")


def _sentence(refusal: Refusal) -> str:
    if not refusal.operators:
        return refusal.reason
    if not refusal.pattern:
        return f"cannot run {short(refusal.operators)}: {refusal.reason}"
    return f"cannot run pattern {refusal.pattern!r} on {short(refusal.operators)}: {refusal.reason}"


def short(operators: Sequence[str]) -> str:
    """The first of many operators, and their number."""
    if len(operators) <= SHOWN_OPERATORS:
        return " ".join(operators)
    return f"{' '.join(operators[: SHOWN_OPERATORS - 1])} ... ({len(operators)})"
