"""The user's own inputs of a run, and the profiles of shapes that they and the configuration ask for."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from collage_evo.accuracy.samples import Sample
from collage_evo.config import Config
from collage_evo.config_model import Shapes, has_ranges
from collage_evo.errors import InputError
from collage_evo.files import Stored
from collage_evo.graph.load.data import input_dims, read_feeds
from collage_evo.graph.load.distribution import Distribution
from collage_evo.graph.load.load import ModelFile
from collage_evo.graph.load.open_shapes import OpenShapes
from collage_evo.graph.load.ranges import shapes_in_ranges, shapes_of_samples
from collage_evo.graph.load.trial import Trial, require_range, require_samples
from collage_evo.graph.reference.reference import Reference
from collage_evo.hardware.memory import usable_memory
from collage_evo.hardware.slots import usable_cores
from collage_evo.run.store import Store


@dataclass(frozen=True)
class FixedShapes:
    """Shapes of the inputs in each profile of a run."""

    profiles: tuple[Shapes, ...]


ONE_SHAPE = "give it with --shapes, as --shapes 'batch: 1, sequence: 128', or search for the least latency"
SHAPES = Stored[FixedShapes | OpenShapes]("profiles.json", cast(Any, FixedShapes | OpenShapes))


def model_file(config: Config) -> ModelFile:
    """The user's model, not parsed yet: the caller passes it on, so that it is parsed once."""
    return ModelFile(config.model.source, config.model.seed)


def read_samples(config: Config, shapes: Mapping[str, Sequence[int | None]], file: ModelFile) -> tuple[Sample, ...]:
    """The samples of ``data.source``, those in one array cut by ``shapes``; none where it is not given.

    Arrays that are no inputs of the model in ``file`` are labels if there is a metric.

    Raises:
        InputError: they, or the model, cannot be read, or do not fit each other.
    """
    if config.data.source is None:
        return ()
    inputs = input_dims(file.declared)
    arrays = read_feeds(config.data.source, file.declared, shapes, labels=bool(config.accuracy.metric))
    return tuple(
        Sample(_named(sample, inputs), _named(sample, (name for name in sample if name not in inputs)))
        for sample in arrays
    )


def shapes_of_run(config: Config, file: ModelFile) -> tuple[FixedShapes | OpenShapes, tuple[Sample, ...]]:
    """The profiles that a run has an answer for each of, or the shapes that one open answer is for and its samples.

    ``model.shapes`` decides: ranges mean an open answer, shapes one for each profile. Without them the samples do:
    several shapes among them mean an open answer. Several ranks of an input are profiles, since no answer takes them.

    Raises:
        InputError: see :func:`read_samples`; or ``model.shapes`` does not fit the model.
    """
    if has_ranges(config.model.shapes):
        shapes = shapes_in_ranges(file.declared, config.model.shapes)
        return shapes, samples_in(config, shapes, file)
    if config.model.shapes or config.data.source is None:
        return FixedShapes(config.model.profiles), ()
    if static := _static(input_dims(file.declared)):
        return FixedShapes((static,)), ()
    samples = read_samples(config, {}, file)
    profiles = Distribution.of(map(shapes_of, samples)).shapes
    if len(profiles) == 1 or len({tuple(map(len, shapes.values())) for shapes in profiles}) > 1:
        return FixedShapes(profiles), ()
    return shapes_of_samples(file.declared, profiles), samples


def require_runs(config: Config, shapes: OpenShapes, samples: Sequence[Sample], file: ModelFile) -> None:
    """Require that the model runs on the ``samples``, and on the ranges of ``model.shapes``.

    Raises:
        InputError: it does not; the message names the sample, its shape and the limit.
    """
    model = file.load_open().original
    reference = Reference(model, len(usable_cores()), timeout_s=config.fitness.timeout_s)
    if samples:
        require_samples(model, reference, [sample.feeds for sample in samples], str(config.data.source))
    if has_ranges(config.model.shapes):
        require_range(Trial(model, reference), shapes, usable_memory())


def saved_shapes(config: Config, directory: Path, file: ModelFile) -> FixedShapes | OpenShapes:
    """The same for the run in ``directory``, determined and tried once in its life: a run that goes on reads no data
    for it. Raises as :func:`shapes_of_run` and :func:`require_runs`."""

    def determine() -> FixedShapes | OpenShapes:
        shapes, samples = shapes_of_run(config, file)
        if isinstance(shapes, OpenShapes):
            if config.search.objective == "throughput":
                raise InputError(f"search.objective=throughput takes one shape: {ONE_SHAPE}")
            require_runs(config, shapes, samples, file)
        return shapes

    return Store(directory).once(SHAPES, determine)


def profiles_with_data(config: Config, profiles: Sequence[Shapes], file: ModelFile) -> tuple[bool, ...]:
    """Whether ``data.source`` has samples of each of ``profiles``.

    Raises:
        InputError: see :func:`read_samples`.
    """
    return tuple(bool(matching(read_samples(config, shapes, file), shapes)) for shapes in profiles)


def describe_batch(config: Config, profiles: Sequence[Shapes], file: ModelFile) -> str:
    """A note on the batch of a run on data, where the model leaves it open and no shapes were given; else empty."""
    if config.model.shapes or config.data.source is None or len(profiles) != 1:
        return ""
    (shapes,) = profiles
    dims = {name: sizes for name, sizes in input_dims(file.declared).items() if sizes and None in sizes}
    batched = [name for name, sizes in dims.items() if sizes[0] is None]
    if not batched:
        return ""
    other = 8 if all(shapes[name][0] <= 1 for name in batched) else 1
    example = {name: [other if name in batched else shapes[name][0], *shapes[name][1:]] for name in dims}
    batch = " and ".join(str(size) for size in dict.fromkeys(shapes[name][0] for name in batched))
    return (
        f"The model's batch is dynamic: this run optimises for a batch of {batch} and judges each batch as one "
        f"sample. To serve batch {other}: --shapes {shlex.quote(_written(example))}"
    )


def _static(dims: Mapping[str, Sequence[int | None] | None]) -> Shapes | None:
    """The only shapes that a model accepts; None if it accepts others."""
    if any(sizes is None or None in sizes for sizes in dims.values()):
        return None
    return {name: [size for size in sizes or () if size is not None] for name, sizes in dims.items()}


def samples_in(config: Config, shapes: Shapes | OpenShapes, file: ModelFile) -> tuple[Sample, ...]:
    """The samples of ``data.source`` whose inputs have ``shapes``; none where it is not given.

    Raises:
        InputError: see :func:`read_samples`; or no sample has these shapes, or one is outside of open ones.
    """
    samples = read_samples(config, shapes.sizes if isinstance(shapes, OpenShapes) else shapes, file)
    if isinstance(shapes, OpenShapes):
        for number, sample in enumerate(samples):
            if outside := shapes.outside(shapes_of(sample)):
                where = f"sample {number} of {config.data.source} has {outside}"
                raise InputError(f"{where}: leave it out of the data, or give a wider range with --shapes")
        return samples
    if samples and not matching(samples, shapes):
        had, asked = (_written(one) for one in (_shapes(samples[0], shapes), shapes))
        raise InputError(
            f"no sample in {config.data.source} has the shapes {asked}; the first has {had}: give samples of those "
            f"shapes, or --shapes {shlex.quote(had)}"
        )
    return matching(samples, shapes)


def _written(shapes: Shapes) -> str:
    return ", ".join(f"{name}: {sizes}" for name, sizes in shapes.items())


def matching(samples: Sequence[Sample], shapes: Shapes) -> tuple[Sample, ...]:
    """The samples whose inputs have ``shapes``; if ``shapes`` lacks some inputs, those that are like the first
    sample."""
    fitting = [sample for sample in samples if _shapes(sample, shapes) == shapes]
    return tuple(one for one in fitting if shapes_of(one) == shapes_of(fitting[0]))


def shapes_of(sample: Sample) -> Shapes:
    """The shape of each of its inputs."""
    return _shapes(sample, sample.feeds)


def _shapes(sample: Sample, names: Iterable[str]) -> Shapes:
    return {name: list(sample.feeds[name].shape) for name in names if name in sample.feeds}


def _named(arrays: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: arrays[name] for name in names}
