"""File of a run's costs: a resumed run searches the same space, whatever was measured since."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from collage_evo.backends.enumerate import Matches
from collage_evo.costs.matches import CostTable
from collage_evo.errors import DamagedFile
from collage_evo.files import MADE_AGAIN, read_json, write_json
from collage_evo.genome.cost_model import Border, Copies, CostModel, Engine
from collage_evo.genome.failure import Failure
from collage_evo.genome.outcome import Terms
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.convert.extract import content_hash
from collage_evo.graph.ir.graph import Graph
from collage_evo.hardware.target import Target
from collage_evo.patterns.match import Match
from collage_evo.policy import DEFAULT_POLICY, Policy
from collage_evo.precision.transforms.edits import edits_text


@dataclass(frozen=True)
class MeasuredCosts:
    """Standalone costs, and the search space with the additive model made from them."""

    table: CostTable
    space: SearchSpace
    measured: int
    contended: int
    """Number of measurements that stayed contended, or ran on distant cores, in every repeat."""
    cache_hits: int


@dataclass(frozen=True)
class _Saved:
    """Content of the file."""

    key: str
    matches: tuple[Match, ...]
    match_ms: tuple[float, ...]
    borders: tuple[tuple[str, str, float, float], ...]
    families: tuple[tuple[str, str, str, str], ...]
    estimated: frozenset[int]
    standalone_ms: tuple[float, ...]
    failures: Mapping[int, Failure]
    counts: tuple[int, int, int]
    off_host: frozenset[Engine]
    copies: Copies
    terms: Terms

    def __post_init__(self) -> None:
        count = len(self.matches)
        named = {*self.failures, *self.estimated}
        sizes = {len(self.match_ms), *map(len, self.terms.values())}
        if sizes != {count} or not named <= set(range(count)):
            raise ValueError(f"it has not one cost for each of {count} matches")


def costs_key(graph: Graph, matches: Matches, target: Target, policy: Policy = DEFAULT_POLICY) -> str:
    """Key of the costs' inputs: costs of other inputs have another key."""
    parts = [target.digest, content_hash(graph, graph.all_nodes)]
    parts += sorted(map(_text, matches.matches))
    parts += filter(None, [policy.text])
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _text(match: Match) -> str:
    text = f"{match.nodes:x} {match.engine} {match.family} {edits_text(match.numerics) or 0}"
    return f"{text} {edits_text(match.rewrites)}" if match.rewrites else text


def write_costs(path: Path, key: str, costs: MeasuredCosts) -> None:
    """Write ``costs`` atomically, every number to the bit."""
    space, table = costs.space, costs.table
    saved = _Saved(
        key=key,
        matches=space.matches,
        match_ms=space.cost.match_ms,
        borders=tuple((*engine, border.fixed_ms, border.ms_per_mb) for engine, border in space.cost.borders.items()),
        families=tuple((*engine, *family) for engine, family in space.cost.families.items()),
        off_host=space.cost.off_host,
        copies=space.cost.copies,
        estimated=space.cost.estimated,
        terms=space.terms,
        standalone_ms=table.standalone_ms,
        failures=table.failures,
        counts=(costs.measured, costs.contended, costs.cache_hits),
    )
    write_json(path, _Saved, saved)


def read_costs(
    path: Path, key: str | None, graph: Graph, refusals: Mapping[int, Mapping[str, str]]
) -> MeasuredCosts | None:
    """Read the file of :func:`write_costs` for ``key``; None if there is none, or its key is another one.

    ``key`` None: any key, for callers that read another run's measurements of ``graph``.

    Raises:
        DamagedFile: its content is something else.
    """
    if not path.exists() or (saved := read_json(path, _Saved)).key != (saved.key if key is None else key):
        return None
    if any(match.nodes & ~graph.all_nodes for match in saved.matches):
        raise DamagedFile(f"{path} is not of this graph: {MADE_AGAIN}")
    cost = CostModel(
        saved.match_ms,
        {(backend, variant): Border(fixed, rate) for backend, variant, fixed, rate in saved.borders},
        saved.estimated,
        {(one, its): (other, base) for one, its, other, base in saved.families},
        saved.off_host,
        saved.copies,
    )
    table = CostTable(saved.standalone_ms, saved.failures)
    return MeasuredCosts(table, SearchSpace(graph, saved.matches, cost, refusals, saved.terms), *saved.counts)
