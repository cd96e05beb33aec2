"""Runs the command line as a person does, and says what a refusal looks like."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Protocol

from tests.support.typed import not_none

Run = subprocess.CompletedProcess[str]

SERVER = """
import json, os, sys
from collage_evo import __main__
import collage_evo.run.plan, collage_evo.graph.normalise.normalise
for line in sys.stdin:
    arguments, folder, streams = json.loads(line)
    process = os.fork()
    if process == 0:
        os.chdir(folder)
        for number, path in enumerate(streams):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
        sys.argv = [__main__.__file__, *arguments]
        sys.orig_argv = [sys.executable, "-m", "collage_evo", *arguments]
        __main__.run()
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""
"""Has imported what a command does, which takes longer than most commands, and forks for each."""


@cache
def _server(environment: frozenset[tuple[str, str]]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SERVER]
    return subprocess.Popen(command, env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def collage(*args: object, cwd: Path, **environment: str) -> Run:
    """The command in the folder ``cwd``, with further variables of its environment."""
    own = {**os.environ, **environment}
    own.pop("PYTEST_CURRENT_TEST", None)
    server = _server(frozenset(own.items()))
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        request = ([str(argument) for argument in args], str(cwd), [os.devnull, str(out), str(err)])
        try:
            print(json.dumps(request), file=not_none(server.stdin), flush=True)
            code = int(not_none(server.stdout).readline())
        except BaseException:  # a test that takes too long: the answer would be the next one's
            server.kill()
            _server.cache_clear()
            raise
        return Run(args, code, out.read_text(), err.read_text())


def refused(done: Run, *words: str, code: int = 2) -> None:
    lines = done.stderr.strip().splitlines()
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert lines[-1].startswith("error: ")
    for word in words:
        assert word in lines[-1]


class Here(Protocol):
    def __call__(self, *args: object, cwd: Path) -> Run: ...
