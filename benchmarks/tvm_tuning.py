"""Tuning TVM: runs a search twice with one budget and one cache; what the first tunes, the second takes as it is.

    python benchmarks/tvm_tuning.py [MODEL] [TRIALS] [OUT.json]

Prints, for each structure that trials went to, a piece's ms by the fixed rule, tuned, and by the best other backend,
and for both runs the seconds of tuning. The file keeps both results whole, with the final comparison's rounds, in
which the placement and every backend alone took turns, each in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MODEL, TRIALS, SEARCH_S = "builtin:bert?layers=1&length=128", 192, 20


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else MODEL
    trials = int(sys.argv[2]) if len(sys.argv) > 2 else TRIALS
    out = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    with tempfile.TemporaryDirectory() as folder:
        results = [_run(model, trials, Path(folder), name) for name in ("first", "second")]
    for name, result in zip(("first", "second"), results, strict=True):
        (tuning,) = result["tuning"]
        print(f"{name} run: {tuning['new_trials']} trials, {tuning['seconds']:.0f} s of tuning", end="; ")
        speedup = result["candidate_speedup"]
        ends = f"[{speedup['low']:.3f}, {speedup['high']:.3f}]"
        print(f"best placement over {result['best_single']}: {speedup['estimate']:.3f} {ends}")
    print(f"{'structure':48} {'times':>5} {'rule':>8} {'tuned':>8} {'other':>8} {'bound':>8}")
    for row in results[0]["tuning"][0]["structures"]:
        name = "+".join(row["nodes"])
        times = (row[key] for key in ("untuned_ms", "tuned_ms", "best_other_ms", "bound_ms"))
        print(f"{name[:48]:48} {row['count']:5}", *(f"{'-' if ms is None else f'{ms:.4f}':>8}" for ms in times))
    if out is not None:
        out.write_text(json.dumps(results, indent=1))


def _run(model: str, trials: int, folder: Path, name: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "collage_evo", "run", model, "-s", f"output.dir={folder / name}"]
    for setting in (f"cache.dir={folder / 'cache'}", f"backends.tvm.trials={trials}", f"search.seconds={SEARCH_S}"):
        command += ["-s", setting]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    result: dict[str, Any] = json.loads((folder / name / "result.json").read_text())
    return result


if __name__ == "__main__":
    main()
