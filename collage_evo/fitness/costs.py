"""Costs of matches: takes a graph's matches, gives measured ms for each, every distinct structure timed once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from collage_evo.backends.registry import get_backend
from collage_evo.fitness.builders import Builders, build_job
from collage_evo.fitness.database import CostDatabase
from collage_evo.fitness.flush import flush_bytes
from collage_evo.fitness.jobs import Answer, CostJob
from collage_evo.fitness.pool import MeasuringPool
from collage_evo.graph.extract import structural_hash
from collage_evo.graph.ir import Graph, NodeSet, members
from collage_evo.patterns.match import Match
from collage_evo.runtime.machine import this_machine
from collage_evo.runtime.timing import Timing, TimingSettings

PROTOCOL = 11
"""Goes up when the way of timing changes, so that older costs are not mixed with newer ones."""

BATCH = 24
"""Matches that are compiled, then timed, together."""


@dataclass(frozen=True)
class CostTable:
    """Standalone cost of each match in ms (inf: unusable, with the reason)."""

    standalone_ms: tuple[float, ...]
    reasons: Mapping[int, str]


@dataclass(frozen=True)
class CostSettings:
    """How matches are timed; ``flush``: with cold caches, as inside a model."""

    timing: TimingSettings
    flush: bool


def cost_key(graph: Graph, match: Match, device: str, threads: int, settings: CostSettings) -> str:
    """What a match's cost is kept under: equal for matches that must cost the same."""
    timing = settings.timing
    parts = (
        f"protocol{PROTOCOL}",
        structural_hash(graph, match.nodes),
        match.backend,
        get_backend(match.backend).probe().version,
        match.variant,
        device,
        this_machine().cpu,
        f"threads{threads}",
        # What is flushed between runs depends on the rest of the model, to the nearest power of two.
        f"flush{flush_bytes(graph, match.nodes).bit_length() if settings.flush else 0}",
        f"runs{timing.min_runs},{timing.min_seconds:g}",
    )
    return "|".join(parts)


class CostMeter:
    """Measures node sets on engines, through the run's own database and the one that all runs share."""

    def __init__(
        self,
        graph: Graph,
        pool: MeasuringPool,
        builders: Builders,
        own: CostDatabase,
        shared: CostDatabase,
        settings: CostSettings,
    ) -> None:
        self.graph = graph
        self._pool = pool
        self._builders = builders
        self._own = own
        self._shared = shared
        self._settings = settings
        self.measured = 0
        self.disturbed = 0
        self.cache_hits = 0

    def key(self, match: Match) -> str:
        """Equal for matches that must cost the same."""
        setting = self._pool.setting
        return cost_key(self.graph, match, setting.device, setting.threads, self._settings)

    def measure(
        self,
        matches: Sequence[Match],
        give_up_ms: Callable[[Match], float],
        on_done: Callable[[int], None],
    ) -> dict[str, Answer]:
        """Answers by key; what the database knows is not measured again."""
        answers: dict[str, Answer] = {}
        todo: dict[str, Match] = {}
        for match in matches:
            key = self.key(match)
            if key in answers or key in todo:
                continue
            known = self._own.get(key) or self._shared.get(key)
            if known is None:
                todo[key] = match
            else:
                self._own.put(key, known)
                answers[key] = known
                self.cache_hits += 1
        on_done(len(matches) - len(todo))
        keys = list(todo)
        for start in range(0, len(keys), BATCH):
            some = {key: todo[key] for key in keys[start : start + BATCH]}
            for key, answer in self._answers(some, give_up_ms):
                self._own.put(key, answer)
                # What may be the machine's fault of the moment is not passed on to other runs.
                if not answer.disturbed and not answer.reason.startswith(("hung", "memory")):
                    self._shared.put(key, answer)
                self.disturbed += answer.disturbed
                answers[key] = answer
                self.measured += 1
                on_done(1)
        return answers

    def _answers(
        self, matches: Mapping[str, Match], give_up_ms: Callable[[Match], float]
    ) -> Iterator[tuple[str, Answer]]:
        """Compile all, then time those that could be."""
        builds = {key: build_job(match) for key, match in matches.items()}
        reasons = self._builders.build(builds.values())
        jobs = [
            CostJob(
                f"{match.nodes:x}",
                match.backend,
                match.variant,
                self._settings.timing,
                give_up_ms(match),
                self._settings.flush,
            )
            for key, match in matches.items()
            if not reasons[builds[key]]
        ]
        timed = self._pool.map(jobs)
        for key, build in builds.items():
            reason = reasons[build]
            yield key, Answer(reason=reason) if reason else next(timed)


def measure_costs(
    meter: CostMeter, matches: Sequence[Match], far_behind: float, on_done: Callable[[int], None]
) -> CostTable:
    """Measure every match: single operators first, backend by backend in order of first appearance, then larger
    matches, one after the other on all backends, so that what is compared is measured in the same minute.

    A larger match is dropped unmeasured when one of its operators alone takes its backend ``far_behind`` times
    as long as all of its operators take the best backends one by one.
    """
    costs = _Costs(meter.graph, far_behind)
    order = {engine: rank for rank, engine in enumerate(dict.fromkeys(m.engine for m in matches))}
    phases: dict[int, list[int]] = {}
    for index, match in enumerate(matches):
        single = match.nodes.bit_count() == 1
        phases.setdefault(order[match.engine] if single else len(order), []).append(index)
    for phase in sorted(phases):
        wanted = []
        for index in sorted(phases[phase], key=lambda index: (matches[index].nodes, order[matches[index].engine])):
            if reason := costs.hopeless(matches[index]):
                costs.refuse(index, reason)
                on_done(1)
            else:
                wanted.append(index)
        answers = meter.measure([matches[i] for i in wanted], costs.give_up_ms, on_done)
        for index in wanted:
            costs.record(index, matches[index], answers[meter.key(matches[index])])
    table = tuple(costs.ms.get(index, math.inf) for index in range(len(matches)))
    return CostTable(table, costs.reasons)


class _Costs:
    """What is known so far."""

    def __init__(self, graph: Graph, far_behind: float) -> None:
        self._far_behind = far_behind
        self._best = [math.inf] * len(graph.nodes)
        self._alone: dict[tuple[int, str, str], float] = {}
        self.ms: dict[int, float] = {}
        self.reasons: dict[int, str] = {}

    def hopeless(self, match: Match) -> str:
        """Why a match need not be measured, or the empty text."""
        if match.nodes.bit_count() == 1:
            return ""
        bound = self.give_up_ms(match)
        for node in members(match.nodes):
            alone = self._alone.get((node, *match.engine), 0.0)
            if alone > bound:
                return f"far behind: one of its operators alone takes {alone:.2f} ms on {match.backend}"
        return ""

    def give_up_ms(self, match: Match) -> float:
        """Above this a match is far behind the best known way, operator by operator."""
        return self._far_behind * self._sum_best(match.nodes)

    def refuse(self, index: int, reason: str) -> None:
        self.reasons[index] = reason

    def record(self, index: int, match: Match, answer: Answer) -> None:
        if answer.reason:
            self.refuse(index, answer.reason)
            return
        self.ms[index] = ms = Timing(answer.times_ms).median_ms
        if match.nodes.bit_count() == 1:
            node = next(members(match.nodes))
            self._alone[(node, *match.engine)] = ms
            self._best[node] = min(self._best[node], ms)

    def _sum_best(self, nodes: NodeSet) -> float:
        return sum(self._best[node] for node in members(nodes))
