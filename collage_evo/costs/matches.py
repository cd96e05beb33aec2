"""Standalone costs of matches, in ms, on request: every distinct structure is timed once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from collage_evo.backends.registry import get_backend
from collage_evo.backends.select import exact_arithmetic
from collage_evo.costs.database import CostDatabase
from collage_evo.fitness.builders import build_job
from collage_evo.fitness.cold_caches import Widths, flush_bytes, widths_of
from collage_evo.fitness.jobs import CostJob, Measured, bare
from collage_evo.fitness.machine import Regions
from collage_evo.genome.failure import Failure, Fault
from collage_evo.graph.convert.extract import structural_hash
from collage_evo.graph.ir.graph import Graph, NodeSet, members
from collage_evo.hardware.target import Target
from collage_evo.multimap import firsts, multimap
from collage_evo.patterns.match import Match
from collage_evo.precision.transforms.piece import structure_text
from collage_evo.pruning import SLOW_MATCH
from collage_evo.runtime.timing import Timing, TimingSettings

PROTOCOL = 13
"""Version of the way of timing; it goes up with each change, so that older costs are not mixed with newer ones."""

BATCH = 12
"""Matches that are compiled, then timed, together, if there is time for so many."""
FIRST_BATCH = 4
"""Matches of the first batch, before the time of one is known."""


@dataclass(frozen=True)
class CostTable:
    """Standalone cost of each match in ms (inf: unusable, and why)."""

    standalone_ms: tuple[float, ...]
    failures: Mapping[int, Failure]


@dataclass(frozen=True)
class CostSettings:
    """How matches are timed; ``flush``: with cold caches, as inside a model; ``seconds``: for all of them.

    ``nonfinite``: only matches that preserve NaN and infinity.
    """

    timing: TimingSettings
    flush: bool
    seconds: float = math.inf
    nonfinite: bool = False


class CostKeys:
    """Database keys of the costs of one graph's matches: equal for matches that must cost the same."""

    def __init__(self, graph: Graph, target: Target, settings: CostSettings) -> None:
        self._graph, self._target, self._settings = graph, target, settings
        self._structures: dict[tuple[NodeSet, str, Widths], str] = {}

    def of(self, match: Match) -> str:
        """The key of ``match``."""
        backend = get_backend(match.backend)
        timing, version = self._settings.timing, backend.version_of(backend.variant(match.variant))
        written = structure_text(self._graph, match.nodes, match.edits)
        engine = self._target.key(match.backend, version, match.family[1])
        checked = "|nonfinite" if self._settings.nonfinite else ""
        timed = f"runs{timing.min_runs},{timing.min_seconds:g}{checked}"
        return f"{self._structure(match)}{written}|{engine}|{timed}"

    def _structure(self, match: Match) -> str:
        """The structure, and to the nearest power of two the number of flushed bytes, which depends on the rest of
        the model."""
        nodes, variant = match.nodes, get_backend(match.backend).variant(match.variant)
        widths = widths_of(*match.family, match.numerics)
        place = nodes, variant.device, widths
        if place not in self._structures:
            flushed = "0"
            if self._settings.flush:
                bits = flush_bytes(self._graph, nodes, widths, variant).bit_length()
                flushed = str(bits) if variant.on_host else f"{bits} on {variant.device}"
            self._structures[place] = f"protocol{PROTOCOL}|{structural_hash(self._graph, nodes)}|flush{flushed}"
        return self._structures[place]


class CostMeter:
    """Measures node sets on engines, through the run's database.

    Once the time for costs is over, it measures nothing more.
    """

    exact = staticmethod(exact_arithmetic)
    """Whether a match computes in float32 throughout."""

    def __init__(
        self,
        graph: Graph,
        regions: Regions,
        target: Target,
        database: CostDatabase,
        settings: CostSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.graph = graph
        self._regions = regions
        self._database = database
        self._settings = settings
        self.key = CostKeys(graph, target, settings).of
        """Database key of a match: equal for matches that must cost the same."""
        self._clock = clock
        self._began = clock()
        self._spent = 0.0
        """Seconds in which ``measured`` were compiled and timed."""
        self.measured = 0
        self.contended = 0
        self.cache_hits = 0

    def over(self, share: float = 1.0) -> bool:
        """Whether this share of the time for costs is over, so that nothing more is measured."""
        return self._left_s(share) <= 0

    def _left_s(self, share: float) -> float:
        return share * self._settings.seconds - (self._clock() - self._began)

    def recall(self, matches: Sequence[Match]) -> dict[str, Measured | Failure]:
        """Known answers without measuring, by key."""
        recorded = {key: self._database.get(key) for key in dict.fromkeys(map(self.key, matches))}
        answers = {key: answer for key, answer in recorded.items() if answer is not None}
        self.cache_hits += len(answers)
        return answers

    def measure(
        self,
        matches: Sequence[Match],
        give_up_ms: Callable[[Match], float],
        on_done: Callable[[int], None],
        share: float = 1.0,
        on_answer: Callable[[str, Measured | Failure], None] = lambda key, answer: None,
    ) -> dict[str, Measured | Failure]:
        """Answers by key; matches in the database are not measured again.

        Those that would begin after ``share`` of the time for costs are missing. ``on_answer`` is called with each
        answer as it arrives, first with those of the database; ``give_up_ms`` is called just before a match is timed,
        and may use these answers.
        """
        answers = self.recall(matches)
        for key, answer in answers.items():
            on_answer(key, answer)
        todo = firsts((key, match) for match in matches if (key := self.key(match)) not in answers)
        on_done(len(matches) - len(todo))
        keys = list(todo)
        while keys and not self.over(share):
            count, began = self._affordable(share), self._clock()
            batch, keys = {key: todo[key] for key in keys[:count]}, keys[count:]
            for key, answer in self._answers(batch, give_up_ms, share):
                self._database.put(key, answer)
                self.contended += isinstance(answer, Measured) and answer.contended
                answers[key] = answer
                self.measured += 1
                on_answer(key, answer)
                on_done(1)
            self._spent += self._clock() - began
        return answers

    def _affordable(self, share: float) -> int:
        """Number of matches to compile next: as many as can be timed in the remaining time, if they take as long as
        others did."""
        left = self._left_s(share)
        if math.isinf(left):
            return BATCH
        if not self.measured:
            return FIRST_BATCH
        return max(1, min(BATCH, int(left * self.measured / max(self._spent, 1e-9))))

    def _answers(
        self, matches: Mapping[str, Match], give_up_ms: Callable[[Match], float], share: float
    ) -> Iterator[tuple[str, Measured | Failure]]:
        """Compile all, then time those that compiled, while ``share`` of the time is not over.

        One of each node set is timed before the others: its latency is the threshold at which these are given up.
        """
        builds = {key: build_job(match) for key, match in matches.items()}
        failed = self._regions.build(builds.values(), self._left_s(share))
        failures = {build: failure for build, failure in failed.items() if failure.fault is not Fault.CLOSED}
        yield from ((key, failures[build]) for key, build in builds.items() if build in failures)
        able = {key: match for key, match in matches.items() if builds[key] not in failed}
        first = {match.nodes: key for key, match in reversed(able.items())}
        leaders = set(first.values())
        for wave in (leaders, able.keys() - leaders):
            keys = [key for key in able if key in wave]
            jobs = [self._job(able[key], give_up_ms) for key in keys]
            for key, reply in zip(keys, self._regions.map(jobs, lambda: self.over(share)), strict=True):
                if not (isinstance(reply.answer, Failure) and reply.answer.fault is Fault.CLOSED):
                    yield key, reply.answer

    def _job(self, match: Match, give_up_ms: Callable[[Match], float]) -> CostJob:
        return CostJob(bare(match), self._settings.timing, give_up_ms(match), self._settings.flush)


def cost_ms(answer: Measured | Failure) -> float:
    """The measured latency in ms; infinite where it failed."""
    return math.inf if isinstance(answer, Failure) else Timing(answer.times_ms).median_ms


class Costs:
    """Known costs of a graph's matches: ms by index, or why there is none.

    A match is given up when it takes ``far_behind`` times as long as the best known way of running its operators.
    """

    def __init__(self, meter: CostMeter, matches: Sequence[Match], far_behind: float) -> None:
        self.meter = meter
        self._matches = matches
        self._far_behind = far_behind
        self._best: dict[tuple[NodeSet, bool], float] = {}
        self._single_ms: dict[tuple[int, str, str], float] = {}
        self._alike = multimap((meter.key(match), index) for index, match in enumerate(matches))
        self.ms: dict[int, float] = {}
        self.failures: dict[int, Failure] = {}

    def known(self, index: int) -> bool:
        """Whether match ``index`` was measured, or refused."""
        return index in self.ms or index in self.failures

    def recall(self) -> None:
        """Add costs that are in the database, or were measured meanwhile in other ways."""
        unknown = [match for index, match in enumerate(self._matches) if not self.known(index)]
        for key, answer in self.meter.recall(unknown).items():
            self._record(key, answer)

    def measure(self, wanted: Iterable[int], on_done: Callable[[int], None], share: float = 1.0) -> None:
        """Measure matches, in order, until ``share`` of the time is over, which gives the cost of all equal ones too.

        One is refused unmeasured when a single one of its operators is known to take its backend ``far_behind`` times
        as long as all of its operators take the best backends.
        """
        todo = []
        for index in dict.fromkeys(wanted):
            if self.known(index):
                on_done(1)
            elif failure := self._hopeless(self._matches[index]):
                self.failures[index] = failure
                on_done(1)
            else:
                todo.append(index)
        asked = [self._matches[index] for index in todo]
        self.meter.measure(asked, self.give_up_ms, on_done, share, self._record)

    def give_up_ms(self, match: Match) -> float:
        """Above this a match is far behind the best known way; infinite where none is known.

        Matches in float32 are compared with their like only: the error budget may exclude all others.
        """

        def best(nodes: NodeSet) -> float:
            exactly = self._best.get((nodes, True), math.inf)
            return exactly if self.meter.exact(match) else min(exactly, self._best.get((nodes, False), math.inf))

        return self._far_behind * min(best(match.nodes), sum(best(1 << node) for node in members(match.nodes)))

    def _hopeless(self, match: Match) -> Failure | None:
        """Why a match need not be measured; None where it should be."""
        if match.nodes.bit_count() == 1:
            return None
        bound = self.give_up_ms(match)
        for node in members(match.nodes):
            single_ms = self._single_ms.get((node, *match.engine), 0.0)
            if single_ms > bound:
                why = f"one of its operators alone takes {single_ms:.2f} ms on {match.backend}"
                return Failure(Fault.FAR_BEHIND, why, rule=SLOW_MATCH.name)
        return None

    def _record(self, key: str, answer: Measured | Failure) -> None:
        ms = cost_ms(answer)
        for index in self._alike[key]:
            match = self._matches[index]
            if isinstance(answer, Failure):
                self.failures[index] = answer
                continue
            self.ms[index] = ms
            kind = (match.nodes, self.meter.exact(match))
            self._best[kind] = min(self._best.get(kind, math.inf), ms)
            if match.nodes.bit_count() == 1:
                self._single_ms[(next(members(match.nodes)), *match.engine)] = ms


def measure_costs(
    meter: CostMeter, matches: Sequence[Match], far_behind: float, on_done: Callable[[int], None]
) -> CostTable:
    """Measure every match: single operators first, backend by backend in order of first appearance, then larger
    matches, one after the other on all backends, so that compared costs are measured in the same minute."""
    costs = Costs(meter, matches, far_behind)
    order = {engine: rank for rank, engine in enumerate(dict.fromkeys(m.engine for m in matches))}
    phases = multimap(
        (order[match.engine] if match.nodes.bit_count() == 1 else len(order), index)
        for index, match in enumerate(matches)
    )
    for phase in sorted(phases):
        by_nodes = sorted(phases[phase], key=lambda index: (matches[index].nodes, order[matches[index].engine]))
        costs.measure(by_nodes, on_done)
    table = tuple(costs.ms.get(index, math.inf) for index in range(len(matches)))
    return CostTable(table, costs.failures)
