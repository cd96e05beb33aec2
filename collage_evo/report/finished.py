"""Reads what a finished run wrote: takes its directory, gives the results of its profiles."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from collage_evo.errors import InputError
from collage_evo.files import reading
from collage_evo.report.result import READABLE, RESULT, SCHEMA, Result
from collage_evo.report.summary import Finished

CHANGED: Mapping[int, str] = {
    4: "the libraries as they come were not compared with the answer, and operators have no kinds",
}
"""What a result of that schema lacks beside one of today's."""


@dataclass(frozen=True)
class FinishedRun:
    """The results of a run, one for each profile of input shapes; ``remarks``: what an older one lacks."""

    profiles: Sequence[Finished]
    remarks: Sequence[str] = ()


def read_finished(directory: Path) -> FinishedRun:
    """The ``result.json`` in ``directory``, of this version or the one before.

    Raises:
        InputError: there is none, or it is damaged or too old; the message says what to do.
    """
    path = directory / RESULT
    if not path.exists():
        raise InputError(f"{directory} holds no {RESULT}: give the directory of a run that ended")
    with reading(path, f"write it again with python -m collage_evo resume {directory}"):
        data: dict[str, Any] = json.loads(path.read_text())
        schema = int(data["schema"])
    if schema not in READABLE:
        raise InputError(
            f"{path} has schema {schema}, this version reads {' and '.join(map(str, READABLE))}: write it again "
            f"with python -m collage_evo resume {directory}"
        )
    with reading(path, f"write it again with python -m collage_evo resume {directory}"):
        profiles = [_finished(dict(one)) for one in data["profiles"]] if "profiles" in data else [_finished(data)]
    lacks = CHANGED.get(schema)
    remarks = [f"{path} has schema {schema}, not {SCHEMA}: {lacks}"] if lacks else []
    return FinishedRun(profiles, remarks)


def _finished(data: dict[str, Any]) -> Finished:
    shapes = data.pop("shapes", {})
    data.pop("directory", None)
    return Finished(shapes, TypeAdapter(Result).validate_python(data))
