"""What the stages of one run share: its configuration and directory, the measuring processes, the databases."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from collage_evo.backends.registry import registered_origins
from collage_evo.config import Config, cache_directory
from collage_evo.errors import InputError
from collage_evo.fitness.costs.database import CostDatabase
from collage_evo.fitness.measure.executor import Executor
from collage_evo.fitness.measure.jobs import Setting
from collage_evo.fitness.measure.pool import MeasuringPool
from collage_evo.report.progress import Reporter
from collage_evo.target.presence import Lookout
from collage_evo.target.private import machine_directory, own_directory
from collage_evo.target.slots import usable_cores
from collage_evo.target.target import CPU, Target

GIB = 2**30
DETAILS = "details.log"
"""The file of a run directory with what libraries said of failures, in their own words."""


@dataclass
class RunContext:
    """Use as a context manager: leaving it ends the measuring processes."""

    config: Config
    directory: Path
    reporter: Reporter
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time of each stage."""

    def __post_init__(self) -> None:
        config = self.config
        self.begin = time.monotonic()
        self.cache = own_directory(cache_directory(config), "cache.dir", readable=True)
        self.work = self.directory.absolute() / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        self.setting = Setting(
            model=str(self.work / "normalised.onnx"),
            original=str(self.work / "original.onnx"),
            reference=str(self.work / "reference.npz"),
            cache=str(own_directory(self.cache / "pieces", "cache.dir", readable=True)),
            cache_bytes=int(config.cache.max_gb * 1e9),
            target=Target.here(config.target.device, config.target.threads, str(self.work / "records")),
            tolerance=config.verify.tolerance,
            registered=registered_origins(),
            run=f"process {os.getpid()} ({self.directory.absolute()})",
            recorded=str(self.work / "recorded.npz"),
            dynamic=str(self.work / "dynamic.onnx"),
            ranges=str(self.work / "ranges.json"),
            judged=str(self.work / "search.npz"),
            metric=_absolute(config.accuracy.metric),
            nonfinite=str(self.work / "nonfinite.npz") if config.verify.nonfinite == "kept" else "",
        )
        self.pool = MeasuringPool(
            self.setting,
            usable(config),
            int(config.fitness.memory_gb * GIB),
            config.fitness.timeout_s,
            Executor(config.fitness.executor, config.fitness.address),
        )
        on_device = config.target.device != CPU
        self.sessions = 1 if on_device else max(1, len(self.pool.cores) // config.target.threads)
        """How many sessions fill the machine."""
        # The run's own database comes first: what another run measures later must not change this one's space.
        self.databases = (CostDatabase(self.work / "costs.sqlite"), CostDatabase(self.cache / "costs.sqlite"))
        self.lookout = Lookout(machine_directory(), self.setting.run, self.reporter.say)

    def __enter__(self) -> RunContext:
        self.lookout.__enter__()
        search = self.config.search
        known = search.seconds is not None and search.evaluations is None
        self.reporter.expect({"search": search.seconds} if known and search.seconds else {})
        if warning := self.pool.executor.warning:
            self.reporter.say(warning)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lookout.__exit__(kind, value, trace)
        self.pool.close()

    @property
    def target(self) -> Target:
        """What the placements run on."""
        return replace(self.setting.target, cores=self.pool.slots[0])

    @property
    def full(self) -> MeasuringPool:
        """The pool that times whole models in as many sessions at once as fill the machine.

        Its stations are those of :attr:`pool`: :meth:`MeasuringPool.close` lies between the use of the two.
        """
        return replace(self.pool, setting=replace(self.setting, sessions=self.sessions))

    @property
    def whole(self) -> MeasuringPool:
        """The pool that times whole models by the objective of the search."""
        return self.full if self.config.search.objective == "throughput" else self.pool

    def allow(self, tolerance: float, budget: float, largest_error: float) -> None:
        """From now on outputs may differ from the reference by so much: see :class:`Setting`."""
        self.setting = replace(self.setting, tolerance=tolerance, budget=budget, largest_error=largest_error)
        self.pool = replace(self.pool, setting=self.setting)

    def tell(self, sentence: str, raw: str = "") -> None:
        """Say what a person has to know; ``raw``, what a library said of it, goes to a file whose path is told."""
        if raw:
            self.keep_details([f"{sentence}\n    {raw}"])
            sentence += f" (its own words are in {self.directory / DETAILS})"
        self.reporter.say(sentence)

    def keep_details(self, details: Iterable[str]) -> None:
        """Add what only the programmers of a library understand to a file of the run directory."""
        text = "".join(f"{detail}\n" for detail in details)
        if text:
            with (self.directory / DETAILS).open("a") as log:
                log.write(text)

    @contextlib.contextmanager
    def stage(self, name: str, total: float | None = None) -> Iterator[None]:
        """Announces a stage, and notes how long it took."""
        self.reporter.stage(name, total)
        begin = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = time.monotonic() - begin


def _absolute(function: str) -> str:
    """``file.py:function`` for processes that work in other directories."""
    file, colon, name = function.rpartition(":")
    return f"{Path(file).expanduser().absolute()}{colon}{name}" if function else ""


def usable(config: Config) -> tuple[int, ...]:
    """The cores that a run measures on.

    Raises:
        InputError: cores or threads that the configuration asks for are not there.
    """
    here, target = usable_cores(), config.target
    if missing := set(target.cores) - set(here):
        raise InputError(f"target.cores: core {min(missing)} is not usable here; usable are {list(here)}")
    cores = tuple(target.cores) or here
    if target.threads > len(cores):
        raise InputError(f"target.threads: {target.threads} threads on {len(cores)} core(s); use at most as many")
    return cores
