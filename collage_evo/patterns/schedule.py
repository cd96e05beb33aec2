"""When the regions of a placement run. One after the other, as listed, is all that is run today."""

from __future__ import annotations

from dataclasses import dataclass

from collage_evo.errors import InputError


@dataclass(frozen=True)
class Schedule:
    """Regions run in the order in which they are listed, except that neighbours in it may share a step.

    ``together`` holds the positions that share one, as ranges: ``(2, 4)`` says that regions 2 and 3 may run at the
    same time. Ranges do not overlap and ascend.
    """

    together: tuple[tuple[int, int], ...] = ()

    def steps(self, count: int) -> tuple[range, ...]:
        """Positions of ``count`` regions, step by step."""
        steps: list[range] = []
        for start, stop in (*self.together, (count, count)):
            steps += [range(alone, alone + 1) for alone in range(steps[-1].stop if steps else 0, start)]
            steps += [range(start, stop)] if start < stop else []
        return tuple(steps)

    def require_sequential(self) -> None:
        """
        Raises:
            InputError: regions share a step, which nothing here runs yet.
        """
        if self.together:
            raise InputError("regions that run at the same time cannot be run: let them run one after the other")


SEQUENTIAL = Schedule()
"""One region after the other."""
