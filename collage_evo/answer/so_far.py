"""Best answer so far: what ``best.collage`` holds before the final comparison of a run, and how well it is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from collage_evo.codec import from_plain
from collage_evo.files import reading
from collage_evo.runtime.manifest import MANIFEST, read_infos

SO_FAR = "so_far"
"""Information key of an artifact for an answer that was in no final comparison."""


class Evidence(StrEnum):
    """How the latency of an answer was measured."""

    BASELINE = "timed by itself"
    SEARCH = "timed in the search"


@dataclass(frozen=True)
class SoFar:
    """The latency in ms and the error of an answer, before the final comparison.

    ``library`` is the title of the library that it is compared with, which takes ``library_ms``; empty for none.
    """

    latency_ms: float
    error: float | None
    evidence: Evidence
    library: str = ""
    library_ms: float = 0.0

    @property
    def info(self) -> Mapping[str, Any]:
        """For the artifact's information."""
        return {SO_FAR: asdict(self)}


def read_so_far(artifact: Path) -> SoFar | None:
    """What is known of the answer in ``artifact``, of the first profile that was in no final comparison; None for
    none.

    Raises:
        InputError: the artifact is damaged.
    """
    return next(filter(None, read_profiles_so_far(artifact)), None)


def read_profiles_so_far(artifact: Path) -> tuple[SoFar | None, ...]:
    """The same for each profile of ``artifact``: None for one that won a final comparison. Empty without an artifact.

    Raises:
        InputError: the artifact is damaged.
    """
    records = [info.get(SO_FAR) for info in read_infos(artifact)] if artifact.exists() else []
    with reading(artifact / MANIFEST, "run again"):
        return tuple(None if record is None else from_plain(record, SoFar) for record in records)
