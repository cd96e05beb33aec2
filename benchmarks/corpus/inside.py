"""Whole runs without measuring processes: every job is done in the process that asks, and timed as briefly as can be.

For finding wrong answers and refusals among thousands of tiny models: starting processes is nearly all of what a run
of such a model takes. What a library does to its process it does to the asking one, which is then started anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_BRIEF = {"warmup": 0, "min_runs": 1, "min_seconds": 1e-6, "max_seconds": 1.0}
CONFIG: Mapping[str, Any] = {
    "fitness": {"timing": _BRIEF},
    "costs": {"seconds": 2.0, "timing": _BRIEF},
    "final": {"rounds": 2, "finalists": 1, "seconds": 1.0},
    "backends": {"use": ["onnxruntime", "openvino"]},
}
SECONDS = 0.2


def measure_inside() -> None:
    """From now on this process does all jobs itself. Jobs and answers go through their written form as ever."""
    from collage_evo.codec import from_json, to_json
    from collage_evo.fitness import open_artifact, worker, worker_context
    from collage_evo.fitness.jobs import Answer, Job
    from collage_evo.fitness.sandbox import Sandbox

    def call(sandbox: Any, job: Any, timeout_s: float) -> Any:
        if not hasattr(sandbox, "handlers"):
            context = worker_context.WorkerContext(sandbox._setting, (), nothing, nothing)
            sandbox.handlers = worker.Worker(context).handlers
        try:
            answer = sandbox.handlers[type(job)](from_json(to_json(job, Job), Job))
        except Exception as error:  # a library may raise anything
            answer = worker.failure_of(error)
        return from_json(to_json(answer, Answer), Answer)

    def nothing(*_: Any) -> None:
        pass

    replaced: Sequence[tuple[object, str, object]] = (
        (Sandbox, "call", call),
        (Sandbox, "start", nothing),
        (Sandbox, "close", nothing),
        (worker_context, "ExclusiveTiming", _NobodyElse),
        (worker_context, "measure_uncontended", lambda time_once, *_, **__: time_once()),
        (open_artifact, "measure_uncontended", lambda time_once, *_, **__: time_once()),
    )
    for owner, name, instead in replaced:
        setattr(owner, name, instead)


class _NobodyElse:
    """In place of the locks by which measuring processes take turns."""

    def __init__(self, *_: Any) -> None:
        pass

    @contextlib.contextmanager
    def job(self) -> Iterator[None]:
        yield

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        yield

    def acquire_exclusive(self) -> None:
        pass

    def release(self) -> None:
        pass
