"""Answer so far in words: what a run knows of its answer before the final comparison."""

from __future__ import annotations

from pathlib import Path

from collage_evo.answer.baselines import read_baselines
from collage_evo.answer.so_far import SO_FAR, SoFar, read_profiles_so_far, read_so_far
from collage_evo.codec import to_json
from collage_evo.report.places import command
from collage_evo.report.words import (
    capitalised,
    format_engine,
    format_ms,
    format_number,
    format_ratio,
    format_shapes,
)
from collage_evo.runtime.artifact import read_artifact
from collage_evo.runtime.manifest import BEST


def describe_so_far(so_far: SoFar) -> str:
    """One line on an answer: latency, ratio to a library, error, evidence."""
    compared = so_far.library if so_far.library_ms > 0 else ""
    ratio = f"{format_ratio(so_far.library_ms / so_far.latency_ms)} times as fast as {compared}" if compared else ""
    return f"{_figures(so_far.latency_ms, so_far.error, ratio)} ({so_far.evidence.value})"


def describe_answers(artifact: Path) -> list[str]:
    """The same for each profile of ``artifact``, with its shapes if the run has several."""
    known, profiles = read_profiles_so_far(artifact), read_artifact(artifact).profiles
    if len(profiles) == 1 and not (artifact.parent / "profiles").is_dir():
        return [describe_so_far(so_far) for so_far in known if so_far is not None]
    shapes = [format_shapes(dict(zip(p.program.inputs, p.program.shapes, strict=True))) for p in profiles]
    answers = ["compared" if so_far is None else describe_so_far(so_far) for so_far in known]
    return [f"{shape}: {answer}" for shape, answer in zip(shapes, answers, strict=True)]


def print_so_far(directory: Path, as_json: bool, why: str = "the run stopped before its final comparison") -> bool:
    """Print the answer so far of the run in ``directory``, and ``why`` it is no more; returns whether there is one
    that is not yet final."""
    artifact = directory / BEST
    so_far = read_so_far(artifact)
    if so_far is None:
        return False
    if as_json:
        profiles = [one and one.info[SO_FAR] for one in read_profiles_so_far(artifact)]
        several = {"profiles": profiles} if len(profiles) > 1 else so_far.info
        print(to_json({"artifact": str(artifact), **several}), flush=True)
        return True
    answers = describe_answers(artifact)
    which = "this answer" if len(answers) == 1 else "these answers"
    print(f"{capitalised(why)}, which has not confirmed {which}:")
    for answer in answers:
        print(f"  {answer}")
    for baseline in read_baselines(directory / "baselines.json", directory / "baselines"):
        if (ms := baseline.outcome.latency_ms) is not None:
            figures = _figures(ms, baseline.outcome.error)
            print(f"  baseline {format_engine(baseline.backend, baseline.variant)}: {figures}")
    print(f"Artifact: {artifact} (load it with collage_evo.load)")
    print("Finish the run; write plain files of the answer so far:")
    print(f"    {command('resume', directory)}")
    print(f"    {command('export', directory, '--to FOLDER')}", flush=True)
    return True


def _figures(ms: float, error: float | None, ratio: str = "") -> str:
    parts = [f"{format_ms(ms)} ms", ratio, "" if error is None else f"error {format_number(error)}"]
    return ", ".join(filter(None, parts))
