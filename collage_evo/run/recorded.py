"""Recorded runs: the results of a run that ended, read from its directory without measuring anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from collage_evo.answer.baselines import Baseline, read_baselines
from collage_evo.config import Config
from collage_evo.costs.saved_costs import COSTS, MeasuredCosts
from collage_evo.errors import InputError
from collage_evo.genome.encoding import decode
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.load.files import read_model
from collage_evo.patterns.match import Placement
from collage_evo.report.finished import RESULT, read_finished, unfinished
from collage_evo.report.places import command
from collage_evo.report.result import FrontPoint, Result
from collage_evo.run.directory import kind_of_run, reopen_run, require_records
from collage_evo.run.store import Store
from collage_evo.runtime.manifest import BEST
from collage_evo.search.evolution.checkpoint import recorded
from collage_evo.search.evolution.state import Evaluated

Shapes = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class RecordedRun:
    """A run of one profile that ended."""

    directory: Path
    config: Config
    result: Result
    shapes: Shapes = field(default_factory=dict)
    """Shapes of its inputs, if it is one of several profiles."""

    @property
    def store(self) -> Store:
        """Records of its stages."""
        return Store(self.directory)

    @property
    def original(self) -> Path:
        """The user's own model with its shapes fixed."""
        return self.directory / "work" / "original.onnx"

    @property
    def searched(self) -> bool:
        """Whether placements were searched, and the files of the search still exist."""
        return self.result.search is not None and self.store.path(COSTS).exists()

    @cached_property
    def baselines(self) -> tuple[Baseline, ...]:
        """Each single backend, on any target."""
        return read_baselines(self.directory / "baselines.json", self.directory / "baselines")

    @cached_property
    def graph(self) -> Graph:
        """The normalised model."""
        return build_graph(read_model(self.directory / "work" / "normalised.onnx"))

    @cached_property
    def costs(self) -> MeasuredCosts:
        """Its measured costs, on any target."""
        if (saved := self.store.get(COSTS)) is None:
            raise InputError(f"{self.directory} was not searched: run it again")
        return saved.costs(self.graph, {})

    @property
    def space(self) -> SearchSpace:
        """The space of its genomes."""
        return self.costs.space

    @cached_property
    def evaluated(self) -> Mapping[str, Evaluated]:
        """Placements that its search measured, by key."""
        return recorded(self.directory, self.space.digest).evaluated

    def placement(self, key: str) -> Placement:
        """A placement that it measured."""
        return decode(self.evaluated[key].genome, self.space)

    @property
    def front(self) -> tuple[FrontPoint, ...]:
        """The Pareto-optimal placements and single backends, and the answer."""
        return tuple(point for point in self.result.front if point.pareto or point.answer)


def read_runs(directory: Path) -> tuple[RecordedRun, ...]:
    """The run in ``directory``; with several profiles the run of each.

    Raises:
        InputError: no run is there, it has not ended, or it is no run of a model.
    """
    ended_run(directory)
    finished = read_finished(directory)
    return tuple(RecordedRun(one.directory, reopen_run(one.directory), one.result, one.shapes) for one in finished)


def ended_run(directory: Path) -> Config:
    """The configuration of the run in ``directory``; raises as :func:`read_runs`."""
    config, kind = reopen_run(directory), kind_of_run(directory)
    if kind != "run":
        raise InputError(f"{directory} is a {kind}, not a run: give the directory of a run")
    if not (directory / RESULT).exists():
        require_records(directory)
        if (directory / BEST).exists():
            raise InputError(unfinished(directory))
        raise InputError(f"the run in {directory} has not ended: continue it with {command('resume', directory)}")
    return config


def read_run(directory: Path, shapes: Shapes | None = None) -> RecordedRun:
    """The run of ``shapes`` among those in ``directory``, else the first one; raises as :func:`read_runs`."""
    runs = read_runs(directory)
    wanted = {name: list(sizes) for name, sizes in (shapes or {}).items()}
    return next((run for run in runs if run.shapes == wanted), runs[0])
