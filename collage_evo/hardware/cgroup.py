"""Limits of this process's control groups, as a container sets them: the CPU quota and the memory limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path("/")


@dataclass(frozen=True)
class Limit:
    """The tightest limit of a process's groups, and the file that sets it."""

    value: float
    file: Path


def cpu_quota(root: Path = ROOT) -> Limit | None:
    """Processors that the kernel lets this process use on average over each period (0.1 s by default).

    ``root`` has the files of the system: another folder for tests. None where no group has a quota.
    """
    limits = []
    for group in _groups(root, "cpu"):
        quota, _, period = _read(file := group / "cpu.max").partition(" ")  # version 2: "max 100000"
        if not period:
            quota, period = _read(file := group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):  # neither "max" nor -1
            limits.append(Limit(int(quota) / int(period), file))
    return min(limits, key=lambda limit: limit.value, default=None)


def memory_limit(root: Path = ROOT) -> Limit | None:
    """Bytes that the processes of one of this process's groups may have together. Arguments as :func:`cpu_quota`."""
    files = (group / name for group in _groups(root, "memory") for name in ("memory.max", "memory.limit_in_bytes"))
    limits = [Limit(int(text), file) for file in files if (text := _read(file)).isdigit()]
    return min(limits, key=lambda limit: limit.value, default=None)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's group and its ancestors, whose limits bind too, as far as they are mounted here."""
    mounts = [line.partition(" - ")[::2] for line in _read(root / "proc/self/mountinfo").splitlines()]
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)  # version 2 lists no controllers
        if controllers and controller not in controllers.split(","):
            continue
        for place, system in mounts:
            kind, _, options = system.split(maxsplit=2)
            if kind == ("cgroup" if controllers else "cgroup2") and (
                not controllers or controller in options.split(",")
            ):
                top, point = place.split()[3:5]
                inside = PurePosixPath(group)
                parts = inside.relative_to(top).parts if inside.is_relative_to(top) else ()
                if ".." in parts:  # the process was moved out of its cgroup namespace
                    parts = ()
                folder = root / point.lstrip("/")
                yield from (folder.joinpath(*parts[:depth]) for depth in range(len(parts) + 1))


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # no such controller, or no right to read
        return ""
