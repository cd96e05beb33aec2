"""Measures the costs that matter: takes matches, gives a search space whose cheapest cover is measured.

Most matches can be ruled out by what a few others took. So a sample is measured first, of kernels that are unlike
each other; what the others take is estimated from it, and from what engines took for the whole model. Each engine's
largest regions are measured too, where that is not the whole model: what they take is to be beaten; and what is
rewritten, since nothing else tells what that takes. Then the dynamic program is asked for the cheapest cover with
every kernel that was not measured at the least that it may well take; what that cover uses is measured, and so on
until it promises hardly less than the best one of measured matches. No other kernel can then make a cheaper cover,
unless it takes less than its estimate allows. What is left unmeasured keeps its estimate, marked as one, for the
search to start from: the mean of what it may take, because the cheapest cover would else be made of lucky guesses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from collage_evo.backends.base import Backend
from collage_evo.errors import InputError
from collage_evo.fitness.costs.borders import border_ms, border_pairs, fit_borders, inner_ms, largest_parts
from collage_evo.fitness.costs.estimate import Estimate, Kernels, Whole
from collage_evo.fitness.costs.matches import BATCH, CostMeter, Costs, CostTable, cost_ms
from collage_evo.fitness.costs.model import FREE, Border, Copies, CostModel, Engine, bordering
from collage_evo.genome.cover.dynamic_program import cheapest_covers
from collage_evo.genome.cover.front import cover_front
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir import NodeSet, members
from collage_evo.graph.roofline import constant_bytes, heavy_operators
from collage_evo.patterns.match import Match
from collage_evo.run.survey_dependents import measure_dependents

SAMPLE = 20
"""Kernels that are measured first, each on all engines that take it."""
ROUNDS = 8
"""Times that the dynamic program is asked and what it would choose is measured, ``BATCH`` structures a time. What is
left then is so uncertain, or so alike, that the search's own measurements tell more."""
EFFORT = 30_000
"""States that it examines each time."""

WORTH = 0.03
"""A cover that may be cheaper by less than this share of the cost is not looked into."""
MUCH = 2.0
"""A region whose kernels take this many times as long as on another engine is not measured as a whole."""

TABLE_BYTES = 2**20
"""Constants of so many bytes, and no heavy operator that works through them, are a table."""

SAMPLE_SHARE, PROBE_SHARE, COVER_SHARE = 0.35, 0.5, 0.7
"""Share of the time for costs after which the sample, the borders, and what covers are made of, is what it is. The
rest is for the regions of the cheapest cover (``run/refine.py``)."""

MORE_SECONDS = 0.6
"""Where there are regions on lanes: time for them alone, as a share of that for costs. Chosen: with the default it
is half a minute."""
DEPENDENT_SHARE = (COVER_SHARE + MORE_SECONDS) / (1 + MORE_SECONDS)
"""Share of both together after which no more of them is measured: as much is left afterwards as without them."""

OnDone = Callable[[int], None]


class Survey:
    """The costs of one graph's matches, as far as they are known. Call ``sample``, ``probe``, then ``settle``."""

    def __init__(
        self,
        meter: CostMeter,
        matches: Sequence[Match],
        backends: Mapping[str, Backend],
        refusals: Mapping[int, Mapping[str, str]],
        far_behind: float,
        error2: Sequence[float] = (),
        budget: float = math.inf,
        on_device: frozenset[Engine] = frozenset(),
        copies: Copies = FREE,
        alone: Mapping[Engine, float] = MappingProxyType({}),
    ) -> None:
        """``on_device``: engines that work in the device's memory, and what ``copies`` there and back cost.

        ``alone``: ms of the whole model on engines that ran it.
        """
        self._on_device, self._copies, self._alone = on_device, copies, alone
        self._meter = meter
        self._matches = tuple(matches)
        self._refusals = refusals
        self._error2, self._budget = tuple(error2), budget
        self._usual = {
            (name, variant): backends[name].runs_any_model(backends[name].variant(variant))
            for name, variant in {match.engine for match in self._matches}
        }
        self._costs = Costs(meter, matches, far_behind)
        self._dependents = frozenset(i for i, match in enumerate(self._matches) if not backends[match.backend].alone)
        """What stands on other backends."""
        self._kernels = Kernels(meter.graph, matches, on_device, self._dependents)
        self._pairs = border_pairs(meter.graph, matches, backends)
        self._joined: dict[Match, float] = {}
        self._given: tuple[Mapping[int, float], tuple[Whole, ...]] = {}, ()
        self._fitted: Mapping[int, Estimate] = {}
        """What was estimated last, from what was ``given``: what is asked for several times is fitted once."""
        self._borders: dict[Engine, Border] = {}
        self._larger = frozenset(range(len(self._matches))).difference(self._kernels.indices)
        self._ran = {i: alone[self._matches[i].engine] for i in self._larger if self._is_whole(self._matches[i])}
        """Of matches that are the whole model, which their engine ran: ms of that."""
        self._parts = self._parts_of(index for index in self._larger if not self._matches[index].rewrites)
        self._unwritten = self._parts_of(index for index in self._larger if self._matches[index].rewrites)

    def _parts_of(self, indices: Iterable[int]) -> dict[int, tuple[int, ...]]:
        """For each match of several heavy operators the kernels that make it up, where they do: those of its engine,
        or of the one that its rewritten piece is compiled as."""
        own: dict[Engine, dict[NodeSet, int]] = {}
        for index in self._kernels.indices:
            own.setdefault(self._matches[index].engine, {})[self._matches[index].nodes] = index
        found = {}
        for index in indices:
            offered = own.get(bordering(self._matches[index].engine), {})
            parts = largest_parts(self._matches[index].nodes, offered)
            if parts is not None:
                found[index] = tuple(offered[nodes] for nodes in parts)
        return found

    def sample(self, on_done: OnDone) -> None:
        """Measure kernels that are unlike each other, on all engines, and what cannot be estimated."""
        self._costs.recall()
        pairs = [index for pair in self._pairs for index in (pair.first, pair.second)]
        chosen = {self._matches[index].nodes for index in pairs}
        more = self._kernels.spread_out(max(SAMPLE - len(chosen), SAMPLE // 2), pairs)
        chosen |= {self._matches[index].nodes for index in more}
        lone = self._larger.difference(self._parts, self._unwritten, self._dependents, self._ran)
        wanted = {index for index, match in enumerate(self._matches) if match.nodes in chosen} | lone
        # All engines on one kernel after the other: they are compared, and time may not suffice for all kernels.
        # Those on the device come first, and those that run most things well: who is far behind is soon given up.
        # What is little but a large table to look up comes last: compiling it takes long, running it next to nothing.
        in_turn = sorted(wanted, key=self._turn)
        self._costs.measure(in_turn, on_done, SAMPLE_SHARE)
        if not self._costs.ms:  # compiling the first took all of that; without any time nothing can be estimated
            self._costs.measure(in_turn, on_done, COVER_SHARE)

    def _turn(self, index: int) -> tuple[int, NodeSet, bool, bool, int]:
        match, graph = self._matches[index], self._meter.graph
        idle = 0 if heavy_operators(graph, match.nodes) else constant_bytes(graph, match.nodes) // TABLE_BYTES
        return idle, match.nodes, match.engine not in self._on_device, not self._usual[match.engine], index

    def probe(self, on_done: OnDone) -> None:
        """Measure what pairs of neighbours take joined, and fit what a border costs."""
        both = [p.joined for p in self._pairs if p.first in self._costs.ms and p.second in self._costs.ms]
        answers = self._meter.measure(both, lambda _: math.inf, on_done, PROBE_SHARE)
        for match in both:
            answer = answers.get(self._meter.key(match))
            if answer is not None and math.isfinite(ms := cost_ms(answer)):
                self._joined[match] = ms
        self._fit()

    def _fit(self) -> None:
        graph, on_device = self._meter.graph, self._on_device
        wholes = {self._matches[index]: ms for index, ms in self._ran.items() if not self._costs.known(index)}
        self._borders = fit_borders(graph, self._matches, self._costs.ms, self._joined | wholes, on_device)

    def settle(self, on_done: OnDone) -> SearchSpace:
        """Measure what the cheapest cover may be made of, until no other can be much cheaper than measured ones.

        Where matches differ in error, it costs what it is worth at the budget.
        """
        hopeful = self._space(lambda estimate: estimate.hopeful_ms)
        self._costs.measure(self._promising_regions(hopeful), on_done, COVER_SHARE)
        self._costs.measure(self._promising_rewrites(hopeful), on_done, COVER_SHARE)
        slope = cover_front(self._expected(), self._budget).slope if self._error2 else 0.0
        for _ in range(ROUNDS):
            hopeful = self._space(lambda estimate: estimate.hopeful_ms, regions=False).priced(slope)
            cover = cheapest_covers(hopeful, effort=EFFORT).covers[0]
            fresh = self._weightiest(cover.matches, hopeful)
            if not fresh or cover.cost_ms >= (1 - WORTH) * self._measured_ms(hopeful):
                break
            self._costs.measure(fresh, on_done, COVER_SHARE)
            if self._meter.over(COVER_SHARE):
                break
        self._fit()
        if self._dependents:
            self._meter.extend(MORE_SECONDS)
            space = self._expected()
            measure_dependents(
                self._costs, self._meter, space, self._dependents, EFFORT, on_done, DEPENDENT_SHARE
            )
        return self._expected()

    def _weightiest(self, cover: Sequence[int], space: SearchSpace) -> list[int]:
        """What of ``cover`` was not measured, at most ``BATCH`` structures: those that make up most of its cost."""
        weight: dict[str, float] = {}
        first: dict[str, int] = {}
        for index in sorted(cover):
            if not self._costs.known(index) and index not in self._ran:
                key = self._meter.key(self._matches[index])
                first.setdefault(key, index)
                weight[key] = weight.get(key, 0.0) + space.cost.match_ms[index]
        return [first[key] for key in sorted(weight, key=lambda key: -weight[key])[:BATCH]]

    def _measured_ms(self, space: SearchSpace) -> float:
        """What the cheapest cover of measured matches alone costs, the whole model on an engine among them; infinite
        where they cover not all."""
        try:
            return cheapest_covers(space, effort=EFFORT, allowed=self._costs.ms.keys() | self._ran).cost_ms
        except InputError:
            return math.inf

    def _promising_rewrites(self, hopeful: SearchSpace) -> list[int]:
        """What is rewritten, but where the kernels there were before take much longer than another engine's.

        What most is to be won from comes first.
        """
        before = {i: sum(hopeful.cost.match_ms[part] for part in parts) for i, parts in self._unwritten.items()}
        least: dict[NodeSet, float] = {}
        for index, ms in before.items():
            nodes = self._matches[index].nodes
            least[nodes] = min(ms, least.get(nodes, math.inf))
        chosen = [index for index, ms in before.items() if ms <= MUCH * least[self._matches[index].nodes]]
        return sorted(chosen, key=lambda index: (-least[self._matches[index].nodes], index))

    def _promising_regions(self, hopeful: SearchSpace) -> list[int]:
        """Each engine's largest regions, but where their kernels take much longer than another engine's.

        Not the whole model, which takes longest to compile, where it is known what that takes.
        """
        least: dict[NodeSet, float] = {}
        for index in self._parts:
            nodes, ms = self._matches[index].nodes, hopeful.cost.match_ms[index]
            least[nodes] = min(ms, least.get(nodes, math.inf))
        largest: dict[Engine, list[NodeSet]] = {}
        chosen = []
        for index in sorted(self._parts, key=lambda index: -self._matches[index].nodes.bit_count()):
            match = self._matches[index]
            kept = largest.setdefault(match.engine, [])
            if not any(match.nodes & ~region == 0 for region in kept):
                kept.append(match.nodes)
                if index not in self._ran and hopeful.cost.match_ms[index] <= MUCH * least[match.nodes]:
                    chosen.append(index)
        return chosen

    def _estimates(self) -> Mapping[int, Estimate]:
        """What kernels take, by index: together no less than the whole model took on engines that ran it."""
        measured = {index: self._costs.ms[index] for index in self._kernels.indices if index in self._costs.ms}
        given = measured, tuple(self._wholes())
        if self._given != given:
            self._given, self._fitted = given, self._kernels.estimates(*given)
        return self._fitted

    def _wholes(self) -> Iterator[Whole]:
        """For each engine that ran the model, and can be given all of it in kernels, what these take at least."""
        graph = self._meter.graph
        for engine, ms in self._alone.items():
            own = {
                self._matches[index].nodes: index
                for index in self._kernels.indices
                if self._matches[index].engine == engine and index not in self._costs.failures
            }
            parts = largest_parts(graph.all_nodes, own)
            if parts is not None:
                border = self._borders[bordering(engine)]
                gone = sum(border_ms(graph, nodes, border) for nodes in parts)
                gone -= border_ms(graph, graph.all_nodes, border)
                yield Whole(tuple(own[nodes] for nodes in parts), ms + max(gone, 0.0))

    def _is_whole(self, match: Match) -> bool:
        """Whether ``match`` is the whole model, which its engine ran."""
        return match.nodes == self._meter.graph.all_nodes and match.engine in self._alone

    def table(self) -> CostTable:
        """Standalone costs, estimated where none was measured."""
        self._costs.recall()
        expected = {index: estimate.expected_ms for index, estimate in self._estimates().items()} | self._ran
        ms = [self._costs.ms.get(index, math.inf) for index in range(len(self._matches))]
        for index, expected_ms in expected.items():
            if not self._costs.known(index):
                ms[index] = expected_ms
        known = [self._costs.known(index) for index in range(len(self._matches))]
        return CostTable(
            tuple(ms), self._costs.failures, frozenset(i for i, one in enumerate(known) if not one)
        )

    def _expected(self) -> SearchSpace:
        return self._space(lambda estimate: estimate.expected_ms)

    def _space(self, cost_of: Callable[[Estimate], float], regions: bool = True) -> SearchSpace:
        """The search space with estimates at ``cost_of``; ``regions``: whether those not measured take part."""
        estimates = self._estimates()
        inner = [math.inf] * len(self._matches)
        estimated = set()
        for index in self._kernels.indices:
            ms = self._costs.ms.get(index)
            if ms is None and index not in self._costs.failures and index in estimates:
                ms = cost_of(estimates[index])
                estimated.add(index)
            if ms is not None:
                inner[index] = inner_ms(self._meter.graph, self._matches[index], ms, self._borders)
        for index in self._larger:
            ms = self._costs.ms.get(index, self._ran.get(index))
            if ms is not None and index not in self._costs.failures:
                inner[index] = inner_ms(self._meter.graph, self._matches[index], ms, self._borders)
            elif regions and index in self._parts and index not in self._costs.failures:
                inner[index] = sum(inner[part] for part in self._parts[index])
            if math.isfinite(inner[index]) and index not in self._costs.ms:
                estimated.add(index)
        families = {match.engine: match.family for match in self._matches if match.family != match.engine}
        cost = CostModel(
            tuple(inner), self._borders, frozenset(estimated), families, self._on_device, self._copies
        )
        return SearchSpace(self._meter.graph, self._matches, cost, self._reasons(), self._error2)

    def _reasons(self) -> dict[int, dict[str, str]]:
        """Why nodes have no match: what backends refused, and what failed when it was built or timed."""
        reasons = {node: dict(refused) for node, refused in self._refusals.items()}
        for index, failure in self._costs.failures.items():
            match = self._matches[index]
            for node in members(match.nodes):
                reasons.setdefault(node, {}).setdefault(match.backend, f"accepted, but failed ({failure})")
        return reasons
