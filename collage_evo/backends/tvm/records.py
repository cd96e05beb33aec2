"""MetaSchedule's tuning records on disk: reading of times, and copies of the best ones.

Two files of JSON lines, as TVM's ``JSONDatabase`` writes them: workloads ``[hash, module]`` and records
``[workload, [trace, seconds, target, arguments]]``. TVM itself is not needed to read them. A kernel's first record is
the untuned one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from collage_evo.backends.tuning import Kernel
from collage_evo.files import reading, write_whole

WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"
TUNED = "tuned-"
"""How names of tuned variants begin, behind the kind of target that was tuned for where that is not the CPU."""
FAILED_S = 1e10
"""Seconds that MetaSchedule records for a failed schedule."""
_MEND = "delete its folder, and kernels are tuned again"
BETTER = 0.99
"""A record must take less than this share of the untuned time to be used: timing varies by as much."""


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold an exclusive lock on the directory, made if missing, and cut off torn ends that a kill may have left."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in (WORKLOADS, RECORDS):
            _mend(directory / name)
        _blame_pending(directory)
        yield


def write_pending(path: Path, key: str, record: Any) -> None:
    """Save the record to write if this process does not survive the trial that it is about to begin."""
    write_whole(path, json.dumps([key, record], default=_plain))


def read_kernels(directory: Path) -> dict[str, Kernel]:
    """All records by the workload's hash."""
    return {key: _kernel([_mean_ms(r) for r in records]) for key, (_, records) in _read(directory).items() if records}


def freeze_best(directory: Path, keys: frozenset[str], into: Path) -> str:
    """Write the best record of each of ``keys`` to ``into``.

    Returns a tuned variant's name: a prefix for the target and 8 hexadecimal digits; empty if none is better.
    """
    chosen: list[tuple[str, Any]] = []
    for key, (workload, records) in sorted(_read(directory).items()):
        if key in keys and records:
            best = min(records, key=_mean_ms)
            if _mean_ms(best) < BETTER * _mean_ms(records[0]):
                chosen.append((workload, best))
    if not chosen:
        return ""
    into.mkdir(parents=True, exist_ok=True)
    (into / WORKLOADS).write_text("".join(f"{workload}\n" for workload, _ in chosen))
    lines = [json.dumps([index, best]) for index, (_, best) in enumerate(chosen)]
    (into / RECORDS).write_text("".join(f"{line}\n" for line in lines))
    kind = chosen[0][1][2].get("kind", "llvm")
    prefix = TUNED if kind == "llvm" else f"{kind}-{TUNED}"
    return prefix + hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8]


def _kernel(times_ms: list[float]) -> Kernel:
    return Kernel(len(times_ms), times_ms[0], min(times_ms))


def _read(directory: Path) -> Mapping[str, tuple[str, list[Any]]]:
    """Each workload's line and its records in the order in which they were made, by hash."""
    with reading(directory / WORKLOADS, _MEND):
        workloads = [(json.loads(line)[0], line) for line in _lines(directory / WORKLOADS)]
    with reading(directory / RECORDS, _MEND):
        records_of: list[list[Any]] = [[] for _ in workloads]
        for line in _lines(directory / RECORDS):
            workload, record = json.loads(line)
            _mean_ms(record)
            records_of[workload].append(record)
    return {key: (line, records) for (key, line), records in zip(workloads, records_of, strict=True)}


def _lines(path: Path) -> list[str]:
    """The file's complete lines: the last one may be unfinished."""
    try:
        return path.read_text().split("\n")[:-1]
    except FileNotFoundError:
        return []


def _mean_ms(record: Any) -> float:
    mean = fmean(record[1]) if record[1] else FAILED_S
    return mean * 1e3 if mean < FAILED_S else float("inf")


def _blame_pending(directory: Path) -> None:
    pending = directory / "pending"
    if not pending.exists():
        return
    with reading(pending, _MEND):
        key, record = json.loads(pending.read_bytes())
        workloads = [json.loads(line)[0] for line in _lines(directory / WORKLOADS)]
        line = json.dumps([workloads.index(key), record])
    with (directory / RECORDS).open("a") as file:
        file.write(f"{line}\n")
    pending.unlink()


def _plain(value: Any) -> Any:
    """TVM's own containers and numbers as JSON's."""
    return value.value if hasattr(value, "value") else list(value)


def _mend(path: Path) -> None:
    if not path.exists():
        return
    with path.open("rb+") as file:
        content = file.read()
        if content and not content.endswith(b"\n"):
            file.truncate(content.rfind(b"\n") + 1)
            os.fsync(file.fileno())
