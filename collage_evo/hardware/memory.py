"""Memory that this process may have, and the peak of a piece of work: resident memory, as Linux counts it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from collage_evo.hardware.cgroup import ROOT, memory_limit

_PROCESS = Path("/proc/self")


def usable_memory(root: Path = ROOT) -> int:
    """Bytes that the machine has, or that the process's control groups may have if that is less."""
    limit, machine = memory_limit(root), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return machine if limit is None else min(machine, int(limit.value))


class PeakMemory:
    """The most resident memory of this process since construction, beyond its resident memory then.

    It is VmHWM, reset first, less VmRSS. Pages of shared libraries that were read count; where the mark cannot be
    reset, a higher earlier peak counts too.
    """

    def __init__(self) -> None:
        self._before = _status_bytes("VmRSS")
        with contextlib.suppress(OSError):
            (_PROCESS / "clear_refs").write_text("5")

    @property
    def bytes(self) -> int:
        """The peak so far, in bytes."""
        return max(0, _status_bytes("VmHWM") - self._before)


def _status_bytes(key: str) -> int:
    lines = (_PROCESS / "status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))
