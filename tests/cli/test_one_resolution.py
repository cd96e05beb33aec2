"""A run resolves its configuration once: what a command or ``optimize`` resolved is what each stage reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

import collage_evo
from collage_evo.config import Config, parse_config
from collage_evo.run.profiles import with_shapes
from collage_evo.run.stages.threads import THREADS, OnThreads, settled
from collage_evo.run.store import Store
from tests.cli.commands import Here
from tests.support.models import tiny_convnet
from tests.support.quick import QUICK, nested, options


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """Each configuration that was resolved from plain values in this process, in order."""
    every: list[Config] = []
    validate = Config.model_validate

    def recording(values: Any) -> Config:
        every.append(validate(values))
        return every[-1]

    monkeypatch.setattr(Config, "model_validate", recording)
    return every


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    onnx.save(tiny_convnet(), tmp_path / "tiny.onnx")
    (tmp_path / "run.yaml").write_text("model: {source: tiny.onnx}\n")
    return tmp_path


@pytest.mark.slow
def test_a_command_resolves_its_configuration_once(folder: Path, here: Here, resolved: list[Config]) -> None:
    given = ("--precision", "mixed", "--shapes", "x: [1, 3, 16, 16]", "--effort", "quick", "--out", "run")
    settings = options({**QUICK, "accuracy.budget": 0.05})
    for command in (("run", "run.yaml", *given, *settings), ("resume", "run")):
        resolved.clear()
        done = here(*command, cwd=folder)
        assert done.returncode == 0, done.stderr
        assert len(resolved) == 1, command


@pytest.mark.slow
def test_optimize_resolves_its_configuration_once(folder: Path, resolved: list[Config]) -> None:
    settings = nested({**QUICK, "cache.dir": str(folder / "cache")})
    collage_evo.optimize(folder / "tiny.onnx", budget="exact", precision="exact", config=settings)
    assert len(resolved) == 1


def test_what_a_run_decides_is_no_other_configuration(tmp_path: Path, resolved: list[Config]) -> None:
    config = parse_config({"model": {"source": "a.onnx"}, "target": {"threads": 4}}, (), "test")
    Store(tmp_path).put(THREADS, OnThreads(2, ((4, 1.0), (2, 0.9))))
    decided = with_shapes(settled(config, tmp_path), {"x": [1, 4]})
    assert (decided.target.threads, decided.model.shapes) == (2, {"x": [1, 4]})
    assert (config.target.threads, config.model.shapes, len(resolved)) == (4, {}, 1)
