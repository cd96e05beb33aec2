"""Directories and files that other users of this machine cannot touch: takes paths, gives safe ones."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

from collage_evo.errors import InputError

SHARED = "COLLAGE_EVO_TMPDIR"
"""Environment variable by which a process tells its ``TMPDIR`` to those that it starts with one of their own."""


def shared_temporary() -> Path:
    """The temporary directory that all processes of a run share."""
    return Path(os.environ.get(SHARED) or tempfile.gettempdir())


def own_temporary() -> Path:
    """A directory in :func:`shared_temporary` that is this person's alone.

    Raises:
        InputError: somebody else made it, or may look into it.
    """
    return own_directory(shared_temporary() / f"collage_evo-{os.geteuid()}", "TMPDIR")


def machine_directory() -> Path:
    """Where all runs of one person on this machine keep what they must agree on, until it starts anew.

    In ``XDG_RUNTIME_DIR``, if that is the person's alone, else in the system's temporary directory. Only processes
    of this person can hold a lock in it: others cannot even open its files.

    Raises:
        InputError: somebody else made it, or may look into it.
    """
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if runtime.is_absolute() and runtime.is_dir() and not _fault(runtime, readable=False):
        return own_directory(runtime / "collage_evo", "XDG_RUNTIME_DIR")
    return own_temporary()


def own_directory(path: Path, setting: str, readable: bool = False) -> Path:
    """The directory ``path``, made if need be, into which others cannot write, nor look unless it is ``readable``.

    ``setting`` is what says where it is.

    Raises:
        InputError: it cannot be made, is none, or is not safe; the message says how to mend that.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        fault = _fault(path, readable)
    except OSError as error:
        fault = f"it cannot be made ({error.strerror})"
    if fault:
        raise InputError(f"{path} cannot be used: {fault}; or set {setting} to another directory, of your own")
    return path


def _fault(path: Path, readable: bool) -> str:
    """What is wrong with a directory, and the mend where there is one; nothing if it is safe."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return "it is a link or a file, not a directory: remove it"
    if found.st_uid != os.geteuid():
        return f"it belongs to another user (number {found.st_uid}): have it removed"
    if found.st_mode & (0o022 if readable else 0o077):
        does, mend = ("write into", "go-w") if readable else ("open", "go-rwx")
        return f"other users may {does} it: chmod -R {mend} {path} if nobody did, else remove it"
    return ""


def open_private(path: Path, flags: int = os.O_CREAT | os.O_RDWR) -> int:
    """A descriptor of the file ``path``, which nobody else may open; it follows no link and waits for nobody.

    Raises:
        OSError: there is none and ``flags`` ask for no new one, or the disk is full.
        InputError: something else than a file of this person has its name.
    """
    try:
        file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):  # a link, a directory, a socket
            raise
        raise InputError(f"{path} cannot be opened as a file ({error.strerror}): remove it") from None
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        os.close(file)
        raise InputError(f"{path} is no file of yours: remove it")
    return file
