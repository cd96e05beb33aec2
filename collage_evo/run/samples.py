"""The person's own inputs of a run, and the profiles of shapes that they and the configuration ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from collage_evo.config import Config, Shapes
from collage_evo.graph.data import Feeds, read_feeds
from collage_evo.graph.load import declared_model


def read_samples(config: Config) -> tuple[Feeds, ...]:
    """The samples of ``data.source``; none where it is not given.

    Raises:
        InputError: they, or the model, cannot be read, or do not fit each other.
    """
    if config.data.source is None:
        return ()
    return read_feeds(config.data.source, declared_model(config.model.source, config.model.seed))


def profiles_of(config: Config) -> tuple[Shapes, ...]:
    """Shapes of the inputs in each profile: those of ``model.shapes``, else all that the person's own inputs have.

    Raises:
        InputError: see :func:`read_samples`.
    """
    if config.model.shapes or config.data.source is None:
        return config.model.profiles
    found: list[Shapes] = []
    for sample in read_samples(config):
        shapes = {name: list(array.shape) for name, array in sample.items()}
        if shapes not in found:
            found.append(shapes)
    return tuple(found)


def matching(samples: Sequence[Feeds], shapes: Shapes) -> tuple[Feeds, ...]:
    """The samples whose inputs have ``shapes``; where not all are given, those that are like the first one."""
    fitting = [sample for sample in samples if _shapes(sample, shapes) == shapes]
    return tuple(sample for sample in fitting if _shapes(sample, sample) == _shapes(fitting[0], fitting[0]))


def _shapes(sample: Feeds, names: Mapping[str, Any]) -> Shapes:
    return {name: list(sample[name].shape) for name in names if name in sample}
