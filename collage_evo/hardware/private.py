"""Private directories and files, which other users of this machine cannot access."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

from collage_evo.errors import InputError

SHARED = "COLLAGE_EVO_TMPDIR"
"""Environment variable for a process's ``TMPDIR``, for child processes that get their own."""


def shared_temporary() -> Path:
    """The temporary directory that all processes of a run share."""
    return Path(os.environ.get(SHARED) or tempfile.gettempdir())


def own_temporary() -> Path:
    """A private directory of this user in :func:`shared_temporary`.

    Raises:
        InputError: another user made it, or may read it.
    """
    return own_directory(shared_temporary() / f"collage_evo-{os.geteuid()}", "TMPDIR")


def machine_directory() -> Path:
    """The directory for shared state of all runs of one user on this machine, until it restarts.

    In ``XDG_RUNTIME_DIR``, if that is private to the user, else in the system's temporary directory. Only processes
    of this user can hold a lock in it: others cannot even open its files.

    Raises:
        InputError: another user made it, or may read it.
    """
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if runtime.is_absolute() and runtime.is_dir() and not _fault(runtime, readable=False):
        return own_directory(runtime / "collage_evo", "XDG_RUNTIME_DIR")
    return own_temporary()


def own_directory(path: Path, setting: str, readable: bool = False) -> Path:
    """The directory ``path``, made if missing, which others cannot write to, nor read unless it is ``readable``.

    ``setting`` names the option that determines the path.

    Raises:
        InputError: it cannot be made, is no directory, or is not safe; the message has the remedy.
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
    """The fault of a directory, and the remedy where there is one; empty if it is safe."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        return "it is a link or a file, not a directory: remove it"
    if status.st_uid != os.geteuid():
        return f"it belongs to another user (number {status.st_uid}): have it removed"
    if status.st_mode & (0o022 if readable else 0o077):
        does, mend = ("write into", "go-w") if readable else ("open", "go-rwx")
        return f"other users may {does} it: chmod -R {mend} {path} if nobody did, else remove it"
    return ""


def open_private(path: Path, flags: int = os.O_CREAT | os.O_RDWR) -> int:
    """A descriptor of the file ``path``, which no other user may open; follows no link and never blocks.

    Raises:
        OSError: there is none and ``flags`` do not create it, or the disk is full.
        InputError: something else than a file of this user has its name.
    """
    try:
        file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):  # a link, a directory, a socket
            raise
        raise InputError(f"{path} cannot be opened as a file ({error.strerror}): remove it") from None
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        os.close(file)
        raise InputError(f"{path} is no file of yours: remove it")
    return file
