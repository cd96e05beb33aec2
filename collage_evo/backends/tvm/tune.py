"""Tuning of TVM's kernels: trials of schedules, recorded as MetaSchedule records.

Where the fixed rule of ``schedule.py`` fits, tuning varies its choices, nearest to the best so far first. Where it
does not (softmax, layer normalisation; all on a GPU), MetaSchedule's evolutionary search proposes from its general
space. For convolutions that space does worse than the rule after 32 trials, one to three times as slow; a softmax
gains nothing from it, a layer normalisation becomes four times as fast in 16.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from collage_evo.backends.base import Target
from collage_evo.backends.tuning import Kernel, Tuner
from collage_evo.backends.tvm.compile import WEIGHTS, cpu_target, lower_model, set_threads
from collage_evo.backends.tvm.records import FAILED_S, freeze_best, locked, read_kernels, write_pending
from collage_evo.backends.tvm.schedule import Plan, Registers, UnfitError, plans, scheduled

if TYPE_CHECKING:
    import onnx

BATCH = 8
"""Trials of one kernel between two proposals around the best so far."""
STALLED = 32
"""Number of last trials without an improvement after which a kernel is finished."""
_REPEATS, _REPEAT_MS = 5, 10
_POPULATION = 128
"""Population of the evolutionary search: without a cost model to learn, a larger one would only take longer."""


class TvmTuner(Tuner):
    """The tuner of TVM's kernels; the module describes its two ways of proposing schedules."""

    device: ClassVar[str] = "cpu"
    """TVM's name of the device that runs kernels."""
    weights: ClassVar[str] = WEIGHTS

    def compiled_for(self, target: Target) -> Any:
        """``target`` as TVM's."""
        return cpu_target(target.threads)

    def plans_for(self, kernel: Any, target: Any) -> tuple[Plan, ...] | None:
        """The choices of the rule for a kernel; None where it does not fit, and MetaSchedule proposes."""
        with contextlib.suppress(UnfitError):
            return plans(kernel, Registers.of(target))
        return None

    def untuned(self, module: Any, target: Any) -> Any:
        """The schedule without records of a kernel that the rule does not fit."""
        from tvm.s_tir import Schedule

        return Schedule(module)

    def prepare(self, threads: int) -> None:
        """Prepare this process to run kernels."""
        set_threads(threads)

    def compiling(self, target: Any) -> contextlib.AbstractContextManager[None]:
        """The context in which kernels are compiled as those of pieces."""
        return contextlib.nullcontext()

    def tune(self, model: onnx.ModelProto, target: Target, records: Path, trials: int) -> tuple[str, ...]:
        from tvm.s_tir.meta_schedule.database import JSONDatabase
        from tvm.s_tir.meta_schedule.relax_integration import extract_tasks

        compiled_for = self.compiled_for(target)
        module = lower_model(model, compiled_for, weights=self.weights)
        with locked(records):
            database = JSONDatabase(work_dir=str(records))
            extracted = [task.dispatched[0] for task in extract_tasks(module, compiled_for)]
            tasks = [task for one in extracted if (task := _task(self, one, compiled_for, database)) is not None]
            self.prepare(target.threads)
            _spend(tasks, trials, _Bench(self, compiled_for, database, records), database)
        return tuple(task.key for task in tasks)

    def kernels(self, records: Path) -> dict[str, Kernel]:
        return read_kernels(records)

    def freeze(self, records: Path, keys: frozenset[str], into: Path) -> str:
        return freeze_best(records, keys, into)


def apply_records(module: Any, target: Any, records: Path) -> Any:
    """``module`` with every function scheduled whose workload is in ``records``.

    Raises:
        ValueError: no workload is: this would be the untuned piece under another name.
    """
    from tvm import relax, tirx
    from tvm.s_tir.meta_schedule.database import JSONDatabase

    with target, JSONDatabase(work_dir=str(records), allow_missing=False):
        tuned = relax.transform.MetaScheduleApplyDatabase()(module)
    kernels = [function for function in tuned.functions.values() if isinstance(function, tirx.PrimFunc)]
    if not any(kernel.attrs.get("tirx.is_scheduled", False) for kernel in kernels):
        raise ValueError("none of its kernels is on record")
    return tuned


@dataclass
class _Task:
    """One kernel: its workload, its possible plans (none: MetaSchedule proposes), its trials by trace."""

    tuner: TvmTuner
    key: str
    workload: Any
    target: Any
    plans: tuple[Plan, ...]
    seconds: dict[str, float] = field(default_factory=dict)
    exhausted: bool = False

    @property
    def best(self) -> float:
        return min(self.seconds.values(), default=FAILED_S)

    @property
    def finished(self) -> bool:
        times = list(self.seconds.values())
        return self.exhausted or len(times) - times.index(min(times)) > STALLED

    def untuned(self) -> Any:
        """The backend's schedule without records."""
        if self.plans:
            return scheduled(self.workload.mod["main"], Registers.of(self.target))
        return self.tuner.untuned(self.workload.mod, self.target)

    def more(self, count: int, database: Any) -> list[Any]:
        """At most ``count`` untried schedules."""
        schedules = self._varied(count) if self.plans else self._proposed(count, database)
        self.exhausted = not schedules
        return schedules

    def _varied(self, count: int) -> list[Any]:
        from tvm.s_tir.schedule import ScheduleError

        registers, function = Registers.of(self.target), self.workload.mod["main"]
        schedules = {}
        for plan in self.plans:
            try:
                schedules[plan] = scheduled(function, registers, plan)
            except (ScheduleError, UnfitError):
                continue
        traces = {plan: str(schedule.trace) for plan, schedule in schedules.items()}
        best = min(schedules, key=lambda plan: self.seconds.get(traces[plan], FAILED_S))
        new = [plan for plan in schedules if traces[plan] not in self.seconds]
        return [schedules[plan] for plan in sorted(new, key=best.distance)[:count]]

    def _proposed(self, wanted: int, database: Any) -> list[Any]:
        from tvm.s_tir.meta_schedule import TuneContext
        from tvm.s_tir.meta_schedule.cost_model import CostModel
        from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch

        context = TuneContext(
            mod=self.workload.mod,
            target=self.target,
            space_generator="post-order-apply",
            search_strategy=EvolutionarySearch(population_size=_POPULATION),
            num_threads=1,
            rand_state=1 + len(self.seconds),
        )
        cost_model = CostModel.create("random")
        context.pre_tuning(wanted, num_trials_per_iter=wanted, database=database, cost_model=cost_model)
        schedules = [candidate.sch for candidate in context.generate_measure_candidates() or ()]
        context.post_tuning()
        return [schedule for schedule in schedules if str(schedule.trace) not in self.seconds]


def _task(tuner: TvmTuner, module: Any, target: Any, database: Any) -> _Task | None:
    """The kernel with its records; None where there is nothing to choose."""
    possible = tuner.plans_for(module["main"], target)
    if possible is not None and len(possible) < 2:
        return None
    workload = database.commit_workload(module)
    task = _Task(tuner, str(workload.as_json()[0]), workload, target, possible or ())
    for record in database.get_all_tuning_records():
        if record.workload.same_as(workload):
            task.seconds[str(record.trace)] = float(record.run_secs[0])
    return task


def _spend(tasks: Sequence[_Task], trials: int, bench: _Bench, database: Any) -> None:
    """Time every new kernel untuned, then tune the slowest, until ``trials`` are spent or nothing is left."""
    fresh = [task for task in tasks if not task.seconds][:trials]
    for task in fresh:
        bench.time(task, task.untuned())
    left = trials - len(fresh)
    while left > 0 and (able := [task for task in tasks if task.seconds and not task.finished]):
        task = max(able, key=lambda task: task.best)
        candidates = task.more(min(left, BATCH), database)
        for candidate in candidates:
            bench.time(task, candidate)
        left -= len(candidates)


class _Bench:
    """Builds and times schedules, and records the outcome, also of a failure, which must not be tried again.

    The next process finds a schedule that crashed this one in the file ``pending`` and records it as failed.
    """

    def __init__(self, tuner: TvmTuner, target: Any, database: Any, records: Path) -> None:
        self._tuner, self._target = tuner, target
        self._pending = records / "pending"
        self._database = database

    def time(self, task: _Task, schedule: Any) -> None:
        """Time one schedule of a kernel."""
        from tvm.s_tir.meta_schedule.arg_info import ArgInfo
        from tvm.s_tir.meta_schedule.database import TuningRecord

        arguments = ArgInfo.from_prim_func(task.workload.mod["main"])
        if task.seconds:  # the first trial is the backend's own schedule
            failed = TuningRecord(schedule.trace, task.workload, [FAILED_S], self._target, arguments)
            write_pending(self._pending, task.key, failed.as_json())
        seconds = self._seconds(schedule.mod, arguments)
        task.seconds[str(schedule.trace)] = seconds
        record = TuningRecord(schedule.trace, task.workload, [seconds], self._target, arguments)
        self._database.commit_tuning_record(record)
        self._pending.unlink(missing_ok=True)

    def _seconds(self, module: Any, arguments: Any) -> float:
        import tvm

        try:
            with self._tuner.compiling(self._target):
                library = tvm.compile(module, target=self._target)
        except Exception:
            # Schedules come from a random search. TVM's passes raise RuntimeError, ValueError, TypeError and any
            # other error that its C++ maps, NVRTC's errors are ValueError: each is recorded as failed.
            return FAILED_S
        random = np.random.default_rng(0)
        device = tvm.device(self._tuner.device)
        values = [random.random([int(e) for e in one.shape]).astype(str(one.dtype)) for one in arguments]
        tensors = [tvm.runtime.tensor(value, device) for value in values]
        timer = library.mod.time_evaluator("main", device, number=1, repeat=_REPEATS, min_repeat_ms=_REPEAT_MS)
        return float(np.median(timer(*tensors).results))
