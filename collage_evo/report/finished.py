"""Files of results: ``result.json`` of a run, of one profile or of several, and what to do if there is none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collage_evo.answer.so_far import read_so_far
from collage_evo.codec import from_plain, to_plain
from collage_evo.errors import InputError
from collage_evo.files import reading, write_json, write_whole
from collage_evo.report.places import command
from collage_evo.report.result import SCHEMA, Result
from collage_evo.runtime.manifest import BEST
from collage_evo.search.evolution import checkpoint

RESULT = "result.json"
RECORDS = ("work/normalised.json", "work/matches.json")
"""Records from which a search continues; trials of a sweep have none."""


@dataclass(frozen=True)
class Finished:
    """The result for one profile of input shapes, and its directory."""

    shapes: Mapping[str, Sequence[int]]
    result: Result
    directory: Path = Path()


def write_result(path: Path, result: Result) -> None:
    """Write ``result.json`` atomically."""
    write_json(path, Result, result, indent=1)


def goes_on(directory: Path) -> bool:
    """Whether ``resume`` and ``pick`` accept the run in ``directory``: it did not search yet, or has a record of it.

    One of several profiles goes on if all of them do.
    """
    places = (directory, *(directory / "profiles").glob("*"))
    searched = [place for place in places if checkpoint.exists(place)]
    return all(any((place / name).exists() for name in RECORDS) for place in searched)


def anew(directory: Path) -> str:
    """What to do if a run cannot be resumed."""
    return f"search again with another --out; {directory / BEST} stays as good as it was"


def unfinished(directory: Path) -> str:
    """Why there is no result in ``directory``, and what to do."""
    if read_so_far(directory / BEST) is None:
        return f"{directory} holds no {RESULT}: give the directory of a run that ended"
    text = f"{directory} stopped before its final comparison; export, inspect and load work now"
    return f"{text}; finish it with: {command('resume', directory)}"


def read_finished(directory: Path) -> list[Finished]:
    """The results of a run, one for each profile of input shapes, from its ``result.json``.

    Raises:
        InputError: there is none, or it is damaged or of another version; the message explains what to do.
    """
    path = directory / RESULT
    if not path.exists():
        raise InputError(unfinished(directory))
    mend = f"write it again with {command('resume', directory)}" if goes_on(directory) else anew(directory)
    with reading(path, mend):
        data = json.loads(path.read_bytes())
        if (schema := data["schema"]) != SCHEMA:
            mend = "take the version that wrote it" if schema > SCHEMA else mend
            raise InputError(f"{path} has schema {schema}, this version reads {SCHEMA}: {mend}")
        return [_finished(row, directory) for row in data.get("profiles", [data])]


def result_in(directory: Path) -> Result | None:
    """The result of a run of one profile; None where it has not ended, or its result cannot be read."""
    try:
        return read_finished(directory)[0].result
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
    if not place.resolve().is_relative_to(directory.resolve()):
        raise ValueError(f"it names {place}, outside of its directory")
    return Finished(shapes, from_plain(row, Result), place)
