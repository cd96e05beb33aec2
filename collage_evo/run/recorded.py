"""What a run that ended left behind, read without measuring anything: takes its directory, gives what it found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from collage_evo.config import Config
from collage_evo.errors import InputError
from collage_evo.files import reading
from collage_evo.fitness.final.baselines import Baseline, read_baselines
from collage_evo.genome.encoding import decode
from collage_evo.genome.search.checkpoint import recorded
from collage_evo.genome.search.state import Evaluated
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.files import read_model
from collage_evo.graph.ir import Graph
from collage_evo.graph.read import build_graph
from collage_evo.patterns.match import Placement
from collage_evo.report.result import RESULT, FrontPoint, Result, read_result
from collage_evo.run.directory import kind_of_run, reopen_run
from collage_evo.run.saved_costs import MeasuredCosts, read_costs
from collage_evo.run.store import Store

Shapes = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class RecordedRun:
    """A run of one profile that ended."""

    directory: Path
    config: Config
    result: Result

    @property
    def store(self) -> Store:
        """What its stages kept."""
        return Store(self.directory / "work")

    @property
    def original(self) -> Path:
        """The person's own model with its shapes fixed."""
        return self.directory / "work" / "original.onnx"

    @property
    def searched(self) -> bool:
        """Whether placements were searched, and what that takes is still there."""
        return self.result.search is not None and (self.directory / "work" / "costs.json").exists()

    @cached_property
    def baselines(self) -> tuple[Baseline, ...]:
        """Each backend alone, on whatever target."""
        return read_baselines(self.directory / "baselines.json", self.directory / "baselines")

    @cached_property
    def graph(self) -> Graph:
        """The normalised model."""
        return build_graph(read_model(self.directory / "work" / "normalised.onnx"))

    @cached_property
    def costs(self) -> MeasuredCosts:
        """What it measured, on whatever target."""
        found = read_costs(self.directory / "work" / "costs.json", None, self.graph, {})
        if found is None:
            raise InputError(f"{self.directory} was not searched: run it again")
        return found

    @property
    def space(self) -> SearchSpace:
        """What its genomes are of."""
        return self.costs.space

    @cached_property
    def evaluated(self) -> Mapping[str, Evaluated]:
        """What its search measured, by key."""
        return recorded(self.directory, self.space.digest).evaluated

    def placement(self, key: str) -> Placement:
        """A placement that it measured."""
        return decode(self.evaluated[key].genome, self.space)

    @property
    def front(self) -> tuple[FrontPoint, ...]:
        """The placements and backends alone that nothing faster had as small an error as, and the answer."""
        return tuple(point for point in self.result.front if point.pareto or point.answer)


def read_run(directory: Path, shapes: Shapes | None = None) -> RecordedRun:
    """The run in ``directory``; of one with several profiles that of ``shapes``, or the first one.

    Raises:
        InputError: no run is there, it has not ended, or it is no run of a model.
    """
    place = _profile(directory, shapes or {})
    config, kind = reopen_run(place, ()), kind_of_run(place)
    if kind != "run":
        raise InputError(f"{directory} is a {kind}, not a run: give the directory of a run")
    result = read_result(place / RESULT)
    if result is None:
        raise InputError(f"the run in {place} has not ended: go on with python -m collage_evo resume {place}")
    return RecordedRun(place, config, result)


def profiles_in(directory: Path) -> Sequence[tuple[Shapes, Path]]:
    """The profiles of a run that ended, with shapes and directories; one without shapes where it is alone."""
    path = directory / RESULT
    if not path.exists():
        return [({}, directory)]
    with reading(path, f"write it again with python -m collage_evo resume {directory}"):
        told = json.loads(path.read_bytes())
        if "profiles" not in told:
            return [({}, directory)]
        return [(one["shapes"], directory / one["directory"]) for one in told["profiles"]]


def _profile(directory: Path, shapes: Shapes) -> Path:
    profiles = profiles_in(directory)
    wanted = {name: list(sizes) for name, sizes in shapes.items()}
    return next((place for own, place in profiles if own == wanted), profiles[0][1])
