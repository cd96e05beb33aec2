"""Cache of compiled pieces on disk, by key, with verification of their files."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from collage_evo.digests import digest_of
from collage_evo.errors import DamagedFile
from collage_evo.files import files_in, reading

SLACK = 1 / 16
"""Share of the cache's bound that a process adds before it walks the whole cache again, which takes long."""
SAME_BYTES = 2**20
"""Bytes of a file that a piece shares with another that has the same content. Smaller ones are not looked for: the
records of all pieces are read for it. Chosen."""
BUILDING, LOCK = "building-", "lock"
"""Prefix of a directory where a piece is being built, and in it a file that the building process has locked."""
FILES, RECORD = "files", "piece.json"
"""Content of a piece's directory: the files that its backend wrote, and a record of the run and of these files."""


@dataclass
class PieceCache:
    """Directory of compiled pieces that runs share, bounded in size; it evicts the least recently used.

    A piece is verified before each use, and discarded if its files changed: artifacts have links to them. That finds
    damage; anyone who may write into the directory can run code, so it has to belong to the user exclusively
    (:func:`collage_evo.hardware.private.own_directory`).

    Attributes:
        run: the run that builds the new pieces; empty for none.
        on_inherited: called with the key of each returned piece that another run built.
    """

    directory: Path
    max_bytes: int
    run: str = ""
    on_inherited: Callable[[str], None] = field(default=lambda key: None, compare=False, repr=False)
    _added: float = field(default=math.inf, compare=False, repr=False)
    """Bytes added since this process last walked the whole cache."""
    _locks: dict[Path, IO[bytes]] = field(default_factory=dict, compare=False, repr=False)

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
            self.on_inherited(key)
        return path / FILES

    def _require_sound(self, path: Path) -> bool:
        """Compare a piece's files with its record; returns whether this run built it.

        Raises:
            DamagedFile: the files changed.
        """
        with reading(path / RECORD, "build the piece again"):
            record = json.loads((path / RECORD).read_bytes())
            files = files_in(path / FILES)
            if files.keys() != record["files"].keys():
                raise ValueError("there are other files")
            for name, file in files.items():
                was = record["files"][name]
                if file.stat().st_size != was["bytes"] or digest_of(file) != was["sha256"]:
                    raise ValueError(f"{name} was changed")
            return bool(self.run) and record["run"] == self.run

    def put(self, key: str, built: Path) -> Path:
        """Move ``built``, a :meth:`workdir`, into the cache; if another process was first, its piece stays."""
        path = self.directory / key
        files, added, present = dict[str, dict[str, Any]](), 0, dict[tuple[int, str], Path]()
        for name, file in files_in(built).items():
            digest, size = digest_of(file), file.stat().st_size
            if size >= SAME_BYTES:
                present = present or self._present()
            if size < SAME_BYTES or not _shares(file, digest, present.get((size, digest))):
                added += size
            files[name] = {"bytes": size, "sha256": digest}
        # A record for each piece and not one database, because the machines of a cluster write here over NFS.
        (built.parent / RECORD).write_text(json.dumps({"run": self.run, "files": files}))
        (built.parent / LOCK).unlink()
        try:
            os.rename(built.parent, path)
        except OSError:
            shutil.rmtree(built.parent, ignore_errors=True)
        self._locks.pop(built.parent).close()
        os.utime(path)
        self._added += added
        # A walk takes long: only after a sixteenth of the bound was added.
        if self._added > SLACK * self.max_bytes:
            self._trim(keep=key)
            self._added = 0
        return path / FILES

    def _present(self) -> dict[tuple[int, str], Path]:
        """The large files of all pieces, by the size and digest of their records."""
        present = dict[tuple[int, str], Path]()
        for record in self.directory.glob(f"*/{RECORD}"):
            with contextlib.suppress(Exception):  # a piece that is damaged, or being removed
                for name, was in json.loads(record.read_bytes())["files"].items():
                    if was["bytes"] >= SAME_BYTES:
                        present[was["bytes"], was["sha256"]] = record.parent / FILES / name
        return present

    def workdir(self) -> Path:
        """A fresh directory on the same file system to build in, for :meth:`put` or :meth:`abandon`."""
        self.directory.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix="made-", dir=self.directory))
        lock = (made / LOCK).open("wb")
        with contextlib.suppress(OSError):  # a file system without locks: it stays if this process is killed
            fcntl.flock(lock, fcntl.LOCK_EX)
        work = made.rename(made.with_name(made.name.replace("made-", BUILDING, 1)))
        self._locks[work] = lock
        (work / FILES).mkdir()
        return work / FILES

    def abandon(self, built: Path) -> None:
        """Delete a :meth:`workdir`."""
        shutil.rmtree(built.parent, ignore_errors=True)
        self._locks.pop(built.parent).close()

    def remove_abandoned(self) -> None:
        """Remove the :meth:`workdir` of each process that was killed."""
        for work in self.directory.glob(f"{BUILDING}*"):
            with contextlib.suppress(OSError), (work / LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(work, ignore_errors=True)

    def discard(self, key: str) -> None:
        """Remove a piece, so that it is built again."""
        work = Path(tempfile.mkdtemp(prefix="discarded-", dir=self.directory))
        with contextlib.suppress(OSError):  # another process may have removed it
            os.rename(self.directory / key, work / key)
        shutil.rmtree(work, ignore_errors=True)

    def _trim(self, keep: str) -> None:
        """Make room for what this process adds until its next walk."""
        self.remove_abandoned()
        entries, pieces_with = [], Counter[tuple[int, int]]()  # by inode and size: pieces may share a file
        for path in self.directory.iterdir():
            try:
                inodes = {(s.st_ino, s.st_size) for s in (f.stat() for f in path.rglob("*") if f.is_file())}
                entries.append((path.stat().st_mtime, path, inodes))
                pieces_with.update(inodes)
            except FileNotFoundError:
                continue
        total = sum(size for _, size in pieces_with)
        for _, path, inodes in sorted(entries):
            if total <= (1 - SLACK) * self.max_bytes:
                break
            if path.name != keep:
                shutil.rmtree(path, ignore_errors=True)
                pieces_with.subtract(inodes)
                total -= sum(size for inode, size in inodes if not pieces_with[inode, size])


def _shares(file: Path, digest: str, other: Path | None) -> bool:
    """Whether ``file`` is now a link to ``other``, if that has its digest."""
    link = file.with_name(f"{file.name}.link")
    with contextlib.suppress(OSError):
        if other is not None and digest_of(other) == digest:
            if not file.samefile(other):  # then replacing does nothing (POSIX), and the link would stay
                os.link(other, link)
                os.replace(link, file)
            return True
    return False
