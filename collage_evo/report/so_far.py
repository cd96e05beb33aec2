"""Answer so far in words: what a run knows of its answer before the final comparison."""

from __future__ import annotations

from pathlib import Path

from collage_evo.answer.baselines import read_baselines
from collage_evo.answer.so_far import SoFar, read_so_far
from collage_evo.codec import to_json
from collage_evo.report.places import command
from collage_evo.report.words import format_engine, format_ms, format_number, format_ratio
from collage_evo.runtime.manifest import BEST


def describe_so_far(so_far: SoFar) -> str:
    """One line on an answer: latency, ratio to a library, error, evidence."""
    compared = so_far.library if so_far.library_ms > 0 else ""
    ratio = f"{format_ratio(so_far.library_ms / so_far.latency_ms)} times as fast as {compared}" if compared else ""
    return f"{_figures(so_far.latency_ms, so_far.error, ratio)} ({so_far.evidence.value})"


def print_so_far(directory: Path, as_json: bool) -> bool:
    """Print the answer so far of the run in ``directory``; returns whether there is one that is not yet final."""
    artifact = directory / BEST
    so_far = read_so_far(artifact)
    if so_far is None:
        return False
    if as_json:
        print(to_json({"artifact": str(artifact), **so_far.info}), flush=True)
        return True
    print("The run stopped before its final comparison, which has not confirmed this answer:")
    print(f"  {describe_so_far(so_far)}")
    for baseline in read_baselines(directory / "baselines.json", directory / "baselines"):
        if (ms := baseline.outcome.latency_ms) is not None:
            figures = _figures(ms, baseline.outcome.error)
            print(f"  baseline {format_engine(baseline.backend, baseline.variant)}: {figures}")
    print(f"Artifact: {artifact} (load it with collage_evo.load)")
    print("Finish the run; write plain files of the answer so far:")
    print(f"    {command('resume', directory)}")
    print(f"    {command('export', directory, '--to DIR')}", flush=True)
    return True


def _figures(ms: float, error: float | None, ratio: str = "") -> str:
    parts = [f"{format_ms(ms)} ms", ratio, "" if error is None else f"error {format_number(error)}"]
    return ", ".join(filter(None, parts))
