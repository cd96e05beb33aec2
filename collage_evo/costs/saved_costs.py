"""File of a run's costs: a resumed run searches the same space, whatever was measured since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from collage_evo.backends.enumerate import Matches
from collage_evo.costs.matches import CostTable
from collage_evo.digests import digest_of_lines
from collage_evo.errors import DamagedFile
from collage_evo.files import MADE_AGAIN, Stored
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
class SavedCosts:
    """Content of the file: costs of what has this ``key``, every number to the bit."""

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

    @classmethod
    def of(cls, key: str, costs: MeasuredCosts) -> SavedCosts:
        """``costs`` of what has this ``key``."""
        space, table = costs.space, costs.table
        return cls(
            key=key,
            matches=space.matches,
            match_ms=space.cost.match_ms,
            borders=tuple((*engine, edge.fixed_ms, edge.ms_per_mb) for engine, edge in space.cost.borders.items()),
            families=tuple((*engine, *family) for engine, family in space.cost.families.items()),
            off_host=space.cost.off_host,
            copies=space.cost.copies,
            estimated=space.cost.estimated,
            terms=space.terms,
            standalone_ms=table.standalone_ms,
            failures=table.failures,
            counts=(costs.measured, costs.contended, costs.cache_hits),
        )

    def costs(self, graph: Graph, refusals: Mapping[int, Mapping[str, str]]) -> MeasuredCosts:
        """The costs, in a search space of ``graph``.

        Raises:
            DamagedFile: they are of another graph.
        """
        if any(match.nodes & ~graph.all_nodes for match in self.matches):
            raise DamagedFile(f"{COSTS.path} is not of this graph: {MADE_AGAIN}")
        cost = CostModel(
            self.match_ms,
            {(backend, variant): Border(fixed, rate) for backend, variant, fixed, rate in self.borders},
            self.estimated,
            {(one, its): (other, base) for one, its, other, base in self.families},
            self.off_host,
            self.copies,
        )
        table = CostTable(self.standalone_ms, self.failures)
        return MeasuredCosts(table, SearchSpace(graph, self.matches, cost, refusals, self.terms), *self.counts)


COSTS = Stored("work/costs.json", SavedCosts)


def costs_key(graph: Graph, matches: Matches, target: Target, policy: Policy = DEFAULT_POLICY) -> str:
    """Key of the costs' inputs: costs of other inputs have another key."""
    parts = [target.digest, content_hash(graph, graph.all_nodes)]
    parts += sorted(map(_text, matches.matches))
    parts += filter(None, [policy.text])
    return digest_of_lines(parts)


def _text(match: Match) -> str:
    text = f"{match.nodes:x} {match.engine} {match.family} {edits_text(match.numerics) or 0}"
    return f"{text} {edits_text(match.rewrites)}" if match.rewrites else text
