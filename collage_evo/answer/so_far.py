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
    """What is known of the answer in ``artifact``; None if there is none, or it won a final comparison.

    Raises:
        InputError: the artifact is damaged.
    """
    if not artifact.exists():
        return None
    record = read_infos(artifact)[0].get(SO_FAR)
    with reading(artifact / MANIFEST, "run again"):
        return None if record is None else from_plain(record, SoFar)
