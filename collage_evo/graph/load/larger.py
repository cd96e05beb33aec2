"""Inputs of an open model that are larger along axes on which all samples are alike, such as a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from collage_evo.errors import InputError
from collage_evo.graph.ir.values import Values
from collage_evo.graph.load.data import given_inputs
from collage_evo.graph.load.distribution import elements
from collage_evo.graph.load.shapes import open_axes
from collage_evo.graph.reference.reference import Reference
from collage_evo.multimap import multimap


def larger_inputs(
    model: onnx.ModelProto, samples: Sequence[Values], reference: Reference
) -> tuple[list[tuple[Values, Values]], list[str]]:
    """The smallest of ``samples``, repeated once along each open size that all of them share, with the outputs of
    ``reference``, as far as it runs; and a note for each size that it refuses.

    Axes of one name in the file are one size; nameless ones are one if they have the same number.
    """
    axes = multimap(
        (value.type.tensor_type.shape.dim[axis].dim_param or f"size {axis}", (name, axis))
        for name, value in given_inputs(model).items()
        for axis in open_axes(value)
        if len({np.shape(sample[name])[axis] for sample in samples}) == 1
    )
    smallest = min(samples, key=lambda sample: elements({name: np.shape(sample[name]) for name in sample}))
    pairs, notes = list[tuple[Values, Values]](), list[str]()
    for size, places in axes.items():
        feeds = dict(smallest)
        for name, axis in places:
            feeds[name] = np.concatenate([feeds[name]] * 2, axis)
        try:
            pairs.append((feeds, reference.run_named(feeds)))
        except InputError:
            name, axis = places[0]
            notes.append(f"{size!r} of {name!r} stays {np.shape(samples[0][name])[axis]}: the model refuses another")
    return pairs, notes
