"""Upgrade: an answer, its fall-back and the libraries in the environment of another Python, for ``compare --python``.

That Python's processes compile and run them, with the versions of libraries that it has.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from functools import partial
from importlib import metadata
from pathlib import Path

from collage_evo.answer.baselines import measure_fallbacks
from collage_evo.backends.probing import PROBED
from collage_evo.backends.registry import Entry, get_backend, survey
from collage_evo.codec import from_json
from collage_evo.commands.front_again import compile_points, contestants
from collage_evo.errors import UnavailableError
from collage_evo.modules import module_command, module_environment
from collage_evo.report.comparison import ARTIFACT, FALLBACK, Side
from collage_evo.run.context import RunContext
from collage_evo.run.recorded import RecordedRun
from collage_evo.runtime.artifact import read_artifact

START_S = 120.0
"""Seconds for a command that lists the backends there. Chosen: importing PyTorch takes ten on a busy machine."""


def other_versions(python: str) -> dict[str, tuple[str, str]]:
    """The backends of which the interpreter ``python`` has another version, with the version here and there, which is
    empty for one that is missing.

    Raises:
        UnavailableError: it is no Python, or it has not this package.
    """
    environment = module_environment() | {PROBED: "{}"}  # what was probed here is not so there
    ask = partial(subprocess.run, capture_output=True, text=True, env=environment, timeout=START_S, check=True)
    command = module_command("collage_evo", python)
    try:
        other = ask([*command, "--version"]).stdout.split()[-1]
        there = from_json(ask([*command, "backends", "--json"]).stdout, dict[str, Entry])
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = (getattr(error, "stderr", None) or str(error)).strip().rpartition("\n")[2]
        raise UnavailableError(
            f"{python} does not run this package ({why}): install collage-evo there, with the libraries to compare"
        ) from None
    if other != (ours := metadata.version("collage-evo")):
        raise UnavailableError(f"{python} has collage-evo {other}: install {ours} there, as here")
    versions = {one.name: (one.version, there[one.name].version if one.name in there else "") for one in survey()}
    return {name: (here, elsewhere) for name, (here, elsewhere) in versions.items() if here != elsewhere}


def compile_there(
    run: RunContext, recorded: RecordedRun, artifact: Path, elsewhere: RunContext
) -> tuple[list[Side], Mapping[str, Path]]:
    """The sides of the answer ``elsewhere`` and of its fall-back in both places, and the artifacts of those that
    compile.

    Raises:
        InputError: the records of the run's search are gone.
    """
    python = elsewhere.machine.setting.python
    answer = next(point for point in recorded.front if point.answer)
    compiled = {Side(ARTIFACT, python=python): compile_points(elsewhere, recorded, {ARTIFACT: answer})[ARTIFACT]}
    program = read_artifact(artifact).fallback
    libraries = [get_backend(program.pieces[0].backend)] if program else []
    for place in (run, elsewhere) if libraries else ():
        fallback = measure_fallbacks(libraries, place.work / "fallbacks", place.machine)[0]
        compiled[Side(FALLBACK, python=place.machine.setting.python)] = fallback.outcome.failure or fallback.artifact
    return contestants(compiled)
