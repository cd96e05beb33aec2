"""Whether a run can be resumed, so that no message suggests a command that then refuses; and what to do instead."""

from __future__ import annotations

from pathlib import Path

from collage_evo.report.places import command
from collage_evo.runtime.manifest import BEST
from collage_evo.search.evolution import checkpoint

RECORDS = ("work/normalised.json", "work/matches.json")
"""Record from which a search continues; trials of a sweep have none."""


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


def written_again(directory: Path) -> str:
    """What to do if the result of the run in ``directory`` cannot be read."""
    return f"write it again with {command('resume', directory)}" if goes_on(directory) else anew(directory)
