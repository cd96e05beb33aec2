"""What the runtime costs: artifacts of a single backend against that backend's own API.

    python benchmarks/single_backend.py single.json [--threads 1 2] [--models ...] [--backends ...] [--rounds 9]

Both sides take the caller's arrays and give fresh ones, each in a process of its own, taking turns. ONNX Runtime and
OpenVINO open the model file itself; ncnn and TVM the files that the backend compiled. The ratio is the runtime's
time over the API's, paired by round, with a 95 % interval.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path

from turns import faults_per_run, median_ms, ratio, take_turns

from collage_evo.config import parse_config
from collage_evo.report.progress import LineReporter
from collage_evo.run.context import RunContext
from collage_evo.run.evaluate import open_records
from collage_evo.run.stages.baselines import Baselines

MODELS = ("builtin:resnet50", "builtin:mobilenet_v2", "builtin:squeezenet")
BACKENDS = ("onnxruntime", "openvino", "ncnn", "tvm")


def compare(source: str, threads: int, names: list[str], rounds: int, seconds: float) -> list[dict[str, object]]:
    """One row a backend: latencies in ms, the ratio, page faults a run."""
    given = {"model": {"source": source}, "target": {"threads": threads}, "backends": {"use": names}}
    config = parse_config(given, (), "benchmark")
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as work, open_records(config, Path(work), LineReporter()) as records:
        context = records[RunContext]
        for baseline in records[Baselines]:
            if baseline.variant != "default":
                continue
            if baseline.outcome.reason:
                print(f"{source} {threads}T {baseline.name}: {baseline.outcome.reason}")
                continue
            on_file = baseline.backend in ("onnxruntime", "openvino")
            piece = next((baseline.artifact / "profiles" / "0").iterdir())
            path = str(context.files.original) if on_file else str(piece)
            sides = {
                "runtime": ["session", str(baseline.artifact)],
                "native": ["native", baseline.backend, path, str(threads), str(baseline.artifact)],
            }
            turns_of = take_turns(sides, context.machine.first_cores, rounds, seconds)
            share = ratio(turns_of, "runtime", "native")
            print(
                f"{source} {threads}T {baseline.name}: runtime {median_ms(turns_of, 'runtime'):.3f} ms, "
                f"own API {median_ms(turns_of, 'native'):.3f} ms, ratio {share}, page faults a run "
                f"{faults_per_run(turns_of, 'runtime'):.1f} and {faults_per_run(turns_of, 'native'):.1f}",
                flush=True,
            )
            turns = {side: [asdict(turn) for turn in turns_of[side]] for side in turns_of}
            which = {"model": source, "threads": threads, "backend": baseline.name}
            rows.append({**which, "ratio": asdict(share), "turns": turns})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--backends", nargs="+", default=list(BACKENDS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.4, help="length of a turn")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    for threads in options.threads:
        for source in options.models:
            rows += compare(source, threads, options.backends, options.rounds, options.seconds)
            options.output.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
