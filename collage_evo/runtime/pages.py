"""Huge pages for the memory that libraries allocate while they load, where the kernel leaves the choice to programs.

A model's weights and activations are many times as large as the processor's TLB covers in pages of 4 KiB, and in a
virtual machine a page walk takes several times as many steps. Measured: docs/results.md, "What the runtime costs".
Only the mapping of memory changes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")
_MAPPED = Path("/proc/self/maps")
_ADVISED, COLLAPSED = 14, 25
"""Advice of madvise(2): for pages touched from now on, and for pages touched already (since Linux 6.1)."""

Span = tuple[int, int]
"""Addresses from the first one to before the second."""


def advise(address: int, nbytes: int, advice: int) -> None:
    """Call madvise(2); a refused call changes nothing."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    madvise(address, nbytes, advice)


@contextmanager
def on_huge_pages(
    size: int | None = None, advise: Callable[[int, int, int], object] = advise
) -> Iterator[None]:
    """Put this process's allocations within the context onto huge pages, as far as the kernel has some.

    Memory that malloc had before does not move. It does nothing where the kernel has none or never uses them, and on
    other systems than Linux. ``size``: their bytes, by default :func:`huge_page_bytes`.
    """
    size = huge_page_bytes() if size is None else size
    before = _anonymous() if size else []
    yield
    for begin, end in beyond(_anonymous(), before) if size else ():
        begin, end = -(-begin // size) * size, end // size * size
        if begin < end:
            for advice in (_ADVISED, COLLAPSED):
                advise(begin, end - begin, advice)


@cache
def huge_page_bytes(settings: Path = _SETTINGS) -> int:
    """Size of huge pages in bytes, by the kernel's ``settings``; 0 where a program gets none."""
    try:
        available = "[never]" not in (settings / "enabled").read_text() and _MAPPED.exists()
        return int((settings / "hpage_pmd_size").read_text()) if available else 0
    except (OSError, ValueError):
        return 0


def beyond(spans: Iterable[Span], covered: Iterable[Span]) -> Iterator[Span]:
    """The parts of ``spans`` outside ``covered``, which are in ascending order and do not overlap."""
    covered = list(covered)
    for begin, end in sorted(set(spans) - set(covered)):
        for low, high in covered:
            if begin < high and low < end:
                if begin < low:
                    yield begin, low
                begin = high
        if begin < end:
            yield begin, end


def _anonymous() -> list[Span]:
    """Private writable memory of this process without a backing file, except the main thread's stack."""
    spans = []
    for line in _MAPPED.read_text().splitlines():
        addresses, rights, _, _, inode, *name = line.split(maxsplit=5)
        if rights.startswith("rw-p") and inode == "0" and name != ["[stack]"]:
            begin, end = addresses.split("-")
            spans.append((int(begin, 16), int(end, 16)))
    return spans
