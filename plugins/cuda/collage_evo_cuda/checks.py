"""What several backends ask of a model, and of a library's version."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING

from collage_evo.graph.ir.graph import Graph

if TYPE_CHECKING:
    import onnx


def normalised_graph(model: onnx.ModelProto) -> Graph:
    """The graph of ``model``, normalised as pieces are already: a user's whole model is not."""
    from collage_evo.graph.convert.read import build_graph
    from collage_evo.graph.normalise.normalise import normalise  # serving needs neither

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return build_graph(normalise(model))


def release_of(version: str) -> tuple[int, ...]:
    """The leading numbers of ``version`` with dots between them: for ``1.33rc1+cu13`` they are 1 and 33.

    So a release candidate counts as its release. Empty where it begins with no number.
    """
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match.group().split("."))) if match else ()
