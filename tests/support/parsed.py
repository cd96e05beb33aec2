"""How often this process parses a model's file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest


@contextlib.contextmanager
def files_parsed(path: Path) -> Iterator[list[Path]]:
    """Inside, what is given has ``path`` once for each time that it was parsed."""
    parsed: list[Path] = []
    load = onnx.load

    def counted(file: Any, *given: Any, **named: Any) -> onnx.ModelProto:
        if Path(file) == path:
            parsed.append(path)
        return load(file, *given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx, "load", counted)
        yield parsed
