"""Hyperparameter tuning: takes a search space and ranges, gives the settings that search a simulated target best.

The population starts at random, so that what is tuned is the search and not its seeds. Optuna keeps the trials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import optuna

from collage_evo.errors import ConfigError
from collage_evo.genome.encoding import place
from collage_evo.genome.evolution import Evolution
from collage_evo.genome.settings import Budget, GaSettings
from collage_evo.genome.simulate import NonAdditive, SimulatedEvaluator
from collage_evo.genome.space import SearchSpace

MILD = NonAdditive(layout=0.2, region=0.02, contention=0.01)
"""Without some non-additivity the screening model would be perfect, and tuning would only learn to trust it."""

GAP_WITHOUT_FIT = 10.0
"""Gap (as a fraction) of a search that found nothing fit."""


@dataclass(frozen=True)
class TrialReport:
    """One finished trial: its number, the gap it reached, the best gap so far (fractions), how many are done."""

    number: int
    gap: float | None
    best_gap: float | None
    finished: int
    wanted: int


def tune(
    space: SearchSpace,
    storage_url: str,
    study_name: str,
    n_trials: int,
    search_space: Mapping[str, Mapping[str, Any]],
    evaluations: int,
    seeds: Sequence[int],
    on_trial: Callable[[TrialReport], None] | None = None,
    default: GaSettings | None = None,
    terms: NonAdditive = MILD,
) -> GaSettings:
    """The settings with the least mean gap to the DP optimum after ``evaluations``, over ``seeds``.

    ``search_space`` maps fields of :class:`GaSettings` to ``{low, high}`` (with ``log`` or ``step``) or
    ``{choices: [...]}``; other fields stay as in ``default``, which is the first trial. A study that exists
    goes on until ``n_trials`` have finished; trials of a process that died count as failed.

    Raises:
        ConfigError: a field or a range that does not exist or fit.
    """
    base = default or GaSettings()
    _check(search_space)
    storage = optuna.storages.RDBStorage(storage_url)
    study = optuna.create_study(
        study_name=study_name,
        storage=storage,
        load_if_exists=True,
        direction="minimize",
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=0),
    )
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    finished = _finished(study)
    study.sampler = optuna.samplers.TPESampler(seed=base.seed + finished, n_startup_trials=8)
    if not study.get_trials(deepcopy=False):
        study.enqueue_trial(_inside(base, search_space))
    objective = _Objective(space, base, search_space, evaluations, tuple(seeds), terms)

    def report(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        if on_trial:
            done = _finished(study)
            on_trial(TrialReport(trial.number, trial.value, _best(study), done, n_trials))

    if finished < n_trials:
        study.optimize(objective, n_trials=n_trials - finished, callbacks=[report])
    if _best(study) is None:
        return base
    return replace(base, **{name: study.best_params[name] for name in search_space})


@dataclass(frozen=True)
class _Objective:
    space: SearchSpace
    base: GaSettings
    search_space: Mapping[str, Mapping[str, Any]]
    evaluations: int
    seeds: tuple[int, ...]
    terms: NonAdditive

    def __call__(self, trial: optuna.Trial) -> float:
        chosen = {name: _suggest(trial, name, spec) for name, spec in self.search_space.items()}
        try:
            settings = replace(self.base, seeded=False, **{"patience": 0, **chosen})
        except ConfigError as error:  # two fields that do not go together
            raise optuna.TrialPruned(str(error)) from error
        gaps: list[float] = []
        for step, seed in enumerate(self.seeds):
            gaps.append(self.gap(replace(settings, seed=seed), seed))
            trial.report(sum(gaps) / len(gaps), step)
            if step + 1 < len(self.seeds) and trial.should_prune():
                raise optuna.TrialPruned
        return sum(gaps) / len(gaps)

    def gap(self, settings: GaSettings, seed: int) -> float:
        """How far one search stays behind the DP's placement on the target of ``seed`` (negative: beats it)."""
        target = SimulatedEvaluator(self.space, self.terms, seed=seed)
        optimum = target.latency_ms(place(self.space.fallback, self.space))
        search = Evolution(self.space, target, settings, Budget(self.evaluations), clock=lambda: 0.0)
        found = search.run().best_ms
        return min(found / optimum - 1, GAP_WITHOUT_FIT)


def _check(search_space: Mapping[str, Mapping[str, Any]]) -> None:
    known = {field.name for field in fields(GaSettings)} - {"seed", "seeded"}
    for name, spec in search_space.items():
        if name not in known:
            raise ConfigError(f"tune.{name} is no setting of the search; it has {', '.join(sorted(known))}")
        if not ("choices" in spec or {"low", "high"} <= spec.keys()) or spec.keys() - {
            "low", "high", "log", "step", "choices",
        }:
            raise ConfigError(f"tune.{name} must be {{low, high}} (with log or step) or {{choices}}")


def _suggest(trial: optuna.Trial, name: str, spec: Mapping[str, Any]) -> Any:
    if "choices" in spec:
        return trial.suggest_categorical(name, spec["choices"])
    low, high, log = spec["low"], spec["high"], bool(spec.get("log", False))
    if isinstance(getattr(GaSettings(), name), int):
        return trial.suggest_int(name, int(low), int(high), step=int(spec.get("step") or 1), log=log)
    return trial.suggest_float(name, low, high, step=spec.get("step"), log=log)


def _inside(base: GaSettings, search_space: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The values of ``base`` that its search space allows."""
    return {
        name: value
        for name, value in ((name, getattr(base, name)) for name in search_space)
        if value in search_space[name].get("choices", [value])
        and search_space[name].get("low", value) <= value <= search_space[name].get("high", value)
    }


def _finished(study: optuna.Study) -> int:
    states = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    return len(study.get_trials(deepcopy=False, states=states))


def _best(study: optuna.Study) -> float | None:
    done = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    return min((trial.value for trial in done if trial.value is not None), default=None)
