"""Records of a run: what its stages make of each other, looked up by their types; one loop makes and stores them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeVar, cast

from collage_evo.files import Stored
from collage_evo.run.context import RunContext

R = TypeVar("R")


class Seconds(float):
    """The time that a row may take, for a function with such a parameter: the loop gives it the value of its key."""


class Key(str):
    """Digest of what a record is made of, for a function with such a parameter, which stores it with the record."""


@dataclass(frozen=True)
class ByMaker:
    """A path in the run directory that a row's function reads and writes itself: artifacts lie beside the file, it
    grows, or each process writes it again."""

    path: str


@dataclass(frozen=True)
class Row:
    """A row of a plan: a function that makes one record of those that its parameters are annotated with.

    Attributes:
        make: the function, or a class of records. If the record is ``stored``, it makes the value of that file;
            for None nothing is stored.
        stored: the file that the loop reads, if there is one that holds, and else writes; None if each process makes
            the record again.
        record_of: makes the record of a value, or None, and of records that its further parameters are annotated
            with. By default, the value is the record.
        key: digest of what a value is made of, of which it is the ``key``: a file with another one is replaced. By
            default, it is made once in a run's life.
        bound: configuration key of the :class:`Seconds` that the function is given.
    """

    make: Callable[..., object]
    stored: Stored[Any] | ByMaker | None = None
    record_of: Callable[..., object] | None = None
    key: Callable[..., Key] | None = None
    bound: str = ""

    @cached_property
    def record(self) -> object:
        """The type of the record."""
        last = self.record_of or self.make
        return last if isinstance(last, type) else inspect.signature(last, eval_str=True).return_annotation

    @cached_property
    def needs(self) -> tuple[object, ...]:
        """Types of the records that it needs."""
        needs = [*_needs(self.make), *_needs(self.key), *_needs(self.record_of)[1:]]
        return tuple(dict.fromkeys(need for need in needs if need not in (Seconds, Key)))


def _needs(function: Callable[..., object] | None) -> list[object]:
    """Types of the parameters of ``function``."""
    parameters = inspect.signature(function, eval_str=True).parameters.values() if function else ()
    return [parameter.annotation for parameter in parameters]


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
    """The records of a run, by type: each is read or made on first access, after those that it needs, and once.

    A search raises ``NotSearchable`` if the model only runs whole, and all rows raise ``CollageError``, whose message
    explains what to do.
    """

    plan: Plan
    made: dict[object, object]

    def __getitem__(self, kind: type[R]) -> R:
        for row in self.plan.rows_for(kind, self.made):
            self.made[row.record] = self._evaluated(row)
        return cast(R, self.made[kind])

    def _evaluated(self, row: Row) -> object:
        """The record of ``row``, of its file or made now."""
        run, given = cast(RunContext, self.made[RunContext]), dict(self.made)

        def needed(function: Callable[..., object], first: int = 0) -> list[Any]:
            return [given[need] for need in _needs(function)[first:]]

        if row.bound:
            given[Seconds] = Seconds(attrgetter(row.bound)(run.config))
        if not isinstance(row.stored, Stored):
            return row.make(*needed(row.make))
        if row.key:
            given[Key] = row.key(*needed(row.key))
        value = run.store.get(row.stored)
        if value is None or (row.key and value.key != given[Key]):
            value = row.make(*needed(row.make))
            if value is not None:
                run.store.put(row.stored, value)
        return row.record_of(value, *needed(row.record_of, 1)) if row.record_of else value

    def under(self, plan: Plan) -> Records:
        """The same records, of which ``plan`` makes those that are missing."""
        return replace(self, plan=plan)

    def having(self, given: Mapping[object, object]) -> Records:
        """These records with others in addition, or in place of them."""
        return Records(self.plan, {**self.made, **given})
