"""Sessions of open programs that are asked for ever new shapes stay as large as they were."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.models.weights import normal
from collage_evo.runtime.artifact import Profile, load_artifact, write_artifact
from collage_evo.runtime.session import Session
from tests.runtime.helpers import TARGET, in_a_row, whole
from tests.support.models import TinyNet

CALLS, WARM, SESSIONS = 2500, 100, 4
BRANCHES = 30


def broad(x: str, y: str) -> onnx.ModelProto:
    """``x`` float [n, 1] to ``y`` of that shape, by products side by side: memory for each, in a plan of it."""
    net = TinyNet("broad", 0)
    given = net.input(x, ("n", 1))
    products = [net.op("MatMul", given, net.const(normal(net.rng, (1, 1), 0.1))) for _ in range(BRANCHES)]
    return net.model(net.op("Sum", *products, output=y))


def resident() -> float:
    """MB of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


@pytest.mark.parametrize("pieces", [1, 2])
def test_memory_is_flat_over_ten_thousand_shapes_in_four_sessions(tmp_path: Path, pieces: int) -> None:
    """With the library's plans of memory for each shape it grows by 12 MB."""
    programs = [whole(broad(f"x{k}", f"x{k + 1}"), tmp_path) for k in range(pieces)]
    write_artifact(tmp_path / "a.collage", [Profile(in_a_row(programs))], TARGET)
    sessions = [load_artifact(tmp_path / "a.collage") for _ in range(SESSIONS)]

    def ask(session: Session, sizes: range) -> None:
        for n in np.random.default_rng(0).permutation(sizes):
            (y,) = session.run(None, {"x0": np.zeros((n, 1), np.float32)})
            assert y.shape == (n, 1)

    with ThreadPoolExecutor(SESSIONS) as threads:
        list(threads.map(ask, sessions, [range(CALLS, CALLS + WARM)] * SESSIONS))
        before = resident()
        list(threads.map(ask, sessions, [range(1, CALLS)] * SESSIONS))
    assert resident() - before < 4
    for session in sessions:
        session.close()
