"""What does the provider add to the calls of an answer's pieces?

    python plugins/onnxruntime_ep/overhead.py RUN_DIR [ROUNDS]

In turns, in one process: a request to the artifact's own session in Python, a request to a session of ONNX Runtime
with the provider, and the pieces by themselves on filled buffers (``Session.execute``). Prints medians in us.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort

import collage_evo
import onnxruntime_ep_collage as collage_ep
from collage_evo.export import export_context_model

BATCH = 20
"""Requests of a turn, of which the first is not timed: it finds the caches of another side."""


def main(run: Path, rounds: int) -> None:
    name = collage_ep.get_ep_name()
    ort.register_execution_provider_library(name, collage_ep.get_library_path())
    options = ort.SessionOptions()
    options.add_provider_for_devices([one for one in ort.get_ep_devices() if one.ep_name == name], {})
    with tempfile.TemporaryDirectory() as folder:
        export_context_model(run, Path(folder) / "out")
        session = ort.InferenceSession(str(Path(folder) / "out" / "model.onnx"), sess_options=options)
        feeds = {
            one.name: np.load(next((Path(folder) / "out").rglob(f"0.in.{k}.npy")))
            for k, one in enumerate(session.get_inputs())
        }
        artifact = collage_evo.load(run)
        for ours, theirs in zip(session.run(None, feeds), artifact.run(None, feeds), strict=True):
            assert np.array_equal(ours, theirs)
        artifact.feed(feeds)
        sides: dict[str, Callable[[], object]] = {
            "pieces by themselves": artifact.execute,
            "session in Python": lambda: artifact.run(None, feeds),
            "ONNX Runtime with the provider": lambda: session.run(None, feeds),
        }
        times: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(rounds):
            for side, call in sides.items():
                call()
                for _ in range(BATCH):
                    start = time.perf_counter_ns()
                    call()
                    times[side].append((time.perf_counter_ns() - start) / 1e3)
        pieces = statistics.median(times["pieces by themselves"])
        for side, values in times.items():
            median = statistics.median(values)
            print(f"{side}: {median:.1f} us, {median - pieces:+.1f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 300)
