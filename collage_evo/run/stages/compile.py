"""Compile stage: the candidates of the final race, the best placements and safer ones if these exceed the budget."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from collage_evo.answer.answer import may_win
from collage_evo.answer.candidates import feasible_placements, race_candidates, safer_budget, safer_candidates
from collage_evo.errors import InputError
from collage_evo.files import link_or_copy
from collage_evo.genome.outcome import Outcome
from collage_evo.patterns.match import Placement
from collage_evo.report.stage import Stage
from collage_evo.run.context import RunContext
from collage_evo.run.search import NotSearched, Placed, Searched, named

ROOM = 0.5
"""If the fastest placement within the budget errs, but by less than this share of it, mixtures that spend the budget
are measured before the race, unless the run has a time. Chosen: answers of default runs used 2, 24 and 47 % of it."""

class CompiledCandidates:
    """The candidates of a search, compiled; none before :meth:`compile` or :meth:`keep`.

    Attributes:
        searched: the result of the search, with only these placements ranked.
        artifacts: of the candidates, by their names in the race.
        excluded: names of contestants that are not the answer, whether they won a race or were judged before it.

    Args:
        run: its limits apply.
        searched: the measured placements.
        levels: adds budget levels for a budget to these, which it measures.
    """

    def __init__(
        self,
        run: RunContext,
        searched: Searched | NotSearched,
        levels: Callable[[Searched, float], Searched],
    ) -> None:
        self._run, self._all, self._levels = run, searched, levels
        self.searched = searched
        self.artifacts: dict[str, Path] = {}
        self.excluded: set[str] = set()

    @property
    def errors(self) -> Mapping[str, float]:
        """The errors in the search of those that were measured there, by name."""
        if not isinstance(self.searched, Searched):
            return {}
        evaluated, keys = self.searched.tried.evaluated, self.searched.keys
        return {name: evaluated[key].outcome.error or 0.0 for name, key in keys.items() if key in evaluated}

    def compile(self, best: Outcome, answered: str = "") -> None:
        """Compile the placements of the search that may be the answer; before, measure mixtures that spend the budget
        if the fastest one leaves ``ROOM`` there.

        Args:
            best: the best single backend; placements that cannot be faster do not race.
            answered: the key of the answer before, if it was a placement.

        Raises:
            InputError: none of them could be compiled.
        """
        run, searched = self._run, self._all
        if not isinstance(searched, Searched):
            return
        fastest = next(iter(feasible_placements(searched.tried, searched.record.ranked, run.limits)), None)
        error = searched.tried.evaluated[fastest.key].outcome.error if fastest else None
        if run.config.time is None and error and error < ROOM * run.limits.budget:
            searched = self._all = self._levels(searched, run.limits.budget)
        tried, policy = searched.tried, run.config.policy
        racing = [
            placement
            for placement in searched.record.ranked
            if placement.key == answered or may_win(tried.evaluated[placement.key].outcome, best, policy)
        ]
        first = race_candidates(tried, racing, run.limits, run.config.final.candidates, answered)
        if not self._compile(searched, first) and first:
            raise InputError("no placement could be compiled")

    def keep(self, so_far: Placed | None, artifact: Path) -> None:
        """Race the answer ``so_far`` only, from its ``artifact``; None: no placement races."""
        for name in named((so_far.placement,) if so_far else ()):
            self.artifacts[name] = self._run.work / f"{name}.collage"
            shutil.rmtree(self.artifacts[name], ignore_errors=True)
            shutil.copytree(artifact, self.artifacts[name], copy_function=link_or_copy)

    def safer(self, seen: Mapping[str, float]) -> Mapping[str, Path]:
        """Compile more candidates after the ones by these names exceeded the budget with these errors on held-out
        samples."""
        if not isinstance(self._all, Searched) or not isinstance(self.searched, Searched):
            return {}
        keys, racing = self.searched.keys, self.searched.record.ranked
        errors = {keys[name]: error for name, error in seen.items() if name in keys}
        if budget := safer_budget(self._all.tried, self._run.limits, errors):
            self._all = self._levels(self._all, budget)
        more = safer_candidates(self._all.tried, self._all.record.ranked, self._run.limits, errors)
        return self._compile(self._all, tuple(dict.fromkeys((*racing, *more))))

    def _compile(self, searched: Searched, racing: Sequence[Placement]) -> Mapping[str, Path]:
        """Compile those of ``racing`` that have no artifact yet; returns the artifacts of those that compile."""
        self.searched = searched.ranking(racing)
        missing = {name: one for name, one in named(racing).items() if name not in self.artifacts}
        if not missing:
            return {}
        with self._run.stage(Stage.COMPILE):
            written = self._run.machine.write(missing, self._run.work)
            for failure in (made for made in written.values() if not isinstance(made, Path)):
                self._run.tell(
                    "one of the best placements could not be compiled again and is left out", str(failure)
                )
        compiled = {name: made for name, made in written.items() if isinstance(made, Path)}
        self.artifacts |= compiled
        return compiled

    def remove(self) -> None:
        """Remove the artifacts: each is as large as the model, and quickly compiled again."""
        for artifact in self.artifacts.values():
            shutil.rmtree(artifact, ignore_errors=True)  # time may have been over before it was written
