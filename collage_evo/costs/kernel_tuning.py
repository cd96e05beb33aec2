"""Auto-tuning of a backend's kernels in one run, and the matches that it makes faster.

A backend that is ``Tunable`` can try ways of running its kernels; ``backends.NAME.trials`` is the budget, off by
default. ``costs/kernel_trials.py`` sends rounds to the structure with the largest weight times gap, between the best
known time of any backend and a roofline made from the measured costs. Rounds run in a worker process on the first
slot's cores while nothing else is timed. Records are shared by runs in the cache directory, a folder for each backend
version and target; they count against the budget, so a second run tunes nothing, and a killed one loses a trial at
most. A trial that brings its process down is recorded as failed. The best records are then frozen into the run
directory, and every match that holds a better kernel gets a variant named after their digest, which is measured like
any other.

For TVM (``backends/tvm/tune.py``) a kernel's space is the fixed rule's own choices where the rule fits,
MetaSchedule's general space with its evolutionary search where it does not; records and their use are MetaSchedule's.
An artifact needs neither.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from collage_evo.backends.base import Backend
from collage_evo.backends.enumerate import Matches
from collage_evo.backends.tuning import Kernel, Tunable
from collage_evo.costs.copies import engines_off_host
from collage_evo.costs.kernel_trials import Known, Structure, spend, structures
from collage_evo.costs.matches import CostTable
from collage_evo.errors import DamagedFile
from collage_evo.files import read_json, write_json
from collage_evo.fitness.jobs import TuneJob
from collage_evo.fitness.machine import Machine, Process
from collage_evo.genome.failure import Failure
from collage_evo.graph.ir.graph import Graph, NodeSet, union
from collage_evo.patterns.match import Match

KNOWN = "structures"
"""Folder next to a backend's records that lists the kernels of each structure, and whether all were tried."""


@dataclass(frozen=True)
class TunedStructure:
    """A structure that trials were spent on: one place, number of places, times in ms, its kernels."""

    nodes: NodeSet
    count: int
    untuned_ms: float
    other_ms: float
    bound_ms: float
    kernels: tuple[str, ...]


@dataclass(frozen=True)
class Tuned:
    """Result of a backend's tuning: trials on record and new ones, seconds, and the improved nodes.

    Attributes:
        variant: builds with the best records; empty where none is better than untuned.
        gained: nodes of structures with a better kernel.
    """

    backend: str
    variant: str
    trials: int
    new: int
    seconds: float
    gained: NodeSet
    kernels: Mapping[str, Kernel]
    structures: tuple[TunedStructure, ...]

    def matches(self, untuned: Sequence[Match]) -> tuple[Match, ...]:
        """The tuned form of those of ``untuned`` that contain a better kernel."""
        if not self.variant:
            return ()
        return tuple(
            Match(match.nodes, self.backend, self.variant, pattern=match.pattern)
            for match in untuned
            if match.backend == self.backend and match.nodes & self.gained and not match.rewrites
        )


@dataclass(frozen=True)
class Tuning:
    """All matches, tuned ones last, and the result of each backend's tuning."""

    matches: Matches
    tuned: tuple[Tuned, ...]

    @staticmethod
    def of(tuned: tuple[Tuned, ...] | None, untuned: Matches) -> Tuning:
        """The matches extended by those of ``tuned``; None: no kernels were tuned."""
        added = [match for one in tuned or () for match in one.matches(untuned.matches)]
        return Tuning(replace(untuned, matches=(*untuned.matches, *added)), tuned or ())


def tune_kernels(
    machine: Machine,
    cache: Path,
    backend: Backend,
    trials: int,
    graph: Graph,
    matches: Sequence[Match],
    table: CostTable,
    on_done: Callable[[int], None],
) -> Tuned:
    """Spend at most ``trials``, and freeze the best records for this run.

    A worker process with exclusive use of the first slot's cores tunes. ``cache`` is a directory that runs share:
    records of one version of the backend on one target lie in one folder.
    """
    assert isinstance(backend, Tunable)
    tuner = backend.tuner()
    begin = time.monotonic()
    there = engines_off_host({match.engine for match in matches})
    tunable = structures(graph, matches, table, backend.name, there)
    place = machine.setting.target.key(backend.name, backend.probe().version)
    records = cache / "tuning" / f"{backend.name}-{hashlib.sha256(place.encode()).hexdigest()[:16]}"
    with contextlib.ExitStack() as stack:
        rounds = _Rounds(machine, backend, records, stack, on_done)
        spent = spend(tunable, trials, rounds.tune, lambda: tuner.kernels(records), read_known(records, tunable))
    write_known(records, spent.known)
    seconds = time.monotonic() - begin if spent.new else 0.0
    names = frozenset(name for result in spent.known.values() for name in result.kernels)
    kernels = {key: kernel for key, kernel in tuner.kernels(records).items() if key in names}
    variant = tuner.freeze(records, names, Path(machine.setting.target.records) / backend.name)
    better = frozenset(key for key, kernel in kernels.items() if kernel.best_ms < kernel.untuned_ms)
    known = [(one, spent.known[one.key].kernels) for one in tunable if one.key in spent.known]
    tuned = tuple(
        TunedStructure(one.nodes, len(one.places), one.untuned_ms, one.other_ms, one.bound_ms, its)
        for one, its in known
        if its
    )
    gained = union(nodes for one, its in known if better.intersection(its) for nodes in one.places)
    return Tuned(backend.name, variant, spent.trials, spent.new, seconds, gained, kernels, tuned)


def read_known(records: Path, tunable: Sequence[Structure]) -> dict[str, Known]:
    """Results of earlier runs for ``tunable``, by structure."""
    results = {}
    for structure in tunable:
        with contextlib.suppress(DamagedFile):  # or missing: it is determined again
            results[structure.key] = read_json(records / KNOWN / structure.key, Known)
    return results


def write_known(records: Path, results: Mapping[str, Known]) -> None:
    """Write results, a file for each structure, since several runs may write at once."""
    (records / KNOWN).mkdir(parents=True, exist_ok=True)
    for key, result in results.items():
        write_json(records / KNOWN / key, Known, result)


@dataclass
class _Rounds:
    """Runs rounds of tuning, in a worker process that is started for the first."""

    machine: Machine
    backend: Backend
    records: Path
    stack: contextlib.ExitStack
    on_done: Callable[[int], None]

    @cached_property
    def _process(self) -> Process:
        fresh_process = self.stack.enter_context(self.machine.exclusive())
        return self.stack.enter_context(fresh_process())

    def tune(self, structure: Structure, trials: int) -> tuple[str, ...] | None:
        """One round; None if it failed."""
        job = TuneJob(structure.nodes, self.backend.name, str(self.records), trials)
        answer = self._process.call(job, self.machine.timeout_s)
        self.on_done(trials)
        return None if isinstance(answer, Failure) else answer.kernels
