"""Hyperparameter tuning: finds the settings of the search that perform best on simulated targets.

The simulated targets are drawn from the surrogate, so that they are consistent with the measurements of the real one.
Optuna stores the trials and prunes bad ones early. These targets have latencies and no errors: settings are tuned on
the search for latency only, and a search with two objectives uses the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import optuna

from collage_evo.errors import ConfigError
from collage_evo.files import reading
from collage_evo.genome.encoding import decode
from collage_evo.genome.genome import Genome
from collage_evo.genome.settings import Budget, GaSettings
from collage_evo.genome.space import SearchSpace
from collage_evo.search.evolution.evolution import Evolution
from collage_evo.search.evolution.origin import Origin
from collage_evo.search.evolution.state import SearchState
from collage_evo.search.surrogate.features import FeatureMap
from collage_evo.search.surrogate.model import Surrogate
from collage_evo.search.tuning.learned_target import LearnedTarget
from collage_evo.search.tuning.ranges import Range, check_range, contains, suggest
from collage_evo.search.tuning.study import study_in

STUDY = "tune"
CHOSEN = "chosen"
"""Study attribute of a finished study: the chosen values."""

DEFAULT_RANGES: Mapping[str, Range] = {
    "population": {"low": 8, "high": 40, "step": 4},
    "offspring": {"low": 4, "high": 16, "step": 2},
    "crossover_rate": {"low": 0.0, "high": 1.0},
    "more_mutations": {"low": 0.0, "high": 0.8},
    "tournament": {"low": 1, "high": 6},
    "screen_factor": {"low": 2, "high": 16, "log": True},
    "random_share": {"low": 0.0, "high": 0.4},
    "explore": {"low": 0.0, "high": 1.0},
    "program_share": {"low": 0.0, "high": 1.0},
    "climb": {"low": 0, "high": 40, "step": 5},
}
NOT_TUNED = frozenset({"seed", "seeded", "patience", "hall_of_fame"})


@dataclass(frozen=True)
class TunePlan:
    """Effort of tuning: ``trials`` in all and at most ``seconds``; each searches ``targets`` for ``evaluations``."""

    trials: int
    seconds: float
    evaluations: int
    targets: int


def tune(
    space: SearchSpace,
    seeds: Iterable[tuple[Origin, Genome]],
    state: SearchState,
    plan: TunePlan,
    file: Path,
    ranges: Mapping[str, Range] | None = None,
    default: GaSettings | None = None,
    on_trial: Callable[[float | None], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> GaSettings:
    """The settings with the least mean latency, relative to the best seed's, on targets learned from ``state``.

    ``ranges`` maps fields of :class:`GaSettings` to ranges; other fields stay as in ``default``, which is the first
    trial. An interrupted study continues; a finished one is not repeated. ``on_trial`` takes, after each trial, the
    best so far: latency over that of the best seed, less is better.

    Raises:
        ConfigError: a field or a range that does not exist or fit.
    """
    base, chosen_ranges = default or GaSettings(), ranges or DEFAULT_RANGES
    check_ranges(chosen_ranges)
    study = open_study(file)
    if CHOSEN not in study.user_attrs:
        if not study.get_trials(deepcopy=False):
            first = {name: getattr(base, name) for name in chosen_ranges}
            study.enqueue_trial({name: first[name] for name in first if contains(chosen_ranges[name], first[name])})
        targets = _targets(space, state, plan)
        objective = _Objective(space, tuple(seeds), base, chosen_ranges, plan.evaluations, targets)
        begin = clock()
        while _finished(study) < plan.trials and clock() - begin < plan.seconds:
            # Drawn anew for each trial, so that an interrupted study draws what an uninterrupted one does.
            study.sampler = optuna.samplers.TPESampler(seed=base.seed + _finished(study), n_startup_trials=8)
            study.optimize(objective, n_trials=1)
            if on_trial:
                on_trial(_best(study))
        study.set_user_attr(CHOSEN, study.best_params if _best(study) is not None else {})
    return replace(base, **study.user_attrs[CHOSEN])


def open_study(file: Path) -> optuna.Study:
    """The study of a tuning in ``file``."""
    with reading(file, "move it away, and the tuning begins anew", wrong="cannot be used"):
        return study_in(file, STUDY, "minimize", optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=0))


def check_ranges(ranges: Mapping[str, Range]) -> None:
    """
    Raises:
        ConfigError: not settings of the search, or not ranges.
    """
    tunable = {field.name for field in fields(GaSettings)} - NOT_TUNED
    for name, spec in ranges.items():
        if name not in tunable:
            raise ConfigError(f"tune.space.{name} cannot be tuned; what can: {', '.join(sorted(tunable))}")
        check_range(f"tune.space.{name}", spec)


def _targets(space: SearchSpace, state: SearchState, plan: TunePlan) -> tuple[LearnedTarget, ...]:
    features = FeatureMap(space)
    latency = state.latency_ms
    vectors = [features.vector(decode(state.evaluated[key].genome, space)) for key in latency]
    surrogate = Surrogate(features, vectors, list(latency.values()), state.contended)
    samples = (surrogate.sample(np.random.default_rng(seed)) for seed in range(plan.targets))
    return tuple(LearnedTarget(features, weights) for weights in samples)


@dataclass(frozen=True)
class _Objective:
    space: SearchSpace
    seeds: tuple[tuple[Origin, Genome], ...]
    base: GaSettings
    ranges: Mapping[str, Range]
    evaluations: int
    targets: tuple[LearnedTarget, ...]

    def __call__(self, trial: optuna.Trial) -> float:
        usual = GaSettings()
        drawn = {k: suggest(trial, k, spec, isinstance(getattr(usual, k), int)) for k, spec in self.ranges.items()}
        try:
            settings = replace(self.base, patience=0, **drawn)
        except ConfigError as error:  # two fields that contradict each other
            raise optuna.TrialPruned(str(error)) from error
        ratios: list[float] = []
        for step, target in enumerate(self.targets):
            ratios.append(self.ratio(replace(settings, seed=step), target))
            trial.report(sum(ratios) / len(ratios), step)
            if step + 1 < len(self.targets) and trial.should_prune():
                raise optuna.TrialPruned
        return sum(ratios) / len(ratios)

    def ratio(self, settings: GaSettings, target: LearnedTarget) -> float:
        """Result of one search, over that of the best seed."""
        start = min(target.latency_ms(decode(genome, self.space)) for _, genome in self.seeds)
        budget = Budget(self.evaluations)
        return Evolution(self.space, target, settings, budget, lambda: 0.0, self.seeds).run().best_ms / start


def _finished(study: optuna.Study) -> int:
    states = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    return len(study.get_trials(deepcopy=False, states=states))


def _best(study: optuna.Study) -> float | None:
    done = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    return min((trial.value for trial in done if trial.value is not None), default=None)
