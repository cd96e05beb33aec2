"""Puts an answer into place: an artifact that was measured, with all that the person's own file says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collage_evo.backends.base import Target
from collage_evo.runtime.artifact import read_artifact, write_artifact
from collage_evo.runtime.manifest import BEST
from collage_evo.runtime.signature import Signature

ANSWER = "answer"
"""Under which an artifact says that it is the last word, and what it is; a first answer does not."""

MODEL = "model"
"""Under which an artifact says what the person's file was called, and its hash (shapes fixed)."""

OBJECTIVE = "objective"
"""Under which an artifact says what it was made for, latency or throughput."""


@dataclass(frozen=True)
class Delivery:
    """What every answer in a run directory has in common.

    ``signature`` is what the person's own file declares; ``fallback`` the artifact of its open form, for inputs of
    any other shapes, None for a model that is static or that no backend takes open.
    """

    directory: Path
    target: Target
    signature: Signature
    fallback: Path | None

    @property
    def best(self) -> Path:
        """Where the answer lies."""
        return self.directory / BEST

    @property
    def answered(self) -> str:
        """What the answer of a run that ended is: a placement's key, or a single backend's name. Empty before."""
        if not self.best.exists():
            return ""
        return str(read_artifact(self.best).profiles[0].info.get(ANSWER, ""))

    def put(self, *measured: Path, info: Mapping[str, Any] | None = None) -> Path:
        """Make ``best.collage`` of artifacts, one for each profile, in place of what was there.

        ``info`` comes to what each says of its making.
        """
        found = [profile for artifact in measured for profile in read_artifact(artifact).profiles]
        profiles = [replace(profile, info={**profile.info, **(info or {})}) for profile in found]
        open_form = read_artifact(self.fallback).program if self.fallback else None
        write_artifact(self.best, profiles, self.target, self.signature, open_form)
        return self.best
