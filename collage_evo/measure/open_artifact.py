"""An artifact that a worker process holds open for checks and timing."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from collage_evo.measure.jobs import ReloadJob
from collage_evo.measure.stopwatch import SingleSession
from collage_evo.runtime.artifact import load_artifact
from collage_evo.runtime.crowd import Crowd

BLOCKS = 64
SMALLEST, LARGEST = 64, 2**22
"""Bytes of a block of ballast: from what libraries allocate for a name to what they map separate pages for."""


def ballast(order: random.Random) -> list[bytearray]:
    """Blocks of random sizes: while they are allocated, libraries load at other addresses."""
    sizes = (math.exp(order.uniform(math.log(SMALLEST), math.log(LARGEST))) for _ in range(BLOCKS))
    return [bytearray(int(size)) for size in sizes]


class OpenArtifact:
    """An open artifact. ``session`` is loaded at once: a process's first session shows the cost of loading.

    Args:
        artifact: its directory.
        shares: for each session that is to be timed its cores; a single one is ``session`` itself, on any cores.
    """

    def __init__(self, artifact: Path, shares: Sequence[tuple[int, ...]]) -> None:
        self._load, self._shares = partial(load_artifact, artifact), shares
        self._at_work: SingleSession | Crowd | None = None
        self.session = self._load()

    def at_work(self, feeds: Mapping[str, Any]) -> SingleSession | Crowd:
        """The timed sessions, ready to run on ``feeds``, reused by later calls."""
        if self._at_work is None:
            several = len(self._shares) > 1
            self._at_work = Crowd(self._load, self._shares) if several else SingleSession(self.session)
            self._at_work.feed(feeds)
        return self._at_work

    def close(self) -> None:
        """Close all sessions."""
        if isinstance(self._at_work, Crowd):
            self._at_work.close()
        self.session.close()


def reloaded(
    job: ReloadJob, shares: Sequence[tuple[int, ...]], feeds: Mapping[str, Any]
) -> dict[str, OpenArtifact]:
    """The artifacts of ``job`` by their paths, each behind ballast of its own and ready to run on ``feeds``."""
    order, held, opened = random.Random(job.seed), [], {}
    for artifact in job.artifacts:
        held.append(ballast(order))
        opened[artifact] = OpenArtifact(Path(artifact), shares)
        opened[artifact].at_work(feeds)
    return opened


def close_all(opened: dict[str, OpenArtifact]) -> None:
    """Close every one of ``opened``, and clear it."""
    while opened:
        opened.popitem()[1].close()
