"""A machine for tests of stages: records in, records out, without a process or a clock."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collage_evo.accuracy.limits import Limits
from collage_evo.fitness.evaluate import outcome_of
from collage_evo.fitness.jobs import (
    ArtifactJob,
    BuildJob,
    JudgeJob,
    OpenJob,
    PlacementJob,
    ProfileJob,
    ReloadJob,
    Reply,
    Setting,
    TimeJob,
    TraceJob,
    Written,
    regions_of,
)
from collage_evo.fitness.machine import OnWorker, PlacementEvaluator, Regions, StartsProcesses, TimingRule
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Outcome
from collage_evo.hardware.target import Target
from collage_evo.patterns.match import Placement
from collage_evo.runtime.timing import Timing, TimingSettings


def setting_of(**changed: Any) -> Setting:
    """The setting of a machine that has no files."""
    return replace(Setting("", "", 0, Target(), Limits(1e-3, budget=0.02, front=0.1)), **changed)


@dataclass
class FakeMachine:
    """Answers each job by ``answer``: what it gets is in ``jobs``, with the longest silence in ``timeouts_s``.

    ``told``: the jobs of processes that had exclusive use, each with its process. ``running``: those that do.
    """

    answer: Callable[[Any], Any]
    setting: Setting = field(default_factory=setting_of)
    sessions: int = 1
    most_sessions: int = 1
    first_cores: tuple[int, ...] = (0,)
    memory_bytes: int = 2**30
    timeout_s: float = 60.0
    warning: str = ""
    jobs: list[Any] = field(default_factory=list)
    timeouts_s: list[float] = field(default_factory=list)
    told: list[tuple[FakeProcess, Any]] = field(default_factory=list)
    running: set[int] = field(default_factory=set)
    closed: int = 0

    def ask(self, job: Any, timeout_s: float = math.inf) -> Any:
        self.jobs.append(job)
        self.timeouts_s.append(timeout_s)
        return self.answer(job)

    @contextlib.contextmanager
    def exclusive(self, sessions: int = 1) -> Iterator[StartsProcesses]:
        yield lambda python="": FakeProcess(self, python)

    @contextlib.contextmanager
    def regions(self) -> Iterator[Regions]:
        yield FakeRegions(self)

    @contextlib.contextmanager
    def placements(
        self, rule: TimingRule, agreed_on: Placement, margin: float, on_worker: OnWorker
    ) -> Iterator[PlacementEvaluator]:
        yield FakeEvaluator(self, rule)

    def write(self, placements: Mapping[str, Placement], directory: Path) -> Mapping[str, Path | Failure]:
        written: dict[str, Path | Failure] = {}
        for name, placement in placements.items():
            artifact = directory / f"{name}.collage"
            answer = self.ask(ArtifactJob(regions_of(placement), str(artifact), {"key": placement.key}))
            written[name] = answer if isinstance(answer, Failure) else artifact
        return written

    def check(self, artifact: Path) -> Any:
        return self.ask(OpenJob(str(artifact))), self.ask(ProfileJob(1))

    def trace(self, artifact: Path, runs: int) -> Any:
        return self.ask(TraceJob(str(artifact), runs))

    def judge(self, artifact: Path, samples: Path, moves: bool = True) -> Any:
        return self.ask(JudgeJob(str(artifact), str(samples), moves))

    def time(self, artifact: Path, timing: TimingSettings, sessions: int) -> Timing | Failure:
        for job in (ReloadJob((str(artifact),), 0), TimeJob(timing)):
            if isinstance(answer := self.ask(job), Failure):
                return answer
        return Timing(answer.times_ms)

    def within(self, limits: Limits) -> FakeMachine:
        return replace(self, setting=replace(self.setting, limits=limits))

    def on_threads(self, threads: int) -> FakeMachine:
        return replace(self, setting=replace(self.setting, target=replace(self.setting.target, threads=threads)))

    def by(self, python: str) -> FakeMachine:
        return replace(self, setting=replace(self.setting, python=python))

    def close(self) -> None:
        self.closed += 1


@dataclass(eq=False)
class FakeProcess(contextlib.AbstractContextManager["FakeProcess"]):
    """A process of a :class:`FakeMachine`."""

    machine: FakeMachine
    python: str = ""

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def start(self) -> None:
        self.machine.running.add(id(self))

    def call(self, job: Any, timeout_s: float) -> Any:
        self.start()
        self.machine.told.append((self, job))
        return self.machine.ask(job, timeout_s)

    def close(self) -> None:
        self.machine.running.discard(id(self))


@dataclass
class FakeRegions:
    """Regions of a :class:`FakeMachine`: ``batches`` are the numbers of those that were compiled together."""

    machine: FakeMachine
    batches: list[int] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)

    def build(self, jobs: Iterable[BuildJob], seconds: float = math.inf) -> Mapping[BuildJob, Failure]:
        built = {job: self.machine.ask(job) for job in jobs}
        self.batches.append(len(built))
        self.waits_s.append(seconds)
        return {job: answer for job, answer in built.items() if isinstance(answer, Failure)}

    def map(self, jobs: Sequence[Any], over: Callable[[], bool] = lambda: False) -> Iterator[Reply[Any]]:
        for job in jobs:
            yield Reply(Failure(Fault.CLOSED, "no time was left") if over() else self.machine.ask(job))

    def placements(
        self, placements: Sequence[Placement], timing: TimingSettings, sessions: int = 1
    ) -> list[Outcome | None]:
        jobs = [PlacementJob(regions_of(placement), timing, math.inf) for placement in placements]
        return [outcome_of(self.machine.ask(job)) for job in jobs]


@dataclass
class FakeEvaluator:
    """Evaluator of a :class:`FakeMachine`."""

    machine: FakeMachine
    rule: TimingRule
    on_measured: Callable[[Placement, Outcome], None] = lambda placement, outcome: None

    def evaluate(self, placements: Iterable[Placement], until: float = math.inf) -> list[Outcome | None]:
        outcomes: list[Outcome | None] = []
        for placement in placements:
            job = PlacementJob(regions_of(placement), self.rule.timing, self.rule.give_up_ms)
            outcome = outcome_of(self.machine.ask(job))
            self.on_measured(placement, outcome)
            outcomes.append(outcome)
        return outcomes

    def listen(self, on_measured: Callable[[Placement, Outcome], None]) -> None:
        self.on_measured = on_measured

    def race_against(self, outcome: Outcome) -> None:
        """Answers do not depend on it."""

    def write(self, placement: Placement, artifact: Path) -> Future[Written | Failure]:
        future: Future[Written | Failure] = Future()
        future.set_result(self.machine.ask(ArtifactJob(regions_of(placement), str(artifact), {})))
        return future
