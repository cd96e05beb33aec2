"""Where an answer's time goes: by part of the network and by kind of operator, as the libraries' profiles tell it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from collage_evo.multimap import multimap
from collage_evo.report.result import Operator, RegionResult
from collage_evo.report.words import title

MOST_PARTS, FEWEST_PARTS = 16, 4
"""Parts of a network in the table. Chosen: what fits on a screen."""
STRETCHES = 8
"""Parts of a network whose operators have names without a path."""
LEAST = 0.005
"""Share of the time from which on a kind of operator is shown. Chosen."""


def time_spent(regions: Sequence[RegionResult], by_part: bool) -> list[tuple[str, int, float, float, str]]:
    """The time of operators by part of the network, in its order, or by their kind, the slowest first; then what
    regions take besides, all of it in a library without a profile. Empty if no library has one.

    Of each: the name, the number of operators, ms in one run, the share of the answer's time, and the kinds that take
    the most of it.
    """
    operators, whole = [one for region in regions for one in region.operators], sum(map(_ms, regions))
    groups = parts_of([one.name for one in operators]) if by_part else list(map(_kind, operators))
    profiled = multimap((group, one) for group, one in zip(groups, operators, strict=True) if one.ms is not None)
    rows = [(name, len(ones), sum(map(_ms, ones)), _mostly(ones)) for name, ones in profiled.items()]
    if not by_part:
        rows.sort(key=lambda row: -row[2])
    rest = multimap((_besides(region), _ms(region) - sum(map(_ms, region.operators))) for region in regions)
    rows += [(name, 0, sum(times_ms), "") for name, times_ms in rest.items()] if rows else []
    shares = ((name, count, ms, ms / (whole or 1.0), mostly) for name, count, ms, mostly in rows)
    return [row for row in shares if row[3] >= LEAST or (by_part and row[1])]


def parts_of(names: Sequence[str]) -> list[str]:
    """The part of the network to which each operator belongs, by the ``names`` of all in their order.

    A part is the beginning of a path, as long as there are at most ``MOST_PARTS``. If that leaves too few, as in a
    network of many layers, numbers in paths count as equal: all ``layer.*/attention`` are a part. Names without paths
    give ``STRETCHES`` of operators in their order.
    """
    paths, found = [name.strip("/").split("/")[:-1] for name in names], list[str]()
    for number in (r"(?!)", r"\d+"):
        for depth in range(1, 1 + max(map(len, paths), default=0)):
            parts = [re.sub(number, "*", "/".join(path[:depth])) or "no part" for path in paths]
            found = parts if len({*found}) < len({*parts}) <= MOST_PARTS else found
        if len({*found}) >= FEWEST_PARTS:
            break
    if len({*found}) > 1:
        return found
    size = -(-len(names) // STRETCHES)
    firsts = [k - k % size for k in range(len(names))]
    return [f"operators {first + 1} to {min(first + size, len(names))}" for first in firsts]


def _kind(operator: Operator) -> str:
    return f"{operator.kind} in {operator.arithmetic}"


def _ms(timed: Operator | RegionResult) -> float:
    return (timed.ms if isinstance(timed, Operator) else timed.measured_ms) or 0.0


def _mostly(operators: Sequence[Operator], most: int = 2) -> str:
    """The kinds that take the most time, each with its share of that of all ``operators``."""
    whole = sum(map(_ms, operators)) or 1.0
    kinds = multimap((_kind(one), _ms(one) / whole) for one in operators)
    shares = sorted(((sum(each), kind) for kind, each in kinds.items() if sum(each) > LEAST), reverse=True)
    return ", ".join(f"{kind} {100 * share:.0f} %" for share, kind in shares[:most])


def _besides(region: RegionResult) -> str:
    """What a region does that no operator takes."""
    untold = any(one.ms is None for one in region.operators)
    return f"{title(region.backend)}, which tells no operators" if untold else "conversions between operators"
