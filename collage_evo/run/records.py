"""Records of a run: what its stages make of each other, looked up by their types."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar, cast

from collage_evo.report.stage import Stage

R = TypeVar("R")


@dataclass(frozen=True)
class Row:
    """A row of a plan: a function that makes one record of those that its parameters are annotated with.

    Attributes:
        make: the function, or a class of records.
        stages: that it reports, if there is no such record yet.
        stored: file of the record in the run directory, where the function writes and reads it; none if it is made
            again by each process.
        bound: configuration key of the seconds that it takes at most, by which the function ends.
    """

    make: Callable[..., object]
    stages: tuple[Stage, ...] = ()
    stored: str = ""
    bound: str = ""

    @property
    def record(self) -> object:
        """The type of the record."""
        return self.make if isinstance(self.make, type) else self._signature.return_annotation

    @property
    def needs(self) -> tuple[object, ...]:
        """Types of the records that it needs."""
        return tuple(parameter.annotation for parameter in self._signature.parameters.values())

    @cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.make, eval_str=True)


@dataclass(frozen=True)
class Plan:
    """Rows in the order in which a run evaluates them: each needs only records of rows before it, or given ones."""

    rows: tuple[Row, ...]

    def replacing(self, *others: Row) -> Plan:
        """The plan with ``others`` in place of its rows for the same records."""
        makers = {row.record: row for row in others}
        return Plan(tuple(makers.get(row.record, row) for row in self.rows))

    def rows_for(self, wanted: object, made: Mapping[object, object]) -> list[Row]:
        """The rows to evaluate for a record, in order, if those in ``made`` exist."""
        missing = {wanted} - made.keys()
        rows = []
        for row in reversed(self.rows):
            if row.record in missing:
                rows.append(row)
                missing |= set(row.needs) - made.keys()
        return rows[::-1]


@dataclass(frozen=True)
class Records:
    """The records of a run, by type: each is made on first access, after those that it needs, and once.

    A search raises ``NotSearchable`` if the model only runs whole, and all rows raise ``CollageError``, whose message
    explains what to do.
    """

    plan: Plan
    made: dict[object, object]

    def __getitem__(self, kind: type[R]) -> R:
        for row in self.plan.rows_for(kind, self.made):
            self.made[row.record] = row.make(*(self.made[need] for need in row.needs))
        return cast(R, self.made[kind])

    def under(self, plan: Plan) -> Records:
        """The same records, of which ``plan`` makes those that are missing."""
        return replace(self, plan=plan)

    def having(self, given: Mapping[object, object]) -> Records:
        """These records with others in addition, or in place of them."""
        return Records(self.plan, {**self.made, **given})
