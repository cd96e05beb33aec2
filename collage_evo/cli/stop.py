"""Ends of a command before its run has ended: Ctrl-C and SIGTERM, with the command that continues it, time that is
over, and stages that fail after the first answer."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from collage_evo.errors import AnswerStays, CollageError
from collage_evo.report.places import command
from collage_evo.runtime.manifest import BEST

INTERRUPTED = 130
"""Exit code after Ctrl-C."""
TERMINATED = 128 + signal.SIGTERM
"""Exit code after SIGTERM, which ``docker stop`` and systemd send."""


class Terminated(KeyboardInterrupt):
    """Raised in the main thread by SIGTERM."""


def _terminate(number: int, frame: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would interrupt the line about the first
    raise Terminated


@contextlib.contextmanager
def resumable(directory: Path, as_json: bool = False) -> Iterator[None]:
    """Context of work on the run in ``directory``: Ctrl-C and SIGTERM print the command that continues it, and an
    answer that stays is the run's."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except AnswerStays:
        _end_with_answer(directory, as_json, "a stage failed before the end of the final comparison")
    except KeyboardInterrupt as stopped:
        from collage_evo.run.directory import CONFIG

        notes = getattr(stopped, "__notes__", [])  # of a run that gave way to the one that it was to replace
        continues = (directory / CONFIG).is_file() and not notes
        code = TERMINATED if isinstance(stopped, Terminated) else INTERRUPTED
        leave(directory if continues else None, "; ".join(["stopped", *notes]), code)
    finally:
        signal.signal(signal.SIGTERM, before)


def _what_is_there(directory: Path) -> Iterator[str]:
    """The answer so far, and the command that continues the run."""
    from collage_evo.answer.so_far import read_so_far
    from collage_evo.report.so_far import describe_answers

    with contextlib.suppress(CollageError):  # a damaged answer is reported by the command that continues
        if read_so_far(directory / BEST) is not None:
            answer = f"the best so far is in {directory / BEST}: {'; '.join(describe_answers(directory / BEST))}"
            yield f"{answer}, not confirmed by the final comparison"
    yield f"continue it with: {command('resume', directory)}"


def end_in_time(directory: Path, as_json: bool = False) -> NoReturn:
    """Exit with the best answer so far, because the run's time is over; without one, as an error."""
    if (directory / BEST).exists():
        _end_with_answer(directory, as_json, "time is over before the final comparison")
    from collage_evo.run.directory import give_back

    left = None if give_back(directory) else directory
    leave(left, "error: the time was over before a first answer; give more", 2)


def _end_with_answer(directory: Path, as_json: bool, why: str) -> NoReturn:
    from collage_evo.report.so_far import print_so_far

    if print_so_far(directory, as_json, why) and not as_json:
        leave(None, "", 0)
    leave(directory, why, 0)


def leave(directory: Path | None = None, why: str = "stopped", code: int = INTERRUPTED) -> NoReturn:
    """Exit at once: worker pools must not delay a user who pressed Ctrl-C, or whose time is over."""
    with contextlib.suppress(OSError):  # the reader of the pipe may have been stopped too
        if why:
            print("; ".join([why, *(_what_is_there(directory) if directory else ())]), file=sys.stderr, flush=True)
        sys.stdout.flush()
    if "collage_evo.graph.ir.weights" in sys.modules:  # else there are none
        from collage_evo.graph.ir.weights import remove_weight_files

        remove_weight_files()
    os._exit(code)
