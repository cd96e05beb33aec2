"""Errors that a user can cause or fix. The message is one line and explains what to do."""

import contextlib
import errno
from collections.abc import Iterator

__all__ = [
    "AnswerStays",
    "CannotLoad",
    "CollageError",
    "ConfigError",
    "DamagedFile",
    "InputError",
    "NotSearchable",
    "OtherProcessor",
    "SystemRefuses",
    "UnavailableError",
]
_FULL, _FORBIDDEN, _IN_THE_WAY = (
    "make room on the disk of the run directory, of cache.dir and of TMPDIR",
    "choose a place where you may write (--out, output.dir, cache.dir, TMPDIR)",
    "something else has that name: move it away, or choose another",
)
_MENDS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), _FULL),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _FORBIDDEN),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR, errno.EISDIR), _IN_THE_WAY),
}
OF_THE_MACHINE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE))
"""Errors of the operating system that would affect the next attempt, too."""


def __dir__() -> list[str]:
    return __all__


class CollageError(Exception):
    """Base of all errors raised on purpose; ``exit_code`` is the command line's."""

    exit_code = 2


class InputError(CollageError):
    """A model, artifact or run directory that cannot be used as given."""


class SystemRefuses(InputError):
    """The operating system refuses what a process of this program needs; the message has the usual fix."""


class DamagedFile(InputError):
    """A file that cannot be read, or whose content is something else."""


class NotSearchable(InputError):
    """A model that only runs whole: it has no other placement."""


class AnswerStays(CollageError):
    """A run whose later stages failed. Its answer so far lies in ``best.collage``; the run has told what failed."""


class ConfigError(CollageError):
    """A configuration key or value that is not allowed."""


class UnavailableError(CollageError):
    """A requested backend or accelerator that is not on this machine."""

    exit_code = 3


def one_line(error: BaseException) -> str:
    """The first line of an error's text."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def named_line(error: BaseException) -> str:
    """The error's type, and the first line of its text."""
    return f"{type(error).__name__}: {one_line(error)}"


def printable(text: str) -> str:
    """``text`` with escapes for characters that a terminal would obey or not show: names in a file may contain
    these."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def system_message(error: OSError) -> str:
    """One line with the operation that the operating system refused, the file, and the usual fix if there is one."""
    what = " ".join((error.strerror or one_line(error)).split())
    where = f"{error.filename}: " if error.filename else ""
    mend = _MENDS.get(error.errno or 0)
    return f"{where}{what}; {mend}" if mend else f"{where}{what}"


@contextlib.contextmanager
def describing_system_errors() -> Iterator[None]:
    """Context that converts errors of the operating system to errors of one line.

    Raises:
        InputError: in place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise InputError(system_message(error)) from error


def shortened(error: Exception, most: int = 600) -> str:
    """All of an error's text in one line of about ``most`` characters, with the middle omitted if it is longer."""
    text = " ".join(str(error).split())
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 2 :]}"


class OtherProcessor(UserWarning):
    """An artifact runs on another processor than the one that it was measured on, or on less of it.

    With other instructions its outputs may be rounded differently, and another placement may be the fastest here.
    With a CPU quota of fewer processors than its threads, it is slower.
    """


class CannotLoad(InputError):
    """A library raised an exception (the cause of this one) over a compiled piece."""
