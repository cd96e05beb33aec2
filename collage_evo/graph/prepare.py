"""From a person's model to a graph ready to be searched, with the reference outputs it is held to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.ir import Graph
from collage_evo.graph.load import load_model
from collage_evo.graph.normalise import check_same_outputs, normalise
from collage_evo.graph.origin import name_nodes
from collage_evo.graph.read import build_graph
from collage_evo.graph.reference import Reference

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class PreparedModel:
    """A model read, normalised and checked.

    ``references`` pairs random inputs with the outputs of the original model, computed by ONNX Runtime with
    all optimisations off. Nodes go by the names of the person's file. ``normalisation_error`` is the relative
    error that normalisation brought.
    """

    name: str
    digest: str
    original: onnx.ModelProto
    graph: Graph
    references: tuple[tuple[Arrays, Arrays], ...]
    normalisation_error: float


def prepare_model(
    source: str, shapes: Mapping[str, Sequence[int]], seed: int, reference_inputs: int, threads: int
) -> PreparedModel:
    """Read, normalise and check ``source``.

    Raises:
        InputError: the model cannot be used; the message says why and how to mend it.
    """
    loaded = load_model(source, shapes, seed)
    normalised = normalise(loaded.original)
    name_nodes(loaded.original, normalised)
    error = check_same_outputs(loaded.original, normalised, threads=threads)
    reference = Reference(loaded.original, threads)
    names = [output.name for output in loaded.original.graph.output]
    pairs = []
    for index in range(reference_inputs):
        feeds = random_inputs(loaded.original, seed=1000 + index)
        pairs.append((feeds, dict(zip(names, reference.run(feeds), strict=True))))
    digest = hashlib.sha256(loaded.original.SerializeToString(deterministic=True)).hexdigest()
    return PreparedModel(
        loaded.name, digest, loaded.original, build_graph(normalised), tuple(pairs), error
    )
