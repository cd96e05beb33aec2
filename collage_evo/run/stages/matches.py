"""Matches stage: enumerates matches once in a run's life, with refusals and excluded engines."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from collage_evo.backends.enumerate import Matches, enumerate_matches
from collage_evo.files import Stored
from collage_evo.genome.cost_model import Engine
from collage_evo.genome.failure import Failure
from collage_evo.graph.prepare import PreparedModel, SearchableModel
from collage_evo.rewrites.catalogue import REWRITES
from collage_evo.run.context import RunContext
from collage_evo.run.machine import Backends
from collage_evo.run.records import Key
from collage_evo.run.stages.baselines import NormalisedBaselines
from collage_evo.run.stages.excluded_engines import batch_dependent, excluded_engines
from collage_evo.run.stages.precision import Calibrated, may_quantise


@dataclass(frozen=True)
class Enumerated:
    """All matches of a run, including refusals.

    Attributes:
        of: digest of their inputs: the model, the target, the policy, and each backend with its version.
        excluded: engines that are not tried on parts, and why.
    """

    of: str
    found: Matches
    excluded: tuple[tuple[Engine, Failure], ...] = ()

    @property
    def key(self) -> str:
        """That digest."""
        return self.of


MATCHES = Stored("work/matches.json", Enumerated)


def find_matches(
    run: RunContext,
    model: SearchableModel,
    baselines: NormalisedBaselines,
    backends: Backends,
    calibrated: Calibrated,
    key: Key,
) -> Enumerated:
    """Find all matches of ``model``.

    Raises:
        NotSearchable: no backend supports some operator.
    """
    policy, log = run.config.policy, run.reporter.log
    excluded = excluded_engines(baselines, backends, policy, run.limits.budget, log, run.setting.target)
    excluded |= batch_dependent(backends) if run.config.accuracy.batch_invariant else {}
    found = enumerate_matches(
        model.graph,
        backends,
        run.limits.measured,
        run.setting.target,
        ranges=calibrated.ranges if may_quantise(run.store, run.config) else None,
        left_out=excluded,
        rewrites=REWRITES if run.config.search.rewrites and not model.graph.is_open else (),  # they fold sizes
    )
    return Enumerated(key, found, tuple(excluded.items()))


def matches(enumerated: Enumerated) -> Matches:
    """The matches alone."""
    return enumerated.found


def matches_key(run: RunContext, file: PreparedModel, backends: Backends) -> Key:
    """Digest of the model, the target, the policy, and each backend with its version."""
    parts = [file.digest, run.setting.target.digest]
    parts += sorted(f"{backend.name} {backend.probe().version}" for backend in backends)
    parts += filter(None, [run.config.policy.text])
    return Key(hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32])
