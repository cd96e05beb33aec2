"""Lines that a run prints while it times each library on the whole model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collage_evo.answer.baselines import Baseline
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Outcome
from collage_evo.run.stages import baselines as stage


@pytest.mark.parametrize(("fault", "printed"), [(Fault.NEEDLESS, 0), (Fault.BUILD, 1)])
def test_a_variant_that_is_no_other_than_the_default_has_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault, printed: int
) -> None:
    lines: list[str] = []
    outcome = Outcome.unfit(Failure(fault, "without convolutions, nchw is no other than default"))
    baseline = Baseline("onnxruntime/nchw", "onnxruntime", "nchw", tmp_path, outcome, "", True)

    def measured(_backends: Any, _place: Any, _pool: Any, _timing: Any, report: Callable[..., None], *_: Any) -> Any:
        report([baseline])
        return (baseline,)

    monkeypatch.setattr(stage.baselines, "measure_baselines", measured)
    run: Any = SimpleNamespace(
        directory=tmp_path,
        setting=SimpleNamespace(target=SimpleNamespace(device="cpu", digest="")),
        limits=SimpleNamespace(measured=0.0, budget=0.0),
        config=SimpleNamespace(
            fitness=SimpleNamespace(timing=SimpleNamespace(settings=lambda: None)),
            backends=SimpleNamespace(use=None, seconds=1.0),
        ),
        stage=lambda *_: contextlib.nullcontext(),
        reporter=SimpleNamespace(log=lines.append, advance=lambda: None),
        tell=lambda sentence, raw="": lines.append(sentence),
        machine=None,
    )
    stage.measure_baselines(run, [], lambda found: None, {})
    assert len(lines) == printed
