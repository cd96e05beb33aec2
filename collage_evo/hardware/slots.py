"""Timing slots: exclusive cores for each measuring process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Collection
from pathlib import Path

from collage_evo.hardware.cgroup import ROOT, cpu_quota
from collage_evo.hardware.presence import Doing, Presence
from collage_evo.hardware.private import machine_directory, open_private

POLL_S = 0.1
"""Interval between checks for free cores."""


def usable_cores(root: Path = ROOT) -> tuple[int, ...]:
    """Cores for this process's work: the first of those that it may run on, as many as its CPU quota allows.

    ``root`` as in :func:`collage_evo.hardware.cgroup.cpu_quota`.
    """
    cores, quota = tuple(sorted(os.sched_getaffinity(0))), cpu_quota(root)
    # Rounded down: with one busy thread more than the quota allows, the kernel stops all threads for a part of each
    # period, so that times would jump. Less than one core there is not.
    return cores if quota is None else cores[: max(1, int(quota.value))]


def describe_quota(root: Path = ROOT) -> str:
    """A sentence about the CPU quota if it allows fewer cores than this process may run on; empty otherwise."""
    cores, here, quota = usable_cores(root), len(os.sched_getaffinity(0)), cpu_quota(root)
    if quota is None or quota.value >= here:
        return ""
    sentence = f"The CPU quota ({quota.file}) allows {quota.value:.3g} of {here} processors: {len(cores)} used"
    stops = ", and the kernel stops it for a part of each period, so times vary" if quota.value < 1 else ""
    return sentence + stops


def timing_slots(cores: tuple[int, ...], threads: int) -> tuple[tuple[int, ...], ...]:
    """floor(N/T) disjoint groups of T cores; at least one, however many threads."""
    count = max(1, len(cores) // threads)
    return tuple(cores[i * threads : (i + 1) * threads] for i in range(count))


class Slot:
    """One group of cores, held exclusively by this process until ``release`` or its end.

    Core locks are files shared by all runs on the machine, so that two runs never time on one core.
    """

    def __init__(self, cores: tuple[int, ...], files: list[int], presence: Presence) -> None:
        self.cores = cores
        self._files = files
        self._presence = presence

    def release(self) -> None:
        """Release the cores to other processes."""
        for file in self._files:
            os.close(file)
        self._files = []
        self._presence.close()


def acquire_slot(
    slots: tuple[tuple[int, ...], ...],
    run: str = "",
    timeout_s: float | None = None,
    given_up: threading.Event | None = None,
    besides: Collection[str] = (),
) -> Slot | None:
    """Wait for a free one of ``slots``, and hold it for ``run``, and with it the locks ``besides``.

    None when that takes longer than ``timeout_s`` seconds, or when ``given_up`` is set.

    Presence notes show other processes the waiting and holding runs (:mod:`collage_evo.hardware.presence`).
    """
    given_up = given_up or threading.Event()
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    presence = Presence(machine_directory(), run)
    with contextlib.ExitStack() as waiting:
        waiting.callback(presence.close)
        presence.note(Doing.WANTS_CORES, sorted({core for cores in slots for core in cores}))
        while not given_up.is_set():
            for cores in slots:
                if (files := _lock(cores, besides)) is not None:
                    slot = Slot(cores, files, presence)
                    waiting.pop_all()
                    waiting.callback(slot.release)
                    presence.note(Doing.HAS_CORES, cores)
                    waiting.pop_all()
                    return slot
            if deadline is not None and time.monotonic() > deadline:
                break
            given_up.wait(POLL_S)
    return None


def _lock(cores: tuple[int, ...], besides: Collection[str]) -> list[int] | None:
    files: list[int] = []
    with contextlib.ExitStack() as held:
        for name in (*(f"core-{core}" for core in cores), *besides):
            files.append(open_private(machine_directory() / f"{name}.lock"))
            held.callback(os.close, files[-1])
            try:
                fcntl.flock(files[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
        held.pop_all()
    return files
