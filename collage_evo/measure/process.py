"""Main loop of a worker process: reads jobs as JSON lines and answers each with one. It may crash, hang or be
killed."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from typing import TextIO

from collage_evo.backends.registry import register_from
from collage_evo.codec import from_json, to_json
from collage_evo.devices.device import OutOfDeviceMemory
from collage_evo.errors import OF_THE_MACHINE, CannotLoad, CollageError, system_message
from collage_evo.measure.answers import Answer, Inherits, Message, Waits
from collage_evo.measure.exclusive import go_on
from collage_evo.measure.jobs import Begin, Job
from collage_evo.measure.worker import Worker
from collage_evo.placement.failure import Failure, Fault
from collage_evo.target.private import machine_directory


def exit_with_parent(parent: int, scratch: str = "", interval_s: float = 1.0) -> None:
    """End this process soon after its parent has ended for whatever reason.

    Args:
        parent: the parent's process id: it may have ended before this process could read it.
        scratch: a directory to delete with this process, if any.
        interval_s: the polling interval.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(interval_s)
        go_on(machine_directory())
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def serve(jobs: TextIO, answers: TextIO) -> None:
    """Answer the jobs of one connection; its first line contains the setting and the cores."""
    begin = from_json(jobs.readline(), Begin)
    if begin.cores:
        os.sched_setaffinity(0, begin.cores)
    register_from(begin.setting.registered)

    def answer(message: Message) -> None:
        answers.write(to_json(message, Message) + "\n")
        answers.flush()

    worker = Worker(begin.setting, begin.cores, lambda: answer(Waits()), lambda key: answer(Inherits(key)))
    answer(Waits())  # the timeout of the job starts here: on a busy machine importing the modules takes seconds
    for line in jobs:
        answer(_answer(worker, line))


def _answer(worker: Worker, line: str) -> Answer:
    try:
        return worker.do(from_json(line, Job))
    except CannotLoad as error:
        return _raised(error.__cause__ or error)
    except OutOfDeviceMemory as error:
        return Failure(Fault.MEMORY, str(error))
    except CollageError as error:
        return Failure(Fault.REFUSED, str(error))
    except OSError as error:
        if error.errno in OF_THE_MACHINE:
            return Failure(Fault.SYSTEM, system_message(error))
        return _raised(error)
    except Exception as error:  # a backend may raise anything; the search goes on without this candidate
        return _raised(error)


def _raised(error: BaseException) -> Failure:
    detail = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    # Libraries that allocate memory of a device raise errors of their own, which share these words.
    memory = isinstance(error, MemoryError) or "out of memory" in detail.lower()
    return Failure(Fault.MEMORY if memory else Fault.RAISED, detail)


if __name__ == "__main__":
    parent, scratch = int(sys.argv[1]), sys.argv[2]
    exit_with_parent(parent, scratch)
    # Native libraries print to standard output: answers get a descriptor of their own.
    private = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        serve(sys.stdin, private)
    finally:  # the parent has gone, which this thread may notice before the other one
        shutil.rmtree(scratch, ignore_errors=True)
