"""Files of an exported model: a large one is in parts, which exports of equal weights share.

The library exports a model with all of its weights. Variants, profiles of input shapes and regions of one network so
have gigabytes in common, at other offsets. The parts end where certain bytes stand (content-defined chunking,
Muthitacharoen et al., SOSP 2001), so that equal weights give equal parts, of which a cache needs one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

PARTS_BYTES = 2**26
"""Bytes of an export from which on it is in parts. Chosen."""
PART_BYTES = 2**22
"""Least bytes of a part, and what lies on average between two places where one may end. Chosen."""
MARK = (0xA7, 0x3C)
"""Two bytes that stand before the end of a part, and after them six bits that are 0; no likely end of a number."""
BLOCK_BYTES = 2**26
"""Bytes that are searched for such places at once."""


def write_blob(
    path: Path,
    content: memoryview,
    parts_bytes: int = PARTS_BYTES,
    part_bytes: int = PART_BYTES,
    block_bytes: int = BLOCK_BYTES,
) -> tuple[str, ...]:
    """Write ``content`` to ``path``, or in parts to files next to it; returns the names of the files."""
    data = np.frombuffer(content, np.uint8)
    if data.size < parts_bytes:
        path.write_bytes(data.data)
        return (path.name,)
    ends = [0, *_ends(data, part_bytes, block_bytes), data.size]
    names = tuple(f"{path.name}.{number:05d}" for number in range(len(ends) - 1))
    for name, start, end in zip(names, ends, ends[1:], strict=False):
        path.with_name(name).write_bytes(data[start:end].data)
    return names


def blob_files(path: Path) -> list[Path]:
    """The files that :func:`write_blob` wrote, in order."""
    return [path] if path.exists() else sorted(path.parent.glob(f"{path.name}.[0-9]*"))


def _ends(data: np.ndarray, part_bytes: int, block_bytes: int) -> list[int]:
    """Where parts end, without the last."""
    ends = [0]
    for start in range(0, data.size, block_bytes):
        block = data[start : start + block_bytes + 2]
        places = np.flatnonzero((block[:-2] == MARK[0]) & (block[1:-1] == MARK[1]))
        for place in places[block[places + 2] < 4].tolist():
            if start + place - ends[-1] >= part_bytes:
                ends.append(start + place)
    return ends[1:]
