"""The stages that touch the disk, the measuring processes or the person's terminal, bound to one run."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType

from collage_evo.backends.base import Backend, BuildFailure
from collage_evo.backends.registry import get_backend, registered_origins
from collage_evo.config import Config, Settings, cache_directory
from collage_evo.data import matching, read_samples
from collage_evo.delivery import Delivery
from collage_evo.errors import InputError
from collage_evo.fitness.baselines import (
    Baseline,
    best_fallback,
    measure_baselines,
    measure_fallbacks,
    read_baselines,
    told_fallback,
    write_baselines,
)
from collage_evo.fitness.builders import Builders
from collage_evo.fitness.costs import CostMeter, CostSettings, CostTable, measure_costs
from collage_evo.fitness.database import CostDatabase
from collage_evo.fitness.decide import FinalSettings, Verdict, decide
from collage_evo.fitness.evaluate import MeasuredEvaluator, placement_job
from collage_evo.fitness.executor import Executor
from collage_evo.fitness.jobs import ArtifactJob, OpenJob, ProfileJob, Setting, regions_of
from collage_evo.fitness.pool import MeasuringPool
from collage_evo.fitness.presence import Lookout
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.fitness.sequential import Stopping
from collage_evo.fitness.slots import machine_directory, usable_cores
from collage_evo.fitness.worker import RECORDED, write_references
from collage_evo.genome.checkpoint import Fingerprint
from collage_evo.genome.encoding import place
from collage_evo.genome.seeds import Seeds
from collage_evo.genome.settings import GaSettings
from collage_evo.genome.space import SearchSpace
from collage_evo.genome.state import SearchState
from collage_evo.graph.files import save_model
from collage_evo.graph.ir import Graph
from collage_evo.graph.normalise import Rules
from collage_evo.graph.prepare import PreparedModel, SearchableModel, prepare_model, searchable
from collage_evo.graph.values import save_values
from collage_evo.kernels import KernelTuning, Tuned, Tuning
from collage_evo.patterns.enumerate import Matches
from collage_evo.patterns.match import Placement
from collage_evo.refine import refine_costs
from collage_evo.report.progress import Reporter
from collage_evo.rundir import reopen_run, save_config
from collage_evo.runtime.signature import signature_of
from collage_evo.runtime.timing import TimingSettings
from collage_evo.search import Found, run_search
from collage_evo.survey import Survey
from collage_evo.target.target import Target

GIB = 2**30
FALLBACKS = "fallbacks.json"
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
        self.begin = time.monotonic()
        self.cache = cache_directory(config)
        self.work = self.directory.absolute() / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        self.setting = Setting(
            model=str(self.work / "normalised.onnx"),
            original=str(self.work / "original.onnx"),
            reference=str(self.work / "reference.npz"),
            cache=str(self.cache / "pieces"),
            cache_bytes=int(config.cache.max_gb * 1e9),
            target=Target.here(config.target.device, config.target.threads, str(self.work / "records")),
            tolerance=config.verify.tolerance,
            registered=registered_origins(),
            run=f"process {os.getpid()} ({self.directory.absolute()})",
            recorded=str(self.work / "recorded.npz"),
            dynamic=str(self.work / "dynamic.onnx"),
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
        self.lookout = Lookout(machine_directory(), self.setting.run, self.reporter.say)

    def __enter__(self) -> Stages:
        self.lookout.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lookout.__exit__(kind, value, trace)
        self.pool.close()

    def prepare(self) -> PreparedModel:
        """Read the model and compute reference outputs; leave them where measuring processes look."""
        with self._stage("model"):
            config = self.config
            shapes = config.model.one_profile()
            feeds = matching(read_samples(config), shapes)
            if config.data.source and not feeds:
                self.reporter.say(f"no sample in {config.data.source} has these shapes: inputs are random")
            model = prepare_model(
                config.model.source,
                shapes,
                config.model.seed,
                config.verify.inputs,
                threads=len(usable_cores()),
                feeds=feeds,
                any_shapes=config.model.sizes == "smallest",
            )
            save_model(model.original, Path(self.setting.original))
            if model.dynamic is not None:
                save_model(model.dynamic, Path(self.setting.dynamic))
            write_references(Path(self.setting.reference), model.references)
        self.setting = replace(self.setting, tolerance=model.tolerance(config.verify.tolerance))
        self.pool = replace(self.pool, setting=self.setting)
        for note in model.notes:
            self.reporter.say(note)
        return model

    def normalise(self, model: PreparedModel) -> SearchableModel:
        """Bring the model into the form that is searched.

        Raises:
            NotSearchable: it only runs whole.
        """
        with self._stage("normalising the model"):
            found = searchable(model, threads=len(usable_cores()))
            save_model(found.graph.model, Path(self.setting.model))
            save_values(Path(self.setting.recorded), {RECORDED: found.recorded})
        if found.rules is not Rules.ALL:
            self.reporter.say(f"normalised with less than all rules, which change the outputs: {found.rules.value}")
        return found

    def deliver_first(self, single: Baseline, delivery: Delivery) -> None:
        """Put the best single backend into place as ``best.collage``, where there is no answer yet."""
        if delivery.best.exists():
            return
        best = delivery.put(single.artifact)
        since = self.seconds["first answer at"] = time.monotonic() - self.begin
        self.reporter.say(
            f"first answer after {since:.0f} s: {single.name} alone, {single.outcome.latency_ms:.2f} ms, checked, "
            f"in {best}; searching for a faster one"
        )

    def measure_baselines(
        self, backends: Sequence[Backend], on_usual: Callable[[Sequence[Baseline]], None] = lambda found: None
    ) -> tuple[Baseline, ...]:
        """Each backend alone on the person's own model, kept in the run directory for a resumed run.

        ``on_usual`` hears when those are done that run most models well, before the others, which may take long.
        """
        saved, directory = self.directory / "baselines.json", self.directory / "baselines"
        known = read_baselines(saved, directory, self.setting.target)
        if known and {b.backend for b in known} == {b.name for b in backends}:
            return known
        total = sum(len(backend.variants_within(self.setting.tolerance)) for backend in backends)
        with self._stage("baselines: each backend alone", total):
            timing = self.config.fitness.timing.settings()
            found = measure_baselines(backends, directory, self.pool, timing, self._told, on_usual)
        write_baselines(saved, found)
        return found

    def fall_back(self, model: PreparedModel, backends: Sequence[Backend]) -> Delivery:
        """What every answer of this run is given out with: what the file says, and what takes any other shapes."""
        signature = signature_of(model.dynamic or model.original)
        if model.dynamic is None:
            return Delivery(self.directory, self.target, signature, None)
        saved, directory = self.directory / FALLBACKS, self.directory / "fallbacks"
        found = read_baselines(saved, directory, self.setting.target)
        if not found:
            with self._stage("any other shapes"):
                found = measure_fallbacks(backends, directory, self.pool)
            write_baselines(saved, found)
        best = best_fallback([found])
        self.reporter.say(told_fallback(found, best))
        return Delivery(self.directory, self.target, signature, best.artifact if best else None)

    def _told(self, baseline: Baseline) -> None:
        latency, reason = baseline.outcome.latency_ms, baseline.outcome.reason
        told = [*([f"{latency:.2f} ms"] if latency is not None else []), *([reason] if reason else [])]
        self.reporter.say(f"{baseline.name} alone: {', '.join(told)}")
        self.reporter.advance()

    def tune_backends(self, graph: Graph, found: Matches, backends: Sequence[Backend]) -> Tuning:
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
            meter = self._meter(graph, builders, math.inf)
            table = measure_costs(meter, found.matches, self.config.costs.far_behind, self.reporter.advance)
        tuning = KernelTuning(self.pool, self.cache, self.databases[1])
        tuned = []
        for backend in backends:
            if budget := trials.get(backend.name):
                with self._stage(f"tuning {backend.name}", budget):
                    advance = self.reporter.advance
                    tuned.append(tuning.tune(backend, budget, graph, found.matches, table, advance))
        _write(saved, json.dumps([asdict(one) for one in tuned], indent=1))
        return Tuning.of(found, tuned)

    def _meter(self, graph: Graph, builders: Builders, seconds: float) -> CostMeter:
        costs = self.config.costs
        settings = CostSettings(costs.timing.settings(), costs.flush, seconds)
        return CostMeter(graph, self.pool, builders, *self.databases, settings)

    def measure_costs(self, graph: Graph, found: Matches, backends: Sequence[Backend]) -> MeasuredCosts:
        """Cost of the matches that matter, and of the borders between backends."""
        far_behind, advance = self.config.costs.far_behind, self.reporter.advance
        by_name = {backend.name: backend for backend in backends}
        with Builders(self.pool) as builders:
            meter = self._meter(graph, builders, self.config.costs.seconds)
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
            meter.settle()
            if table.estimated:
                self.reporter.say(f"{len(table.estimated)} of {len(found.matches)} costs are estimates")
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
            evaluator = MeasuredEvaluator(pool, builders, timing, bound, space.predict, limit)
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
            ranked = found.ranked[: self.config.final.finalists]
            named = {f"placement-{index}": placement for index, placement in enumerate(ranked)}
            for name, artifact in self.write_placements(named, space).items():
                if isinstance(artifact, BuildFailure):
                    self.reporter.say(f"placement {named[name].key} could not be built again: {artifact.reason}")
                else:
                    candidates[name] = artifact
        if not candidates:
            raise InputError("no placement could be compiled; run again with --debug")
        return candidates

    def write_placements(
        self, placements: Mapping[str, Placement], space: SearchSpace
    ) -> Mapping[str, Path | BuildFailure]:
        """Compile each of ``placements`` into an artifact of its name in the work directory.

        The cache may have lost pieces since the search. A backend that dies over them fails its placement only.
        """
        borders = {"/".join(engine): asdict(border) for engine, border in space.cost.borders.items()}
        written: dict[str, Path | BuildFailure] = {}
        with Sandbox(self.setting, self.pool.slots[0], self.pool.memory_bytes) as sandbox:
            for name, placement in placements.items():
                artifact = self.work / f"{name}.collage"
                job = ArtifactJob(regions_of(placement), str(artifact), {"key": placement.key, "borders": borders})
                answer = sandbox.call(job, self.pool.timeout_s)
                written[name] = BuildFailure(answer.reason) if answer.reason else artifact
        return written

    def decide(self, candidates: Mapping[str, Path], baselines: Sequence[Baseline]) -> Verdict:
        """Race the candidates, then the best of them against every baseline, each in a process of its own."""
        final = self.config.final
        turn = TimingSettings(1, 2, final.turn_seconds, max_seconds=30.0)
        settings = FinalSettings(Stopping(final.rounds), turn)
        with self._stage("final: taking turns"):
            return decide(candidates, baselines, self.pool, settings, lambda note: self.reporter.advance(1, note))

    def deliver(
        self, verdict: Verdict, candidates: Mapping[str, Path], baselines: Sequence[Baseline], delivery: Delivery
    ) -> Answer:
        """Put the answer into place as ``best.collage`` and verify it once more, in a fresh process."""
        artifacts = {**candidates, **{b.name: b.artifact for b in baselines}}
        with self._stage("verify"):
            best = delivery.put(artifacts[verdict.answer])
            for artifact in candidates.values():  # each as large as the model, and soon compiled again
                shutil.rmtree(artifact)
            with self.pool.quiet() as cores, Sandbox(self.setting, cores, self.pool.memory_bytes) as sandbox:
                checked = sandbox.call(OpenJob(str(best)), self.pool.timeout_s)
                profile = sandbox.call(ProfileJob(runs=10), self.pool.timeout_s)
        if checked.reason or checked.relative_error is None or checked.max_abs_error is None:
            raise InputError(f"{best} failed its check ({checked.reason}); run again with --debug")
        return Answer(best, profile.times_ms, checked.relative_error, checked.max_abs_error)

    def _fingerprint(self, space: SearchSpace, model: PreparedModel) -> Fingerprint:
        return Fingerprint(
            model=model.digest[:16],
            target=f"{self.setting.target.told} on cores {list(self.pool.cores)}",
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
        return replace(self.setting.target, cores=self.pool.slots[0])

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
