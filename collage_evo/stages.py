"""The stages that touch the disk, the measuring processes or the person's terminal, bound to one run."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType

import onnx

from collage_evo.backends.base import Backend, BuildFailure, Target
from collage_evo.backends.registry import get_backend, registered_origins
from collage_evo.config import Config, Settings, cache_directory
from collage_evo.errors import InputError
from collage_evo.fitness.baselines import Baseline, measure_baselines
from collage_evo.fitness.builders import Builders
from collage_evo.fitness.compiler import Compiler, PieceCache
from collage_evo.fitness.costs import CostMeter, CostSettings, CostTable, measure_costs
from collage_evo.fitness.database import CostDatabase
from collage_evo.fitness.decide import FinalSettings, Verdict, decide
from collage_evo.fitness.evaluate import MeasuredEvaluator, placement_job
from collage_evo.fitness.executor import Executor
from collage_evo.fitness.jobs import OpenJob, ProfileJob, Setting
from collage_evo.fitness.outcome import Outcome
from collage_evo.fitness.pool import MeasuringPool
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.fitness.slots import usable_cores
from collage_evo.fitness.worker import write_references
from collage_evo.genome.checkpoint import Fingerprint
from collage_evo.genome.encoding import place
from collage_evo.genome.seeds import Seeds
from collage_evo.genome.settings import GaSettings
from collage_evo.genome.space import SearchSpace
from collage_evo.genome.state import SearchState
from collage_evo.graph.prepare import PreparedModel, prepare_model
from collage_evo.kernels import KernelTuning, Tuned, Tuning
from collage_evo.patterns.enumerate import Matches
from collage_evo.patterns.match import Placement
from collage_evo.refine import refine_costs
from collage_evo.report.progress import Reporter
from collage_evo.rundir import reopen_run, save_config
from collage_evo.runtime.artifact import write_artifact
from collage_evo.runtime.timing import TimingSettings
from collage_evo.search import Found, run_search
from collage_evo.survey import Survey

GIB = 2**30
HOPELESS = 5.0
"""A placement predicted this many times as slow as the cheapest cover is not built."""


@dataclass(frozen=True)
class Answer:
    """The delivered artifact, with each region's time in one run (ms) and its errors against the reference."""

    artifact: Path
    region_ms: tuple[float, ...]
    relative_error: float
    max_abs_error: float


@dataclass
class Stages:
    """What the stages share. Use as a context manager: leaving it ends the measuring processes."""

    config: Config
    directory: Path
    reporter: Reporter
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time of each stage."""

    def __post_init__(self) -> None:
        config = self.config
        self.cache = cache_directory(config)
        self.work = self.directory.absolute() / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        self.setting = Setting(
            model=str(self.work / "normalised.onnx"),
            original=str(self.work / "original.onnx"),
            reference=str(self.work / "reference.npz"),
            cache=str(self.cache / "pieces"),
            cache_bytes=int(config.cache.max_gb * 1e9),
            device=config.target.device,
            threads=config.target.threads,
            tolerance=config.verify.tolerance,
            registered=registered_origins(),
            records=str(self.work / "records"),
        )
        self.pool = MeasuringPool(
            self.setting,
            self._cores(),
            int(config.fitness.memory_gb * GIB),
            config.fitness.timeout_s,
            Executor(config.fitness.executor, config.fitness.address),
        )
        # The run's own database comes first: what another run measures later must not change this one's space.
        self.databases = (CostDatabase(self.work / "costs.sqlite"), CostDatabase(self.cache / "costs.sqlite"))

    def __enter__(self) -> Stages:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pool.close()

    def prepare(self) -> PreparedModel:
        """Read the model, normalise it, compute reference outputs; leave them where measuring processes look."""
        with self._stage("model"):
            config = self.config
            model = prepare_model(
                config.model.source,
                config.model.shapes,
                config.model.seed,
                config.verify.inputs,
                threads=len(usable_cores()),
            )
            onnx.save(model.graph.model, self.setting.model)
            onnx.save(model.original, self.setting.original)
            write_references(Path(self.setting.reference), list(model.references))
        return model

    def measure_baselines(self, backends: Sequence[Backend]) -> tuple[Baseline, ...]:
        """Each backend alone on the person's own model, kept in the run directory for a resumed run."""
        saved = self.directory / "baselines.json"
        directory = self.directory / "baselines"
        if saved.exists():
            known = [
                Baseline(**{**b, "artifact": directory / b["artifact"], "outcome": Outcome.from_json(b["outcome"])})
                for b in json.loads(saved.read_text())
            ]
            if {b.backend for b in known} == {b.name for b in backends}:
                return tuple(known)
        total = sum(len(backend.variants_within(self.setting.tolerance)) for backend in backends)
        with self._stage("baselines: each backend alone", total):
            timing = self.config.fitness.timing.settings()
            found = measure_baselines(backends, directory, self.pool, timing, self._told)
        rows = [{**asdict(b), "artifact": b.artifact.name} for b in found]
        _write(saved, json.dumps(rows, indent=1))
        return found

    def _told(self, baseline: Baseline) -> None:
        latency = baseline.outcome.latency_ms
        self.reporter.say(
            f"{baseline.name} alone: " + (f"{latency:.2f} ms" if latency is not None else baseline.outcome.reason)
        )
        self.reporter.advance()

    def tune_backends(self, model: PreparedModel, found: Matches, backends: Sequence[Backend]) -> Tuning:
        """Matches with those added that tuning makes faster; as they are where no backend has trials to spend.

        What was tuned is kept in the run directory: a resumed run searches the same matches.
        """
        trials = self.config.backends.trials
        if not trials:
            return Tuning(found, ())
        saved = self.work / "tuning.json"
        if saved.exists():
            return Tuning.of(found, [Tuned.from_json(data) for data in json.loads(saved.read_text())])
        stage = self._stage("costs of matches before tuning", len(found.matches))
        with Builders(self.pool) as builders, stage:
            meter = self._meter(model, builders)
            table = measure_costs(meter, found.matches, self.config.costs.far_behind, self.reporter.advance)
        tuning = KernelTuning(self.pool, self.cache, self.databases[1])
        tuned = []
        for backend in backends:
            if budget := trials.get(backend.name):
                with self._stage(f"tuning {backend.name}", budget):
                    advance = self.reporter.advance
                    tuned.append(tuning.tune(backend, budget, model.graph, found.matches, table, advance))
        _write(saved, json.dumps([asdict(one) for one in tuned], indent=1))
        return Tuning.of(found, tuned)

    def _meter(self, model: PreparedModel, builders: Builders, pace_ms: float | None = None) -> CostMeter:
        costs = self.config.costs
        settings = CostSettings(costs.timing.settings(), costs.flush)
        return CostMeter(model.graph, self.pool, builders, *self.databases, settings, pace_ms)

    def measure_costs(
        self, model: PreparedModel, found: Matches, backends: Sequence[Backend], pace_ms: float | None = None
    ) -> MeasuredCosts:
        """Cost of the matches that matter, at the pace ``pace_ms``, and of the borders between backends."""
        far_behind, advance = self.config.costs.far_behind, self.reporter.advance
        by_name = {backend.name: backend for backend in backends}
        with Builders(self.pool) as builders:
            meter = self._meter(model, builders, pace_ms)
            with self._stage("costs of matches: a sample"):
                survey = Survey(meter, found.matches, by_name, found.refusals, far_behind)
                survey.sample(advance)
            with self._stage("costs of borders"):
                survey.probe(advance)
            with self._stage("costs of matches: those of the cheapest cover"):
                space = survey.settle(advance)
            if meter.disturbed:
                self.reporter.say(
                    f"{meter.disturbed} of {meter.measured} costs were taken while something else used the same "
                    "cores; stop other programs for better ones"
                )
            with self._stage("costs of regions"):
                space = refine_costs(space, meter, advance)
            table = survey.table()
        return MeasuredCosts(table, space, meter.measured, meter.disturbed, meter.cache_hits)

    def evolve(self, space: SearchSpace, seeds: Seeds, model: PreparedModel, single: Baseline) -> Found:
        """The genetic search on measured latency, from the checkpoint if there is one."""
        search, latency = self.config.search, single.outcome.latency_ms
        assert latency is not None
        bound = self.config.fitness.give_up * latency
        limit = HOPELESS * seeds.dp.cost_ms
        timing = self.config.fitness.timing.settings()
        pool = self._agreed(place(seeds.dp.covers[0].matches, space), timing)
        with Builders(pool) as builders, self._stage("search", search.seconds or search.evaluations):
            evaluator = MeasuredEvaluator(
                pool, builders, timing, bound, space.predict, limit, single.outcome.pace_ms
            )
            fingerprint = self._fingerprint(space, model)
            tuner = (lambda state: self._tune(space, seeds, state)) if search.tune else None
            return run_search(space, seeds, evaluator, search, self.directory, fingerprint, self.reporter, tuner)

    def _agreed(self, reference: Placement, timing: TimingSettings) -> MeasuringPool:
        """The pool without workers that disagree on ``reference``."""
        pool, took = self.pool.agreed(placement_job(reference, timing, math.inf), self.config.fitness.margin)
        for worker, latency in took.items():
            out = pool.expected is not None and not pool.expected.agrees(latency)
            self.reporter.say(f"{worker}: reference {latency:.2f} ms{', left out' if out else ''}")
        return pool

    def _tune(self, space: SearchSpace, seeds: Seeds, state: SearchState) -> GaSettings:
        """Settings tuned on what was learned, written into the saved configuration too."""
        from collage_evo.genome.tuning import TunePlan, tune  # Optuna is slow to import

        tuning = self.config.tune
        plan = TunePlan(tuning.trials, tuning.seconds, tuning.evaluations, tuning.targets)
        with self._stage("tuning on what was learned", tuning.trials):
            chosen = tune(
                space,
                seeds.named,
                state,
                plan,
                tuning_storage(self.directory),
                tuning.space,
                self.config.search.ga,
                lambda report: self.reporter.advance(1, f"best {report.best_ratio:.4f} of the best seed's latency"),
            )
        saved, kind = reopen_run(self.directory, ())
        search = saved.search.model_copy(update={"ga": Settings(**asdict(chosen))})
        save_config(self.directory, saved.model_copy(update={"search": search}), kind)
        self.reporter.stage("search", self.config.search.seconds or self.config.search.evaluations)
        return chosen

    def compile(self, space: SearchSpace, found: Found) -> Mapping[str, Path]:
        """The placements likeliest the fastest as artifacts."""
        candidates: dict[str, Path] = {}
        with self._stage("compile"):
            for index, placement in enumerate(found.ranked[: self.config.final.finalists]):
                name = f"placement-{index}"
                artifact = self.write_placement(name, placement, space)
                if isinstance(artifact, BuildFailure):
                    self.reporter.say(f"placement {placement.key} could not be built again: {artifact.reason}")
                else:
                    candidates[name] = artifact
        if not candidates:
            raise InputError("no placement could be compiled; run again with --debug")
        return candidates

    def write_placement(self, name: str, placement: Placement, space: SearchSpace) -> Path | BuildFailure:
        """Compile ``placement`` into an artifact in the work directory."""
        compiler = Compiler(self.target, PieceCache(Path(self.setting.cache), self.setting.cache_bytes))
        program = compiler.placement(space.graph, placement)
        if isinstance(program, BuildFailure):
            return program
        artifact = self.work / f"{name}.collage"
        borders = {"/".join(engine): asdict(border) for engine, border in space.cost.borders.items()}
        write_artifact(artifact, program, self.target, {"key": placement.key, "borders": borders})
        return artifact

    def decide(self, candidates: Mapping[str, Path], baselines: Sequence[Baseline]) -> Verdict:
        """Race the candidates, then the best of them against every baseline, each in a process of its own."""
        final = self.config.final
        turn = TimingSettings(1, 2, final.turn_seconds, max_seconds=30.0)
        settings = FinalSettings(final.rounds, turn)
        with self._stage("final: taking turns", settings.all_rounds(list(candidates))):
            return decide(candidates, baselines, self.pool, settings, lambda _: self.reporter.advance())

    def deliver(self, verdict: Verdict, candidates: Mapping[str, Path], baselines: Sequence[Baseline]) -> Answer:
        """Put the answer into place as ``best.collage`` and verify it once more, in a fresh process."""
        artifacts = {**candidates, **{b.name: b.artifact for b in baselines}}
        best = self.directory / "best.collage"
        with self._stage("verify"):
            _replace_tree(artifacts[verdict.answer], best)
            for artifact in candidates.values():  # each as large as the model, and soon compiled again
                shutil.rmtree(artifact)
            with self.pool.quiet() as cores, Sandbox(self.setting, cores, self.pool.memory_bytes) as sandbox:
                checked = sandbox.call(OpenJob(str(best)), self.pool.timeout_s)
                profile = sandbox.call(ProfileJob(runs=10), self.pool.timeout_s)
        if checked.reason or checked.relative_error is None or checked.max_abs_error is None:
            raise InputError(f"{best} failed its check ({checked.reason}); run again with --debug")
        return Answer(best, profile.times_ms, checked.relative_error, checked.max_abs_error)

    def _fingerprint(self, space: SearchSpace, model: PreparedModel) -> Fingerprint:
        target = self.config.target
        return Fingerprint(
            model=model.digest[:16],
            target=f"{target.device}, {target.threads} thread(s), cores {list(self.pool.cores)}",
            backends=tuple(
                f"{name} {get_backend(name).probe().version}" for name in sorted({b for b, _ in space.engines})
            ),
            matches=space.digest,
        )

    def _cores(self) -> tuple[int, ...]:
        usable, target = usable_cores(), self.config.target
        if missing := set(target.cores) - set(usable):
            raise InputError(f"target.cores: core {min(missing)} is not usable here; usable are {list(usable)}")
        cores = tuple(target.cores) or usable
        if target.threads > len(cores):
            raise InputError(f"target.threads: {target.threads} threads on {len(cores)} core(s); use at most as many")
        return cores

    @property
    def target(self) -> Target:
        """What the placements run on."""
        setting = self.setting
        return Target(setting.device, setting.threads, self.pool.slots[0], setting.records)

    def _stage(self, name: str, total: float | None = None) -> _Stage:
        return _Stage(name, total, self.reporter, self.seconds, time.monotonic)


@dataclass(frozen=True)
class MeasuredCosts:
    """Standalone costs, and the search space with the additive model made from them."""

    table: CostTable
    space: SearchSpace
    measured: int
    disturbed: int
    """Of the measured: how many were taken while the cores were shared or far apart, however often."""
    cache_hits: int


@dataclass
class _Stage:
    """Announces a stage and notes how long it took."""

    name: str
    total: float | None
    reporter: Reporter
    seconds: dict[str, float]
    clock: Callable[[], float]
    begin: float = 0.0

    def __enter__(self) -> None:
        self.reporter.stage(self.name, self.total)
        self.begin = self.clock()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds[self.name] = self.clock() - self.begin


def tuning_storage(directory: Path) -> str:
    """Optuna's storage of the tuning in a run directory."""
    return f"sqlite:///{directory.absolute() / 'tune.db'}"


def _write(path: Path, text: str) -> None:
    work = path.with_suffix(".tmp")
    work.write_text(text)
    os.replace(work, path)


def _replace_tree(source: Path, target: Path) -> None:
    work = target.with_name(target.name + ".tmp")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(source, work)
    shutil.rmtree(target, ignore_errors=True)
    os.replace(work, target)
