"""Checkpoints of search states: written atomically after each generation, with the one before, both checksummed."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from collage_evo.codec import from_plain, to_plain
from collage_evo.errors import DamagedFile
from collage_evo.files import reading, write_whole
from collage_evo.search.evolution.state import SearchState

SCHEMA = 5
LATEST = "checkpoint.json"
PREVIOUS = "checkpoint.prev.json"
_MEND = {LATEST: f"going on from {PREVIOUS}, one generation earlier", PREVIOUS: "start the run again"}
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fingerprint:
    """Identity of a search. A search can only continue if all of it is equal.

    Attributes:
        model: hash of the model file.
        target: threads, accelerator, processor, their digest, and number of cores, as text.
        backends: name and version of each.
        matches: :attr:`SearchSpace.digest`, so that genomes have the same meaning.
        objective: meaning of the milliseconds: one run's latency, or the full machine's time for a run (throughput).
        policy: its values that are not the default ones, as text.
    """

    model: str
    target: str
    backends: tuple[str, ...]
    matches: str
    objective: str = "latency"
    policy: str = ""

    def difference(self, other: Fingerprint) -> str:
        """What ``other`` changes, in words; empty when nothing."""
        both = ((one.name, getattr(self, one.name), getattr(other, one.name)) for one in fields(self))
        changed = (f"{name} was {_words(old)} and is now {_words(new)}" for name, old, new in both if old != new)
        return "; ".join(changed)


@dataclass(frozen=True)
class _Body:
    """Content of a checkpoint besides its schema and its checksum."""

    fingerprint: Fingerprint
    state: SearchState


def _words(value: Any) -> str:
    return ", ".join(value) or "none" if isinstance(value, tuple) else str(value) or "the default"


def save(folder: Path, state: SearchState, fingerprint: Fingerprint) -> None:
    """Write ``state`` to ``folder``. A kill at any moment leaves at least one good checkpoint."""
    text = _dump(to_plain(_Body(fingerprint, state)))
    latest, previous = folder / LATEST, folder / PREVIOUS
    content = f'{{"schema": {SCHEMA}, "sha256": "{_digest(text)}", "body": {text}}}\n'
    # A damaged one must not replace the good one before it.
    write_whole(latest, content, keep=previous if _is_good(latest) else None)


def load(folder: Path, fingerprint: Fingerprint) -> SearchState:
    """The latest good state in ``folder``; a warning is logged when that is the one before the latest.

    Raises:
        DamagedFile: there is none, or it belongs to another model, target or set of backends.
    """
    latest = _latest(folder)
    _require_same(folder, latest.fingerprint, fingerprint)
    return latest.state


def require_target(folder: Path, target: str) -> None:
    """Require that the search in ``folder`` is for ``target``. Raises as :func:`load`."""
    had = _latest(folder).fingerprint
    _require_same(folder, had, replace(had, target=target))


def _require_same(folder: Path, had: Fingerprint, has: Fingerprint) -> None:
    if changed := had.difference(has):
        raise DamagedFile(f"cannot resume {folder}: {changed}; start a new run, or undo the change")


def recorded(folder: Path, matches: str) -> SearchState:
    """The latest good state in ``folder``, of any model and target, for callers that only read measurements.

    Raises:
        DamagedFile: there is none, or it is of another search space than the one with the digest ``matches``.
    """
    latest = _latest(folder)
    if latest.fingerprint.matches != matches:
        raise DamagedFile(f"the checkpoint in {folder} is not of the costs that lie beside it: run the search again")
    return latest.state


def _latest(folder: Path) -> _Body:
    """The latest good state, and its fingerprint; logs a warning if that is the one before the latest."""
    problems = []
    for path in (folder / LATEST, folder / PREVIOUS):
        try:
            body = _read(path)
        except DamagedFile as error:
            problems.append(str(error))
            continue
        if problems:
            _log.warning("%s", problems[0])
        return body
    raise DamagedFile(f"no usable checkpoint: {'; '.join(problems)}")


def remove(folder: Path) -> None:
    """Remove the checkpoint in ``folder``, if there is one."""
    for name in (PREVIOUS, LATEST):  # what is left by a kill in between is the latest
        (folder / name).unlink(missing_ok=True)


def exists(folder: Path) -> bool:
    """Whether ``folder`` contains a checkpoint, good or not."""
    return (folder / LATEST).exists() or (folder / PREVIOUS).exists()


def _read(path: Path) -> _Body:
    with reading(path, _MEND[path.name]):
        data = json.loads(path.read_bytes())
        if data["schema"] != SCHEMA:
            raise ValueError(f"written in format {data['schema']}, this version reads {SCHEMA}")
        body = data["body"]
        if _digest(_dump(body)) != data["sha256"]:
            raise ValueError("checksum does not match")
        return from_plain(body, _Body)


def _is_good(path: Path) -> bool:
    try:
        _read(path)
    except DamagedFile:
        return False
    return True


def _dump(body: dict[str, Any]) -> str:
    return json.dumps(body, separators=(",", ":"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
