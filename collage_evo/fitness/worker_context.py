"""Context of a worker process's jobs: settings, compiler, judge and lock, and values that are read when needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from collage_evo.backends.registry import probe_all
from collage_evo.fitness.compile.cache import PieceCache
from collage_evo.fitness.compile.compiler import Compiler
from collage_evo.fitness.exclusive import ExclusiveTiming
from collage_evo.fitness.jobs import Setting
from collage_evo.fitness.judging import Judge
from collage_evo.fitness.references import Reference, read_references, read_timed
from collage_evo.fitness.timing import throttled
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.load.files import read_model
from collage_evo.hardware.core_distance import CoreDistance, Echo
from collage_evo.hardware.cores import own_cores
from collage_evo.hardware.private import machine_directory
from collage_evo.hardware.slots import timing_slots, usable_cores
from collage_evo.runtime.pools import settle_pools
from collage_evo.runtime.session import Session
from collage_evo.runtime.timing import ATTEMPTS, TimedInputs, Timing, TimingSettings, measure_uncontended


class WorkerContext:
    """What the jobs of one worker process share.

    Args:
        setting: of the run.
        cores: of this process; empty for all.
        waiting: called while it waits for others.
        on_inherited: called with the key of each piece that another run built, before its use.
    """

    def __init__(
        self,
        setting: Setting,
        cores: tuple[int, ...],
        waiting: Callable[[], None],
        on_inherited: Callable[[str], None],
    ) -> None:
        self.setting = setting
        shares = timing_slots(cores or usable_cores(), setting.target.threads)
        self.shares = shares[: setting.sessions]
        """The cores of each session, where several run at once."""
        self.target = replace(setting.target, cores=cores if setting.sessions == 1 else shares[0])
        """With the cores of one session."""
        cache = PieceCache(Path(setting.cache), setting.cache_bytes, setting.run, on_inherited)
        self.compiler = Compiler(self.target, cache, setting.files.ranges)
        self.judge = Judge(setting)
        self._expects_any = False
        self.exclusive = ExclusiveTiming(machine_directory(), waiting, setting.run)

    @cached_property
    def graph(self) -> Graph:
        return build_graph(read_model(self.setting.files.normalised))

    @cached_property
    def references(self) -> list[Reference]:
        return read_references(self.setting.files.reference)

    @cached_property
    def timed(self) -> TimedInputs:
        """The inputs that whole models are timed on."""
        return read_timed(self.setting.files.reference)

    @property
    def last_timed(self) -> Reference:
        """The reference of the last of these inputs."""
        return self.references[len(self.timed.feeds) - 1]

    @cached_property
    def _near(self) -> Callable[[float], bool]:
        """Whether the target's cores are close to each other, for measurements on several of them."""
        cores = own_cores(self.target.threads)
        return CoreDistance(cores, Echo().round_trip).near if cores else lambda wait_s: True

    def expect_any_backend(self) -> None:
        """Configure all thread pools before the first library is loaded, even if only to compile."""
        if not self._expects_any:
            settle_pools((name for name, probe in probe_all() if probe.available), self.target)
            self._expects_any = True

    def uncontended(
        self, session: Session, time_once: Callable[[], Timing], timing: TimingSettings, attempts: int = ATTEMPTS
    ) -> Timing:
        """The result of ``time_once``, a timing of ``session``, repeated while it is contended."""
        slowed = partial(throttled, session)
        return measure_uncontended(time_once, self._near, attempts, timeout_s=timing.max_seconds, throttled=slowed)
