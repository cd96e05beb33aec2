"""collage_evo: the fastest correct placement of an ONNX model over a machine's inference backends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collage_evo.runtime.session import Session

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def load(path: str | Path) -> Session:
    """Open an artifact (a ``.collage`` directory) for inference; see :class:`collage_evo.runtime.Session`."""
    from collage_evo.runtime.artifact import load_artifact

    return load_artifact(Path(path))
