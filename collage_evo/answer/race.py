"""Race of artifacts: paired sample batches in rounds, which load all contestants anew unless that takes long."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np

from collage_evo.answer.sequential import FEWEST, Ratio
from collage_evo.fitness.jobs import OpenJob, ReloadJob, SampleBatchesJob
from collage_evo.fitness.machine import Machine, Process, StartsProcesses
from collage_evo.fitness.timing import SampleBatch, log_ratio, log_ratios
from collage_evo.genome.failure import Failure
from collage_evo.runtime.timing import Timing
from collage_evo.statistics import robust_deviation

LAYOUT = 0.005
"""Standard deviation of a latency's logarithm over placements of the model in memory."""
_OF_MEDIAN = math.pi / 2
"""Variance of a median over that of a mean."""
LOADED_ONCE_S = 5.0
"""Contestants that together take so many seconds to load stay loaded for all rounds. Chosen: four of an encoder of 24
layers took 14 s, in each of three rounds."""
RELOAD_S = 1.0
"""Contestants that take so many seconds to be loaded anew stay loaded from then on. Simulated, four of 85 ms that
load in 1 s, 3 % of noise between repeats: 96 % of races prove a gain of 6 %, in 13 s; with loading in each round
49 %, in 18 s."""
MAX_REPEATS = 14
"""Maximum of repeats in a round: large models have fewer, at least two, since a round has a time limit."""


@dataclass(frozen=True)
class Serving:
    """Cost of serving an artifact in a process of its own: time to load it, and its peak memory.

    ``notes``: parts of it that run worse than they could, and why.
    """

    load_ms: float
    peak_bytes: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Race:
    """Sample batches by contestant, round and repeat; failures; and the serving cost of the others.

    A contestant that left a race early has fewer rounds, the first ones. ``seconds``: from the first round's
    beginning to the last one's end. ``shared``: variance of the logarithm of a ratio that all rounds share, where
    contestants were loaded once.
    """

    rounds: Mapping[str, tuple[tuple[SampleBatch, ...], ...]]
    failed: Mapping[str, Failure]
    serving: Mapping[str, Serving] = field(default_factory=dict)
    seconds: float = 0.0
    shared: float = 0.0

    @property
    def length(self) -> int:
        """Rounds so far."""
        return max(map(len, self.rounds.values()), default=0)

    def over(self, seconds: float) -> bool:
        """Whether each contestant had the fewest rounds, and one more would end later than ``seconds`` after the
        first."""
        return self.length >= FEWEST and self.seconds * (1 + 1 / self.length) > seconds

    def timing(self, name: str) -> Timing:
        """All runs of a contestant."""
        return Timing(tuple(ms for repeats in self.rounds[name] for batch in repeats for ms in batch))

    def logs(self, rival: str, name: str) -> list[float]:
        """Logarithm of the speed-up of ``name`` over ``rival``, in each round of both."""
        return [log_ratio(*both) for both in zip(self.rounds[rival], self.rounds[name], strict=False)]

    def expected(self, rival: str, name: str) -> float:
        """The expected variance of a round of :meth:`logs`, from the spread of its repeats."""
        both = zip(self.rounds[rival], self.rounds[name], strict=False)
        return expected_variance([log_ratios(*repeats) for repeats in both])

    def ratio(self, rival: str, name: str, significance: float) -> Ratio:
        """The speed-up of ``name`` over ``rival``."""
        return Ratio.of(self.logs(rival, name), significance, self.expected(rival, name), self.shared)


def expected_variance(rounds: Sequence[np.ndarray]) -> float:
    """Expected variance of the median over repeats: from noise between repeats, and from the place of two models in
    memory.

    Contention can shift single repeats by any amount, so with four and more the median deviation counts.
    """
    repeats = min(map(len, rounds), default=0)
    if repeats < 2:
        return 2 * LAYOUT**2
    if repeats < 4:
        inside = float(np.mean([np.var(one, ddof=1) for one in rounds])) / repeats
    else:
        inside = _OF_MEDIAN / repeats * float(np.median([robust_deviation(one.tolist()) ** 2 for one in rounds]))
    return inside + 2 * LAYOUT**2


class RaceRunner:
    """Runs contestants one at a time on the same cores. :meth:`close` ends their processes.

    On one thread all are loaded in one process, or in one of each interpreter, and neighbouring batches are
    microseconds apart. On several threads, and after a common process failed, each contestant has its own, and also
    where they load for very long. All stay loaded where they load for long. ``failed`` has the reason for each
    contestant that failed and is excluded.
    """

    def __init__(
        self,
        artifacts: Mapping[str, Path],
        machine: Machine,
        fresh_process: StartsProcesses,
        order: random.Random,
        pythons: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._artifacts, self._machine, self._fresh_process, self._order = artifacts, machine, fresh_process, order
        self._python_of = {name: pythons.get(name, "") for name in artifacts}
        self._processes: dict[str, Process] = {}
        # On several threads the pools of two libraries in one process slow each other down.
        self._apart = machine.setting.target.threads > 1
        self._open = False
        """Whether contestants stay loaded in their processes."""
        self._shares = False
        self._warm: dict[str, list[SampleBatch]] = {}
        self.failed: dict[str, Failure] = {}
        self.serving: dict[str, Serving] = {}

    def check(self, checked: Collection[str]) -> None:
        """Load each in a process of its own, and check its outputs; those that were ``checked`` before on fewer
        inputs."""
        self._processes = {name: self._fresh_process(python) for name, python in self._python_of.items()}
        for process in self._processes.values():
            process.start()  # they get ready in parallel
        for name in self._artifacts:
            job = OpenJob(str(self._artifacts[name]), edges=name not in checked)
            opened = self._processes[name].call(job, self._machine.timeout_s)
            if isinstance(opened, Failure):
                self._fail(name, opened)
                continue
            self.serving[name] = Serving(opened.load_ms, opened.peak_bytes, opened.notes)
            if not (self._apart or self._all_fit):
                self._processes[name].close()
        load_ms = sum(one.load_ms for one in self.serving.values())
        self._open = self._shares = self._all_fit and self._on_cpu and load_ms > LOADED_ONCE_S * 1e3
        if self._open:
            self._apart = True
        elif not self._apart:
            for process in self._processes.values():
                process.close()
            self._start_processes()

    @property
    def _on_cpu(self) -> bool:
        """Contestants that share an accelerator are loaded anew: other ways were not tried."""
        return not self._machine.setting.target.accelerated

    @property
    def _all_fit(self) -> bool:
        """Whether all contestants that were opened so far may be loaded at once, each in its own process."""
        return sum(one.peak_bytes for one in self.serving.values()) <= self._machine.memory_bytes

    @property
    def shared(self) -> float:
        """Variance of the logarithm of a ratio that all rounds share. :func:`expected_variance` has it too, which
        widens the intervals a little."""
        return 2 * LAYOUT**2 if self._shares else 0.0

    def _start_processes(self) -> None:
        """Replace the processes of the contestants by some that have loaded nothing yet."""
        common = {python: self._fresh_process(python) for python in set(self._python_of.values())}
        self._processes = {
            name: self._fresh_process(self._python_of[name]) if self._apart else common[self._python_of[name]]
            for name in self._processes
        }

    def round(self, names: Collection[str]) -> Mapping[str, tuple[SampleBatch, ...]]:
        """Load ``names`` anew, in random order and elsewhere in memory, unless they stay loaded, and run all repeats;
        failing contestants are excluded.

        A model's place in memory decides some tenths of a percent for as long as it stays there, so that repeats are
        not independent values, but rounds are.
        """
        while True:
            apart, began = self._apart, time.monotonic()
            warm = {name: self._warm[name] for name in names if name in self._warm}
            if not warm:
                warm = self._run(self._shuffled(names), reload=not self._open)
            load_s = time.monotonic() - began - _run_ms(warm) / 1e3
            if warm and self._on_cpu and load_s > RELOAD_S:
                self._open = self._shares = True
            if self._open:
                self._warm, load_s = warm, 0.0
            order = self._repeat_order(warm, load_s) if warm else ()
            batches = self._run(order, reload=False) if warm else {}
            if apart == self._apart:
                return {name: tuple(repeats) for name, repeats in batches.items() if name not in self.failed}

    def leave(self, names: Collection[str]) -> None:
        """``names`` run no more rounds."""
        for name in names:
            process = self._processes.pop(name, None)
            if process is not None and process not in self._processes.values():
                process.close()

    def _repeat_order(self, warm: Mapping[str, Sequence[SampleBatch]], load_s: float) -> list[str]:
        """The order of all repeats of a round."""
        repeats = max(self._machine.setting.policy.race_share_ms * len(warm), load_s * 1e3) / _run_ms(warm)
        pairs = int(max(1.0, min(MAX_REPEATS, repeats) / 2))
        orders = [self._shuffled(warm) for _ in range(pairs)]
        # Each random order is followed by its reverse (A B B A), so that a drift affects all contestants alike.
        return [name for order in orders for name in (*order, *reversed(order))]

    def _run(self, names: Sequence[str], reload: bool) -> dict[str, list[SampleBatch]]:
        """Run a sample batch of each of ``names`` in turn, by name; consecutive ones in one process make one
        request."""
        batches_of: dict[str, list[SampleBatch]] = {}
        for process, group in itertools.groupby(names, key=self._processes.get):
            together = [name for name in group if name not in self.failed]
            if process is None or not together:
                continue
            paths = tuple(str(self._artifacts[name]) for name in together)
            job = ReloadJob(paths, self._order.randrange(2**31)) if reload else SampleBatchesJob(paths)
            answer = process.call(job, self._machine.timeout_s)
            if not isinstance(answer, Failure):
                for name, batch in zip(together, answer.batches, strict=True):
                    batches_of.setdefault(name, []).append(batch)
            elif self._apart:
                self._fail(together[0], answer)
            else:
                # A crash of the common process does not show which contestant caused it; separate processes do.
                self._part()
                return {}
        return batches_of

    def _part(self) -> None:
        """Give each contestant a process of its own from now on."""
        for process in {id(process): process for process in self._processes.values()}.values():
            process.close()
        self._apart, self._open, self._warm = True, False, {}
        self._start_processes()

    def _fail(self, name: str, failure: Failure) -> None:
        self.failed[name] = failure
        self.leave([name])

    def _shuffled(self, names: Collection[str]) -> list[str]:
        return self._order.sample(list(names), len(names))

    def close(self) -> None:
        """End the processes."""
        self.leave(list(self._processes))


def _run_ms(warm: Mapping[str, Sequence[SampleBatch]]) -> float:
    """What all runs of these batches took, of which a third was dropped, ms."""
    return sum(1.5 * sum(batch) for batches in warm.values() for batch in batches)


def race(
    artifacts: Mapping[str, Path],
    machine: Machine,
    rounds: int,
    still: Callable[[Race], Collection[str]] = lambda so_far: list(so_far.rounds),
    checked: Collection[str] = (),
    pythons: Mapping[str, str] = MappingProxyType({}),
) -> Race:
    """Race ``artifacts`` for at most ``rounds`` rounds.

    Args:
        artifacts: by contestant.
        machine: runs them on its first cores, in as many sessions at once as it times whole models in.
        rounds: the most rounds.
        still: called with the race so far after each round, returns the contestants of the next; the race ends
            when it returns none. By default all go on.
        checked: contestants whose outputs were checked before, when they were measured.
        pythons: the interpreter of each contestant that runs in another environment than the rest.
    """
    batches: dict[str, list[tuple[SampleBatch, ...]]] = {name: [] for name in artifacts}
    with (
        machine.exclusive(machine.sessions) as fresh_process,
        contextlib.closing(RaceRunner(artifacts, machine, fresh_process, random.Random(0), pythons)) as runner,
    ):
        runner.check(checked)
        began = time.monotonic()
        names: Collection[str] = [name for name in artifacts if name not in runner.failed]
        so_far = Race({}, dict(runner.failed), runner.serving)
        for _ in range(rounds):
            for name, repeats in (runner.round(names) if names else {}).items():
                batches[name].append(repeats)
            there = {name: tuple(batches[name]) for name in artifacts if name not in runner.failed}
            serving = {name: runner.serving[name] for name in there}
            so_far = Race(there, dict(runner.failed), serving, time.monotonic() - began, runner.shared)
            goes_on = still(so_far)
            runner.leave([name for name in names if name not in goes_on])
            names = goes_on
            if not names:
                break
    return so_far
