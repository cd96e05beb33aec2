"""Checks this folder's files on this machine: python check.py [--cpp] [--runs N]. Needs NumPy and their libraries.

Outputs for the stored inputs are compared with those that the answer gave where it was made, and runs are timed.
With --cpp the runner in C++ is compiled and checked too. Ends with 1 where something is not as it should be.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
pipeline = importlib.import_module("pipeline")

Arrays = Mapping[str, np.ndarray]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cpp", action="store_true", help="also compile the runner in C++ and check it")
    parser.add_argument("--runs", type=int, default=50, help="timed runs")
    parser.add_argument("--flags", action="store_true", help="print what a C++ compiler is told, and end")
    asked = parser.parse_args()
    manifest = json.loads((HERE / "pipeline.json").read_text())
    if asked.flags:
        print(" ".join(cpp_flags(manifest["pieces"], HERE / "lib")))
        return 0
    samples = [read_sample(number, manifest["inputs"], manifest["outputs"]) for number in range(manifest["samples"])]
    ok = report("Python", *run_python(samples, asked.runs), samples, manifest["tolerance"])
    if asked.cpp:
        ok &= report("C++", *run_cpp(manifest, samples, asked.runs), samples, manifest["tolerance"])
    return 0 if ok else 1


def read_sample(number: int, inputs: Sequence[str], outputs: Sequence[str]) -> tuple[Arrays, Arrays]:
    """Inputs and their outputs, by name."""
    feeds, expected = ({n: np.load(place(number, side, k)) for k, n in enumerate(names)}
                   for side, names in (("in", inputs), ("out", outputs)))  # fmt: skip
    return feeds, expected


def place(number: int, side: str, index: int) -> Path:
    return HERE / "samples" / f"{number}.{side}.{index}.npy"


def run_python(samples: Sequence[tuple[Arrays, Arrays]], runs: int) -> tuple[list[Arrays], list[float]]:
    """Outputs of each sample, and milliseconds of each run on the first."""
    loaded = pipeline.Pipeline()
    outputs = [loaded.run(feeds) for feeds, _ in samples]
    loaded.run(samples[0][0])
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        loaded.execute()
        times.append((time.perf_counter() - start) * 1e3)
    return outputs, times


def run_cpp(
    manifest: Mapping[str, Any], samples: Sequence[tuple[Arrays, Arrays]], runs: int
) -> tuple[list[Arrays], list[float]]:
    """The same with the C++ runner, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "check"
        compile_cpp(manifest, program)
        environment = {**pipeline.environment(manifest), **os.environ}
        command = [str(program), str(HERE), str(len(samples)), str(runs), folder]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"the runner in C++ ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        outputs = [
            {
                name: np.fromfile(Path(folder) / f"{number}.out.{k}", array.dtype).reshape(_shape(folder, number, k))
                for k, (name, array) in enumerate(expected.items())
            }
            for number, (_, expected) in enumerate(samples)
        ]
        return list(outputs), [float(line) for line in done.stdout.split()]


def compile_cpp(manifest: Mapping[str, Any], program: Path) -> None:
    compiler = os.environ.get("CXX") or next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        sys.exit("no C++ compiler: set CXX")
    flags = cpp_flags(manifest["pieces"], program.parent)
    command = [compiler, "-std=c++17", "-O2", str(HERE / "check.cpp"), "-o", str(program), *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr.strip()[-2000:]}")


def cpp_flags(pieces: Sequence[Mapping[str, str]], links: Path) -> list[str]:
    """Include folders and libraries of the packages installed here."""
    try:
        loaders = dict.fromkeys(piece["loader"] for piece in pieces)
        return [flag for loader in loaders for flag in importlib.import_module(loader).cpp_flags(links)]
    except FileNotFoundError as missing:
        sys.exit(f"C++: {missing}")


def _shape(folder: str, number: int, index: int) -> list[int]:
    return [int(size) for size in (Path(folder) / f"{number}.out.{index}.shape").read_text().split()]


def report(
    language: str,
    outputs: Sequence[Arrays],
    times: Sequence[float],
    samples: Sequence[tuple[Arrays, Arrays]],
    tolerance: float,
) -> bool:
    pairs = zip(outputs, (expected for _, expected in samples), strict=True)
    worst = max(error(output[name], array) for output, expected in pairs for name, array in expected.items())
    ok = worst <= tolerance
    same = "equal to the bit" if worst == 0 else f"relative error {worst:.2g}"
    excess = "" if ok else f", MORE than {tolerance:.2g}"
    took = f"{np.median(times):.4g} ms, median of {len(times)} runs (longer on a busy machine)"
    print(f"{language}: outputs {same}{excess}; {took}")
    return ok


def error(output: np.ndarray, expected: np.ndarray) -> float:
    """Relative error: the 2-norm of the difference over that of the expected values."""
    if output.shape != expected.shape:
        return float("inf")
    if np.array_equal(output, expected, equal_nan=expected.dtype.kind in "fc"):
        return 0.0
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    both = np.isfinite(output) & np.isfinite(expected)
    if not np.array_equal(output[~both], expected[~both], equal_nan=True):
        return float("inf")
    a, b = output[both].astype(wide), expected[both].astype(wide)
    return float(np.linalg.norm(a - b) / (np.linalg.norm(b) or 1.0))


if __name__ == "__main__":
    sys.exit(main())
