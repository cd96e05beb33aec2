"""Plain files: exports the answer of a run to a folder that needs only its libraries."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from collage_evo.errors import InputError
from collage_evo.export.folder import Answered, write_folder
from collage_evo.export.sources import Sources, homes_of, stored_samples
from collage_evo.report.finished import result_in
from collage_evo.report.words import title
from collage_evo.runtime.artifact import Artifact, Profile, read_artifact
from collage_evo.runtime.manifest import BEST
from collage_evo.runtime.program import Program
from collage_evo.runtime.runner import needs_proof

MODEL = "model.onnx"
OPEN = "open"
"""The folder for inputs of any other shapes."""
_RUNS, _SECONDS = 5, 900
_README = "README.md"


@dataclass(frozen=True)
class Exported:
    """Result of an export: the folder, the purpose of each folder in it (``.`` is itself), and the output of its
    check; ``one_file``: that file and its library, if it is all that the answer needs."""

    directory: str
    folders: Mapping[str, str]
    checks: Mapping[str, str]
    one_file: str = ""


def export_plain(run: Path, directory: Path) -> Exported:
    """Write the answer of ``run`` into ``directory``; a folder for each profile of shapes, if there are several.

    Each folder's own ``check.py`` has run, in a process of its own, before anything appears in ``directory``.

    Args:
        run: a run directory with an answer, or one of another budget in its ``picked``.
        directory: must not exist yet.

    Raises:
        InputError: there is no answer, a piece has no plain form, or the files' outputs differ from the answer's.
    """
    artifact = read_artifact(run / BEST)
    if directory.exists():
        raise InputError(f"{directory} exists already: choose another --to, or remove it")
    if any(needs_proof(profile.program) for profile in artifact.profiles):
        raise InputError(
            f"a library of the answer refuses no shapes, so a session also runs the first request of each shape in "
            f"{artifact.fallback.pieces[0].backend if artifact.fallback else 'another'}, which plain files do not: "
            "serve the artifact, or run again without that library (backends.use)"
        )
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}-") as place:
        work = Path(place) / directory.name
        folders, checks, one_file = {}, {}, ""
        for name, profile, runs in _parts(run, artifact):
            folder = work / name
            folder.mkdir(parents=True, exist_ok=True)
            write_folder(_answered(artifact, profile, runs, name == OPEN), folder)
            folders[name], checks[name] = _format_shapes(profile.program), _check(folder)
        if "." not in folders:
            (work / _README).write_text(_overview(folders))
        elif len(artifact.program.pieces) == 1 and list(work.glob("*.onnx*")) == [work / MODEL]:
            one_file = f"{MODEL}, for {title(artifact.program.pieces[0].backend)} in any language"
        work.replace(directory)
    return Exported(str(directory), folders, checks, one_file)


def _parts(run: Path, artifact: Artifact) -> list[tuple[str, Profile, Sequence[Path]]]:
    """Name of each folder, its content, and the directories of the runs that have its inputs."""
    runs, fallback = homes_of(run, artifact), artifact.fallback
    if len(artifact.profiles) == 1 and fallback is None:
        return [(".", artifact.profiles[0], runs)]
    names = [_folder_name(profile.program, k) for k, profile in enumerate(artifact.profiles)]
    folders: list[tuple[str, Profile, Sequence[Path]]] = [
        (name if names.count(name) == 1 else f"profile{k}", profile, [runs[k]])
        for k, (name, profile) in enumerate(zip(names, artifact.profiles, strict=True))
    ]
    return [*folders, *([(OPEN, Profile(fallback, {"fallback": True}), runs)] if fallback else [])]


def _answered(artifact: Artifact, profile: Profile, runs: Sequence[Path], is_open: bool) -> Answered:
    program, target = profile.program, replace(artifact.target, cores=())
    works = [directory / "work" for directory in runs]
    if gone := [work for work in works if not work.is_dir()]:
        raise InputError(f"the export needs {gone[0]}, which is missing: run the search again")
    sources = Sources(profile, target, works[0], "dynamic.onnx" if is_open else "original.onnx")
    samples = stored_samples(program, target, artifact.signature, works)
    result = None if is_open else result_in(runs[0])
    latency = result.best.median_ms if result else None
    return Answered(program, target, artifact.signature, samples, sources.model, latency)


def _check(folder: Path) -> str:
    """Output of the folder's own check."""
    command = [sys.executable, str(folder / "check.py"), "--runs", str(_RUNS)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise InputError(f"the plain files ran for more than {_SECONDS} s, nothing is written") from None
    lines = (done.stdout + done.stderr).strip().splitlines() or ["it said nothing"]
    if done.returncode:
        raise InputError(f"the plain files do not run as the answer does, nothing is written: {lines[-1]}")
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    return lines[-1]


def _folder_name(program: Program, index: int) -> str:
    name = "_".join("x".join(map(str, program.tensors[name].shape)) or "1" for name in program.inputs)
    return name if len(name) < 80 and "-" not in name else f"profile{index}"


def _format_shapes(program: Program) -> str:
    text = (f"{name} {json.dumps([*program.tensors[name].shape]).replace('-1', '?')}" for name in program.inputs)
    return ", ".join(text)


def _overview(folders: Mapping[str, str]) -> str:
    rows = "".join(f"| [`{name}/`]({name}/{_README}) | {shapes} |\n" for name, shapes in folders.items())
    text = "A folder for each profile of input shapes: choose by the shapes that come in. Each stands for itself."
    others = " `open` takes any others." if OPEN in folders else ""
    return f"# The answer as plain files\n\n{text}{others}\n\n| folder | inputs |\n|---|---|\n{rows}"
