"""Publication of an answer: an artifact that was measured, with the declarations of the user's own file."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collage_evo.answer.so_far import SO_FAR
from collage_evo.backends.base import Target
from collage_evo.hardware.processor import level
from collage_evo.runtime.artifact import read_artifact, write_artifact
from collage_evo.runtime.manifest import BEST, HELD, LEAST
from collage_evo.runtime.package import MODEL as MODEL
from collage_evo.runtime.runner import needs_proof
from collage_evo.runtime.signature import Signature

ANSWER = "answer"
"""Information key of an artifact for the final answer's name; a first answer lacks it."""

OBJECTIVE = "objective"
"""Information key of an artifact for its objective, latency or throughput."""

REPLACED = ".replaced"
"""In a run directory: the run that another one is to replace, until that one has an answer."""


@dataclass(frozen=True)
class Delivery:
    """Common parts of every answer in a run directory.

    ``signature`` declares the inputs and outputs of the user's own file; ``fallback`` is the artifact of its open
    form, for inputs of any other shapes, None for a model that is static or that no backend takes with open shapes.
    An answer for inputs of many shapes has it only if its own pieces do not refuse shapes. It then serves requests
    below the ``least`` shapes, by input, on which pieces were checked.
    """

    directory: Path
    target: Target
    signature: Signature
    fallback: Path | None
    least: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def best(self) -> Path:
        """Path of the answer."""
        return self.directory / BEST

    @property
    def answered(self) -> str:
        """The answer of a run that ended: a placement's key, or a single backend's name. Empty before."""
        if not self.best.exists():
            return ""
        return str(read_artifact(self.best).profiles[0].info.get(ANSWER, ""))

    def put(
        self,
        *measured: Path,
        info: Mapping[str, Any] | None = None,
        check: Callable[[Path], object] = lambda written: None,
    ) -> Path:
        """Write ``best.collage`` from artifacts, one for each profile, replacing an earlier one.

        ``info`` is added to each artifact's information, in which only an answer so far keeps what is known of that.
        ``check`` is called with the new artifact's path before it takes its place.
        """
        parts = [profile for artifact in measured for profile in read_artifact(artifact).profiles]
        held = {**({HELD: level()} if level() else {}), **({LEAST: self.least} if self.least else {})}
        dropped = {SO_FAR} if info else set()
        infos = [{key: value for key, value in one.info.items() if key not in dropped} for one in parts]
        profiles = [
            replace(one, info={**had, **(info or {}), **held}) for one, had in zip(parts, infos, strict=True)
        ]
        refused = all(None in one.program.shapes and not needs_proof(one.program) for one in profiles)
        open_form = read_artifact(self.fallback).program if self.fallback and not refused else None
        write_artifact(self.best, profiles, self.target, self.signature, open_form, check)
        shutil.rmtree(self.directory / REPLACED, ignore_errors=True)
        return self.best
