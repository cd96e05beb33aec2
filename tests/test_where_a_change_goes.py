"""A change goes where the documents say: what belongs to one library or one rule is in its own file alone."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "collage_evo"


def test_quantisation_knows_no_library() -> None:
    """Not in comments either: what holds for one library is in the ``int8.py`` of its package."""
    name = re.compile(r"openvino|onnx ?runtime|mlas|onednn|ncnn|tvm|tensorrt|cudnn|torch", re.IGNORECASE)
    assert name.search((PACKAGE / "backends/openvino/int8.py").read_text())
    assert not [path for path in sorted(PACKAGE.glob("precision/**/*.py")) if name.search(path.read_text())]
