"""Exports in parts: equal weights are equal files wherever they lie, and what is loaded is what was written."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from collage_evo.backends.openvino import blob
from collage_evo.backends.openvino.blob import blob_files, write_blob
from collage_evo.backends.registry import get_backend
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.hardware.target import Target
from tests.support.models import tiny_branchy


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob, "PARTS_BYTES", 2**16)
    monkeypatch.setattr(blob, "PART_BYTES", 2**14)
    monkeypatch.setattr(blob, "_BLOCK", 100_003)


def drawn(seed: int, nbytes: int) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8).tobytes()


def weights(seed: int) -> bytes:
    """Four MB in which a part may end every 64 KiB or so."""
    mark = bytes((*blob._MARK, 1))
    return b"".join(drawn(seed + k, 2**16 + k) + mark for k in range(64))


def written(path: Path, content: bytes) -> set[bytes]:
    names = write_blob(path, memoryview(content))
    assert [file.name for file in blob_files(path)] == list(names)
    parts = [file.read_bytes() for file in blob_files(path)]
    assert b"".join(parts) == content
    assert len(parts) > 20
    assert min(map(len, parts[:-1])) >= blob.PART_BYTES
    return set(parts)


def test_equal_weights_at_other_offsets_are_equal_parts(tmp_path: Path) -> None:
    one, other = weights(0), weights(100)
    first = written(tmp_path / "first", one + other)
    second = written(tmp_path / "second", b"a header" + one + b"a table of another shape" + other + b"a footer")
    assert len(second - first) <= 4


def test_a_part_may_end_at_the_border_of_two_blocks(tmp_path: Path) -> None:
    content, mark = drawn(0, blob._BLOCK - 2), bytes((*blob._MARK, 1))
    found = [
        len(write_blob(tmp_path / str(shift), memoryview(content[shift:] + mark + drawn(1, 2**15))))
        for shift in range(4)
    ]
    assert found == [2] * 4


@pytest.mark.parametrize("content", [b"", b"short", bytes(2**20)])
def test_what_is_small_or_has_no_place_to_end_is_one_file(tmp_path: Path, content: bytes) -> None:
    write_blob(tmp_path / "a.blob", memoryview(content))
    (file,) = blob_files(tmp_path / "a.blob")
    assert file.read_bytes() == content


@pytest.mark.parametrize("shared", [0, 2**26])
def test_a_model_in_parts_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: int) -> None:
    monkeypatch.setattr(blob, "PARTS_BYTES", 0)
    monkeypatch.setattr(blob, "_ends", lambda data: list(range(100, data.size, data.size // 20)))
    monkeypatch.setattr("collage_evo.backends.openvino.backend.SHARED_BYTES", shared)
    graph, backend, target = build_graph(tiny_branchy()), get_backend("openvino"), Target()
    if not backend.probe().available:
        pytest.skip("OpenVINO is not installed")
    variant, feeds = backend.variant("default"), random_inputs(graph.model, 0)
    built = backend.build(graph.model, target, variant, tmp_path)
    assert len(built.files) > 20
    inputs, outputs = ([graph.tensors[name] for name in names] for names in (graph.inputs, graph.outputs))
    made = [np.empty(tensor.shape, np.float32) for tensor in outputs]
    backend.load(tmp_path, target, variant, inputs, outputs).bind([feeds[t.name] for t in inputs], made)()
    for found, expected in zip(made, reference_outputs(graph.model, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_on_a_full_disk_a_piece_is_not_refused_but_the_system_s_error_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: memoryview) -> tuple[str, ...]:
        return write_blob(Path("/dev/full"), content)

    monkeypatch.setattr("collage_evo.backends.openvino.backend.write_blob", full)
    openvino, graph = get_backend("openvino"), build_graph(tiny_branchy())
    with pytest.raises(OSError, match="No space left") as refused:
        openvino.build(graph.model, Target(), openvino.variant("default"), tmp_path)
    assert refused.value.errno == errno.ENOSPC
