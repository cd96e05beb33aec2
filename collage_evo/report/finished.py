"""Reader of a finished run's results, one for each profile."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collage_evo.codec import from_plain, to_plain
from collage_evo.errors import InputError
from collage_evo.files import reading, write_whole
from collage_evo.report.going_on import written_again
from collage_evo.report.result import RESULT, SCHEMA, Result
from collage_evo.report.summary import Finished


@dataclass(frozen=True)
class FinishedRun:
    """The results of a run, one for each profile of input shapes."""

    profiles: Sequence[Finished]


def read_finished(directory: Path) -> FinishedRun:
    """The ``result.json`` in ``directory``, of this version.

    Raises:
        InputError: there is none, or it is damaged or of another version; the message explains what to do.
    """
    path = directory / RESULT
    if not path.exists():
        raise InputError(f"{directory} holds no {RESULT}: give the directory of a run that ended")
    mend = written_again(directory)
    with reading(path, mend):
        data = json.loads(path.read_bytes())
        if (schema := data["schema"]) != SCHEMA:
            mend = "take the version that wrote it" if schema > SCHEMA else mend
            raise InputError(f"{path} has schema {schema}, this version reads {SCHEMA}: {mend}")
        profiles = [_finished(row, directory) for row in data.get("profiles", [data])]
    return FinishedRun(profiles)


def result_in(directory: Path) -> Result | None:
    """The result of a run of one profile; None where it has not ended, or its result cannot be read."""
    try:
        return read_finished(directory).profiles[0].result
    except InputError:
        return None


def write_finished(directory: Path, profiles: Sequence[Finished]) -> None:
    """Write the ``result.json`` of a run of several profiles: the content of each profile's, with its shapes and its
    directory."""
    rows = [
        {"shapes": one.shapes, "directory": one.directory.relative_to(directory).as_posix(), **to_plain(one.result)}
        for one in profiles
    ]
    write_whole(directory / RESULT, json.dumps({"schema": SCHEMA, "profiles": rows}, indent=1))


def _finished(row: Mapping[str, object], directory: Path) -> Finished:
    shapes = from_plain(row.get("shapes", {}), dict[str, list[int]])
    place = directory / from_plain(row.get("directory", ""), str)
    return Finished(shapes, from_plain(row, Result), place)
