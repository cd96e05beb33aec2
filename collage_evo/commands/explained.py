"""The search space that an explanation describes: that of a run, or the one that a configuration would begin with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from collage_evo.accuracy.limits import Limits
from collage_evo.backends.base import Backend
from collage_evo.backends.enumerate import Matches, enumerate_matches, matches_of
from collage_evo.backends.registry import device_of
from collage_evo.backends.select import select_backends
from collage_evo.config import Config, cache_directory
from collage_evo.costs.database import CostDatabase
from collage_evo.costs.matches import CostKeys
from collage_evo.costs.saved_costs import MeasuredCosts, read_costs
from collage_evo.errors import InputError
from collage_evo.graph.convert.origin import Origin
from collage_evo.graph.ir.graph import Graph, NodeSet, members
from collage_evo.graph.prepare import SearchableModel, searchable
from collage_evo.measure.jobs import WorkFiles
from collage_evo.patterns.match import Match
from collage_evo.placement.cost_model import Engine
from collage_evo.placement.failure import Failure
from collage_evo.precision.quantise.ranges import read_ranges
from collage_evo.precision.quantise.rules import Ranges
from collage_evo.report.explain import NOT_MEASURED, Offer
from collage_evo.rewrites.catalogue import REWRITES
from collage_evo.run.directory import CONFIG, reopen_run
from collage_evo.run.open import LIMITS
from collage_evo.run.profiles import FOLDER
from collage_evo.run.samples import matching, model_file, read_samples
from collage_evo.run.stages.costs import cost_settings
from collage_evo.run.stages.matches import MATCHES, Enumerated
from collage_evo.run.stages.model import NORMALISED, Normalised, run_once
from collage_evo.run.stages.precision import may_quantise
from collage_evo.run.stages.threads import settled
from collage_evo.run.store import Store
from collage_evo.runtime.timing import Timing
from collage_evo.target.slots import usable_cores
from collage_evo.target.target import Target


@dataclass(frozen=True)
class Explained:
    """A graph with its enumerated matches.

    Attributes:
        backends: those that take part.
        origin: where the nodes of the user's file went.
        found: the matches.
        left_out: excluded engines, and why.
        largest: the largest error of what takes part.
        ranges: of the graph's tensors, where int8 with such took part.
    """

    backends: Sequence[Backend]
    graph: Graph
    origin: Origin
    found: Matches
    left_out: Mapping[Engine, str]
    largest: float
    ranges: Ranges | None
    costs: KnownCosts

    @classmethod
    def of(cls, config: Config, run: Path | None) -> Explained:
        """The space of ``run``, if it is one with this configuration; the rest is computed as a run would.

        Raises:
            InputError: the model cannot be used, or the run has several profiles.
            UnavailableError: a requested backend cannot be used.
        """
        if run is not None and (run / FOLDER).is_dir():
            raise InputError(f"{run} has several profiles: give the directory of one, as {run / FOLDER}/0")
        same = run is not None and (run / CONFIG).exists() and reopen_run(run) == config
        config = settled(config, run if same else None)
        backends = select_backends(config.backends.use, config.target.device, config.target.threads)
        store = Store(run / "work") if run is not None and same else None
        limits = store.get(LIMITS, Limits) if store else None
        limits = limits or Limits.decide(config.accuracy.budget, config.verify.tolerance)
        enumerated = measured = ranges = None
        if store is None or (normalised := store.get(NORMALISED, Normalised)) is None:
            model = _searchable(config)
        else:
            files = WorkFiles(store.work)
            model, enumerated = normalised.searchable(files), store.get(MATCHES, Enumerated)
            measured = read_costs(store.work / "costs.json", None, model.graph, {})
            ranges = read_ranges(files.ranges) if files.ranges.exists() and may_quantise(store, config) else None
        enumerated = enumerated or Enumerated("", _enumerated(config, backends, model.graph, limits))
        matches, excluded = enumerated.found, dict(enumerated.left_out)
        if measured:
            matches = replace(matches, matches=measured.space.matches)  # tuned ones too
        costs = KnownCosts(model.graph, config, run, measured)
        return cls(backends, model.graph, model.origin, matches, excluded, limits.measured, ranges, costs)

    def singles(self, backend: str, node: int) -> list[Match]:
        """The matches of ``backend`` for the single ``node``, unchanged."""
        plain = (match for match in self.found.matches if match.nodes == 1 << node and not match.rewrites)
        return [match for match in plain if match.backend == backend]

    def matches(self, backend: Backend, nodes: NodeSet) -> list[Match]:
        """``nodes`` as one piece of ``backend``, in each variant that the run would offer."""
        device = self.costs.target.device
        return matches_of(self.graph, backend, nodes, self.largest, device, self.ranges, self.left_out)


def _enumerated(config: Config, backends: Sequence[Backend], graph: Graph, limits: Limits) -> Matches:
    rewrites = REWRITES if config.search.rewrites else ()
    return enumerate_matches(graph, backends, limits.measured, config.target.device, rewrites=rewrites)


def _searchable(config: Config) -> SearchableModel:
    shapes, file = config.model.one_profile(), model_file(config)
    feeds = [sample.feeds for sample in matching(read_samples(config, shapes, file), shapes)[:1]]
    return searchable(run_once(config, file, feeds), len(usable_cores()))


@dataclass(frozen=True)
class KnownCosts:
    """Costs of matches: those of a ``run``'s search, else standalone times from it or any other run."""

    graph: Graph
    config: Config
    run: Path | None
    measured: MeasuredCosts | None

    def offer(self, match: Match) -> Offer:
        """``match`` as one way to run its nodes, with its cost or the reason why it has none."""
        operators = tuple(self.graph.nodes[index].op_type for index in members(match.nodes))
        plain = Offer(match.pattern, match.variant, operators, None, NOT_MEASURED, device_of(*match.engine))
        index, measured = self._indices.get(match, -1), self.measured
        if measured is not None and index >= 0:
            if (failure := measured.table.failures.get(index)) is not None:
                return replace(plain, reason=str(failure))
            if math.isfinite(ms := measured.table.standalone_ms[index]):
                return replace(plain, ms=ms, reason="", estimated=index in measured.table.estimated)
        key = self._keys.of(match)
        answer = next((recorded for database in self._databases if (recorded := database.get(key))), None)
        if isinstance(answer, Failure):
            return replace(plain, reason=str(answer))
        return plain if answer is None else replace(plain, ms=Timing(answer.times_ms).median_ms, reason="")

    @cached_property
    def _keys(self) -> CostKeys:
        return CostKeys(self.graph, self.target, cost_settings(self.config))

    @cached_property
    def target(self) -> Target:
        """The target of these measurements."""
        return Target.here(self.config.target.device, self.config.target.threads)

    @cached_property
    def _indices(self) -> Mapping[Match, int]:
        if self.measured is None:
            return {}
        timed = self.measured.space.matches[: len(self.measured.table.standalone_ms)]
        return {match: index for index, match in enumerate(timed)}

    @cached_property
    def _databases(self) -> list[CostDatabase]:
        of_run = [self.run / "work" / "costs.sqlite"] if self.run is not None else []
        paths = [*of_run, cache_directory(self.config) / "costs.sqlite"]
        return [CostDatabase(path) for path in paths if path.exists()]

    def apart_ms(self, options: Sequence[Sequence[Match]]) -> float | None:
        """Cost in ms of nodes one by one, each as the fastest of its ``options``, on the device where that is least.

        None if one is not known.
        """
        offers = [[offer for offer in map(self.offer, matches) if offer.ms is not None] for matches in options]
        totals = []
        for device in {offer.device for of_node in offers for offer in of_node}:
            times = [[offer.ms or 0.0 for offer in of_node if offer.device == device] for of_node in offers]
            totals += [sum(map(min, times))] if all(times) else []
        return min(totals, default=None)
