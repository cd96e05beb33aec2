"""Context of a run's stages: configuration and directory, machine and database."""

from __future__ import annotations

import contextlib
import math
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from collage_evo.accuracy.choose import portable, sha256_of_metric
from collage_evo.accuracy.limits import Limits
from collage_evo.backends.registry import registered_origins
from collage_evo.config import Config, cache_directory
from collage_evo.costs.database import CostDatabase
from collage_evo.errors import (
    OF_THE_MACHINE,
    CollageError,
    ConfigError,
    DamagedFile,
    SystemRefuses,
    UnavailableError,
    named_line,
    one_line,
)
from collage_evo.files import Stored
from collage_evo.fitness.jobs import Setting, WorkFiles
from collage_evo.fitness.machine import Machine, PooledMachine
from collage_evo.fitness.pool import WorkerPool, workers_of
from collage_evo.fitness.worker_slot import PoolConfig
from collage_evo.genome.failure import Failure, Fault
from collage_evo.graph.load.open_shapes import OpenShapes
from collage_evo.hardware.memory import usable_memory
from collage_evo.hardware.private import own_directory
from collage_evo.hardware.target import Target
from collage_evo.report.places import DETAILS
from collage_evo.report.progress import Reporter
from collage_evo.report.stage import Stage
from collage_evo.run.machine import usable
from collage_evo.run.samples import SHAPES
from collage_evo.run.store import Store
from collage_evo.runtime.manifest import BEST

T = TypeVar("T")
METRIC = Stored("work/metric.json", str)
"""SHA-256 of the file of the metric's function."""
GIB = 2**30
MEMORY_SHARE = 0.75
"""Of all memory, for one measuring process: the rest is the run's. Where all is taken, the system kills either."""
WEIGHTS_IN_MEMORY = 6
"""Most memory of a measuring process as a multiple of the model's weights. OpenVINO took 2.9 times them to compile
and export a model of 3.4 GB; a process may have two models, and cached pieces of others."""
REFERENCE_IN_MEMORY = 3
"""Memory that a loaded reference run takes, as a multiple of the model's weights: ONNX Runtime maps them and has a
packed copy, and its process had a placement's, too."""


@dataclass(frozen=True)
class Room:
    """Memory in GiB and silence in seconds of a measuring process, and GB of the cache: as configured, or by the
    model's size. ``in_turns``: memory lacks for compiling one placement while another is measured."""

    memory_gb: float
    timeout_s: float
    cache_gb: float
    in_turns: bool = False

    @classmethod
    def of(cls, config: Config, weight_bytes: int, memory_bytes: float = math.inf) -> Room:
        """The room for a model with so many bytes of weights, where all processes together have so much memory."""
        fitness, weights_gb = config.fitness, weight_bytes / 1e9
        return cls(
            fitness.memory_gb or min(max(8.0, WEIGHTS_IN_MEMORY * weights_gb), MEMORY_SHARE * memory_bytes / GIB),
            fitness.timeout_s or 120.0 + 60 * weights_gb,
            config.cache.max_gb or max(6.0, 4 * weights_gb),
            2 * WEIGHTS_IN_MEMORY * weight_bytes > memory_bytes,
        )


@dataclass(frozen=True)
class Workplace:
    """The part of a run's context that exists before the model is read."""

    config: Config
    directory: Path
    reporter: Reporter
    seconds: dict[str, float] = field(default_factory=dict, kw_only=True)
    """Wall time of each stage."""
    begin: float = field(default_factory=time.monotonic, kw_only=True)

    @property
    def name(self) -> str:
        """The run's name, for others that wait for it."""
        return f"process {os.getpid()} ({self.directory.absolute()})"

    @property
    def work(self) -> Path:
        """The work directory, for records of stages."""
        return self.directory.absolute() / "work"

    @property
    def files(self) -> WorkFiles:
        """Files that stages write for worker processes."""
        return WorkFiles(self.work)

    @property
    def store(self) -> Store:
        """What stages keep for other stages and for a resumed run."""
        return Store(self.directory.absolute())

    @property
    def open_shapes(self) -> OpenShapes | None:
        """The shapes that one open answer is for; None where shapes are fixed."""
        shapes = self.store.get(SHAPES)
        return shapes if isinstance(shapes, OpenShapes) else None

    @property
    def metric_sha256(self) -> str:
        """SHA-256 of the file of the metric's function when the run began; empty for a metric by name."""
        return self.store.once(METRIC, lambda: sha256_of_metric(self.config.accuracy.metric))

    def tell(self, sentence: str, raw: str = "") -> None:
        """Log a message to the user; ``raw``, a library's own message, goes to a file that the message names."""
        if raw:
            self.keep_details([f"{sentence}\n    {raw}"])
            sentence += f" (the library's message is in {self.directory / DETAILS})"
        self.reporter.log(sentence)

    def keep_details(self, details: Iterable[str]) -> None:
        """Append details for the programmers of a library to a file of the run directory."""
        text = "".join(f"{detail}\n" for detail in details)
        if text:
            with (self.directory / DETAILS).open("a") as log:
                log.write(text)

    @contextlib.contextmanager
    def stage(self, stage: Stage, total: float | None = None) -> Iterator[None]:
        """Announce a stage, and record its duration."""
        self.reporter.stage(stage, total)
        begin = time.monotonic()
        try:
            yield
        except Exception as error:
            error.add_note(stage.words)  # for :meth:`attempt`
            raise
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.monotonic() - begin

    def attempt(self, make: Callable[[], T], instead: str) -> T | Failure:
        """The value of ``make``; a failure if that raises after the first answer, which no stage takes away.

        The user is told what failed, and what the run does ``instead``. A configuration, a record of the run, a
        machine or a cluster that has to be mended first is raised like everything before the first answer.
        """
        try:
            return make()
        except (ConfigError, DamagedFile, SystemRefuses):
            raise
        except Exception as error:
            lost = isinstance(error, UnavailableError) and self.config.fitness.executor != "local"
            if lost or getattr(error, "errno", None) in OF_THE_MACHINE or not (self.directory / BEST).exists():
                raise
            failure = Failure(Fault.RAISED, one_line(error) if isinstance(error, CollageError) else named_line(error))
            self.keep_details(traceback.format_exception(error))
            stage = ", ".join(getattr(error, "__notes__", ["a stage of the run"]))
            self.reporter.log(f"{stage} failed: {failure.message} ({self.directory / DETAILS} has more); {instead}")
            return failure


@dataclass(frozen=True)
class RunContext(Workplace):
    """Context of stages that measure; :func:`collage_evo.run.open.open_run` makes one and closes its machine."""

    machine: Machine
    cache: Path
    """Cache directory that runs share."""
    database: CostDatabase
    """What was measured of matches and copies, for when the run is resumed."""

    @classmethod
    def at(cls, place: Workplace, limits: Limits, weight_bytes: int = 0) -> RunContext:
        """The context of a run at ``place`` with these error limits, for a model with so many bytes of weights.

        Raises:
            InputError: cores or threads that the configuration asks for are not there.
        """
        config = place.config
        cache = own_directory(cache_directory(config), "cache.dir", readable=True)
        room, fitness = Room.of(config, weight_bytes, usable_memory()), config.fitness
        setting = Setting(
            work=str(place.work),
            cache=str(own_directory(cache / "pieces", "cache.dir", readable=True)),
            cache_bytes=int(room.cache_gb * 1e9),
            target=Target.here(config.target.device, config.target.threads, str(place.files.records)),
            limits=limits,
            registered=registered_origins(),
            run=place.name,
            metric=portable(config.accuracy.metric),
            metric_sha256=place.metric_sha256,
            over=config.accuracy.over,
            keeps_nonfinite=config.verify.keeps_nonfinite,
            policy=config.policy,
            in_turns=room.in_turns,
            reference_bytes=0 if room.in_turns else REFERENCE_IN_MEMORY * weight_bytes,
        )
        slots = PoolConfig(setting, usable(config), int(room.memory_gb * GIB), room.timeout_s)
        pool = WorkerPool(slots, workers_of(fitness.executor, fitness.address))
        return cls(
            place.config,
            place.directory,
            place.reporter,
            PooledMachine(pool, config.search.objective == "throughput"),
            cache,
            CostDatabase(place.work / "costs.jsonl"),
            seconds=place.seconds,
            begin=place.begin,
        )

    @property
    def setting(self) -> Setting:
        """Settings that all jobs of the run share."""
        return self.machine.setting

    @property
    def limits(self) -> Limits:
        """Error limits of results."""
        return self.setting.limits

    def within(self, limits: Limits) -> RunContext:
        """The same run, on the same machine, with other limits."""
        return replace(self, machine=self.machine.within(limits))

    def on_threads(self, threads: int) -> RunContext:
        """The same run, measuring on so many threads."""
        config = self.config.replacing("target", threads=threads)
        return replace(self, config=config, machine=self.machine.on_threads(threads))

    @property
    def target(self) -> Target:
        """The target of the placements."""
        return replace(self.setting.target, cores=self.machine.first_cores)
