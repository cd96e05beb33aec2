"""The costs of a run as a file: a resumed run searches the space that it searched before, whatever is known since."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from collage_evo.backends.enumerate import Matches
from collage_evo.files import write_whole
from collage_evo.fitness.costs.matches import CostTable
from collage_evo.fitness.costs.model import Border, Copies, CostModel
from collage_evo.fitness.failure import Failure, Fault
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.extract import content_hash
from collage_evo.graph.ir import Graph
from collage_evo.patterns.match import Match
from collage_evo.rewrites.rewrite import sites_from, sites_text
from collage_evo.target.target import Target


@dataclass(frozen=True)
class MeasuredCosts:
    """Standalone costs, and the search space with the additive model made from them."""

    table: CostTable
    space: SearchSpace
    measured: int
    disturbed: int
    """Of the measured: how many were taken while the cores were shared or far apart, however often."""
    cache_hits: int


def costs_key(graph: Graph, found: Matches, target: Target) -> str:
    """What costs are of: other ones under another key."""
    parts = [target.digest, content_hash(graph, graph.all_nodes)]
    parts += sorted(map(_text, found.matches))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _text(match: Match) -> str:
    text = f"{match.nodes:x} {match.engine} {match.family} {match.quantised:x}"
    return f"{text} {sites_text(match.rewrites)}" if match.rewrites else text


def write_costs(path: Path, key: str, costs: MeasuredCosts) -> None:
    """Keep ``costs`` whole or not at all, every number to the bit."""
    space, table = costs.space, costs.table
    data = {
        "key": key,
        "matches": [_match_values(match) for match in space.matches],
        "match_ms": [None if math.isinf(ms) else ms for ms in space.cost.match_ms],
        "borders": [[*engine, border.fixed_ms, border.ms_per_mb] for engine, border in space.cost.borders.items()],
        "families": [[*engine, *family] for engine, family in space.cost.families.items()],
        "on_device": [*map(list, sorted(space.cost.on_device))],
        "copies": asdict(space.cost.copies),
        "estimated": sorted(space.cost.estimated),
        "error2": list(space.error2),
        "standalone_ms": [None if math.isinf(ms) else ms for ms in table.standalone_ms],
        "failures": {str(index): asdict(failure) for index, failure in table.failures.items()},
        "expected": sorted(table.estimated),
        "counts": [costs.measured, costs.disturbed, costs.cache_hits],
    }
    write_whole(path, json.dumps(data))


def read_costs(
    path: Path, key: str, graph: Graph, refusals: Mapping[int, Mapping[str, str]]
) -> MeasuredCosts | None:
    """What :func:`write_costs` kept under ``key``; None where there is nothing, or it is of something else.

    Where all engines ran on the host, an older version wrote nothing of devices.
    """
    if not path.is_file() or (data := json.loads(path.read_text()))["key"] != key:
        return None
    cost = CostModel(
        _finite_or_not(data["match_ms"]),
        {(backend, variant): Border(fixed, rate) for backend, variant, fixed, rate in data["borders"]},
        frozenset(data["estimated"]),
        {(one, its): (other, base) for one, its, other, base in data["families"]},
        frozenset((backend, variant) for backend, variant in data.get("on_device", ())),
        Copies(**{way: Border(**border) for way, border in data.get("copies", {}).items()}),
    )
    matches = tuple(_match(*values) for values in data["matches"])
    failures = {int(index): _failure(found) for index, found in data["failures"].items()}
    table = CostTable(_finite_or_not(data["standalone_ms"]), failures, frozenset(data["expected"]))
    return MeasuredCosts(table, SearchSpace(graph, matches, cost, refusals, tuple(data["error2"])), *data["counts"])


def _match_values(match: Match) -> list[Any]:
    nodes, quantised = f"{match.nodes:x}", f"{match.quantised:x}"
    values = [nodes, match.backend, match.variant, match.pattern, match.base, quantised, match.exact]
    return [*values, sites_text(match.rewrites)]


def _match(
    nodes: str, backend: str, variant: str, pattern: str, base: str, quantised: str, exact: bool, rewrites: str = ""
) -> Match:
    """A match from its values; an older version wrote nothing of rewrites."""
    return Match(int(nodes, 16), backend, variant, pattern, base, int(quantised, 16), exact, sites_from(rewrites))


def _finite_or_not(times: list[float | None]) -> tuple[float, ...]:
    return tuple(math.inf if ms is None else ms for ms in times)


def _failure(data: Mapping[str, Any]) -> Failure:
    return Failure(Fault(data["fault"]), data["message"], data["relative_error"])
