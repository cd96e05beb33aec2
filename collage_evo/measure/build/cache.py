"""Cache of compiled pieces on disk, by key, with verification of their files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from collage_evo.errors import DamagedFile
from collage_evo.files import reading

SLACK = 1 / 16
"""Share of the cache's bound that a process adds before it walks the whole cache again, which takes long."""
FILES, RECORD = "files", "piece.json"
"""Content of a piece's directory: the files that its backend wrote, and a record of the run and the digests."""


@dataclass
class PieceCache:
    """Directory of compiled pieces that runs share, bounded in size; it evicts the least recently used.

    A piece of another run is verified before its first use, and discarded if its files changed. That finds damage;
    anyone who may write into the directory can run code, so it has to belong to the user exclusively
    (:func:`collage_evo.target.private.own_directory`).

    Attributes:
        run: the run whose pieces are not verified again; empty for none.
        on_inherited: called with the key of each returned piece that another run built.
    """

    directory: Path
    max_bytes: int
    run: str = ""
    on_inherited: Callable[[str], None] = field(default=lambda key: None, compare=False, repr=False)
    _read: set[str] = field(default_factory=set, compare=False, repr=False)
    """Keys of pieces that this process has verified."""
    _added: float = field(default=math.inf, compare=False, repr=False)
    """Bytes added since this process last walked the whole cache."""

    def get(self, key: str) -> Path | None:
        """The directory of the piece's files, which becomes the most recently used; None if there is no such
        piece."""
        path = self.directory / key
        try:
            os.utime(path)
        except FileNotFoundError:
            return None
        try:
            built_here = self._require_sound(path)
        except DamagedFile:
            self.discard(key)
            return None
        if not built_here:
            self._read.add(key)
            self.on_inherited(key)
        return path / FILES

    def _require_sound(self, path: Path) -> bool:
        """Compare a piece's files with its record; returns whether this run built it.

        Raises:
            DamagedFile: the files changed.
        """
        with reading(path / RECORD, "build the piece again"):
            record = json.loads((path / RECORD).read_bytes())
            built_here = bool(self.run) and record["run"] == self.run
            files = _describe(path / FILES, built_here or path.name in self._read)
            if files.keys() != record["files"].keys():
                raise ValueError("there are other files")
            for name, (size, digest) in files.items():
                if size != record["files"][name]["bytes"] or digest not in ("", record["files"][name]["sha256"]):
                    raise ValueError(f"{name} was changed")
        return built_here

    def put(self, key: str, built: Path) -> Path:
        """Move ``built``, a :meth:`workdir`, into the cache; if another process was first, its piece stays."""
        path = self.directory / key
        described = _describe(built)
        files = {name: {"bytes": size, "sha256": digest} for name, (size, digest) in described.items()}
        # A record for each piece and not one database, because the machines of a cluster write here over NFS.
        (built.parent / RECORD).write_text(json.dumps({"run": self.run, "files": files}))
        try:
            os.rename(built.parent, path)
        except OSError:
            self.abandon(built)
        os.utime(path)
        self._added += sum(size for size, _ in described.values())
        # A walk takes long: only after a sixteenth of the bound was added.
        if self._added > SLACK * self.max_bytes:
            self._trim(keep=key)
            self._added = 0
        return path / FILES

    def workdir(self) -> Path:
        """A fresh directory on the same file system to build in, for :meth:`put` or :meth:`abandon`."""
        self.directory.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="building-", dir=self.directory)) / FILES
        work.mkdir()
        return work

    def abandon(self, built: Path) -> None:
        """Delete a :meth:`workdir`."""
        shutil.rmtree(built.parent, ignore_errors=True)

    def discard(self, key: str) -> None:
        """Remove a piece, so that it is built again."""
        work = Path(tempfile.mkdtemp(prefix="discarded-", dir=self.directory))
        with contextlib.suppress(OSError):  # another process may have removed it
            os.rename(self.directory / key, work / key)
        shutil.rmtree(work, ignore_errors=True)
        self._read.discard(key)

    def _trim(self, keep: str) -> None:
        """Make room for what this process adds until its next walk."""
        entries = []
        for path in self.directory.iterdir():
            try:
                size = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
                entries.append((path.stat().st_mtime, size, path))
            except FileNotFoundError:
                continue
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= (1 - SLACK) * self.max_bytes:
                break
            if path.name != keep:
                shutil.rmtree(path, ignore_errors=True)
                total -= size


def _describe(directory: Path, sizes_only: bool = False) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 (empty if not requested) of each file, by its name."""
    files: dict[str, tuple[int, str]] = {}
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        digest = ""
        if not sizes_only:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        files[path.relative_to(directory).as_posix()] = (path.stat().st_size, digest)
    return files
