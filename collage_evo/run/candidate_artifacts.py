"""Compiled candidates of the final race: the best placements, and safer ones if these exceed the error budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from collage_evo.answer.candidates import race_candidates, safer_budget, safer_candidates
from collage_evo.errors import InputError
from collage_evo.run.context import RunContext
from collage_evo.run.search import named
from collage_evo.run.searched import NotSearched, Searched
from collage_evo.run.stages.answer import compile_candidates


class CandidateArtifacts:
    """The candidates of a search, compiled.

    Attributes:
        searched: the result of the search, with only these placements ranked.
        artifacts: of the candidates, by their names in the race.

    Args:
        run: its limits apply.
        searched: the measured placements.
        levels: adds budget levels for a budget to these, which it measures.
        answered: the key of the answer before, if it was a placement.

    Raises:
        InputError: none of the candidates could be compiled.
    """

    def __init__(
        self,
        run: RunContext,
        searched: Searched | NotSearched,
        levels: Callable[[Searched, float], Searched],
        answered: str = "",
    ) -> None:
        self._run, self._all, self._levels = run, searched, levels
        self.searched = searched
        self.artifacts: dict[str, Path] = {}
        if isinstance(searched, Searched):
            count = run.config.final.candidates
            first = race_candidates(searched.tried, searched.found.ranked, run.limits, count, answered)
            self.searched = searched.ranking(first)
            if self.searched.keys and not self._compile(self.searched):
                raise InputError("no placement could be compiled; run again with --debug")

    def safer(self, seen: Mapping[str, float]) -> Mapping[str, Path]:
        """Compile more candidates after the ones by these names exceeded the budget with these errors on held-out
        samples."""
        if not isinstance(self._all, Searched) or not isinstance(self.searched, Searched):
            return {}
        keys, racing = self.searched.keys, self.searched.found.ranked
        known = {keys[name]: error for name, error in seen.items() if name in keys}
        if budget := safer_budget(self._all.tried, self._run.limits, known):
            self._all = self._levels(self._all, budget)
        more = safer_candidates(self._all.tried, self._all.found.ranked, self._run.limits, known)
        self.searched = self._all.ranking(tuple(dict.fromkeys((*racing, *more))))
        return self._compile(self.searched)

    def _compile(self, searched: Searched) -> Mapping[str, Path]:
        """Compile the candidates that have no artifact yet."""
        placements = named(searched.found.ranked)
        missing = {name: placements[name] for name in placements if name not in self.artifacts}
        made = compile_candidates(self._run, searched.costs.space, missing) if missing else {}
        self.artifacts.update(made)
        return made
