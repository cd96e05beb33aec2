"""State space of the dynamic program: searches a frontier for the cheapest complete states."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TypeAlias

from collage_evo.genome.cover.frontier import Frontier, Option
from collage_evo.genome.cover.movement import AheadTable, GapTable, ReadTable
from collage_evo.graph.ir.graph import members, union

Chain: TypeAlias = "tuple[int, Chain] | None"
"""Matches placed so far, newest first."""

State = tuple[int, ...]
"""Location of each live tensor (see :class:`Tariff`), in the order of ``_Group.live``."""

MAX_COMPARISONS = 16
"""Dominance is tested against this many of the cheapest retained states: fewer are dropped, never a wrong one."""

ROUNDING = 1e-9


@dataclass
class _Group:
    """States that cover the same nodes and have reserved the same matches."""

    covered: int
    reserved: tuple[Option, ...]
    live: tuple[int, ...]
    rest: float
    states: dict[State, list[tuple[float, Chain]]] = field(default_factory=dict)

    def add(self, state: State, cost: float, chain: Chain, keep: int) -> None:
        entries = self.states.get(state)
        if entries is None:
            self.states[state] = [(cost, chain)]
        elif len(entries) < keep or cost < entries[-1][0]:
            entries.append((cost, chain))
            entries.sort(key=lambda entry: entry[0])
            del entries[keep:]


@dataclass(frozen=True)
class Entry:
    """One way to a state: its cost so far, and the least cost of a cover by this way (ms)."""

    cost: float
    bound: float
    state: State
    chain: Chain


class StateSearch:
    """One pass over all states, by number of nodes covered, then of matches reserved.

    A state consists of the covered nodes, the reserved matches (chosen, but still waiting for other nodes) and the
    location of each live tensor. The lowest uncovered node decides which match covers it; a match that still waits is
    reserved and the nodes it waits for are decided first. Each acyclic cover arises exactly once, and no other.
    """

    def __init__(self, frontier: Frontier, k: int, max_states: int, ceiling: float = float("inf")) -> None:
        self.frontier = frontier
        self.k = k
        self.max_states = max_states
        self.ceiling = ceiling * (1 + ROUNDING) + ROUNDING
        self.everything = (1 << frontier.size) - 1
        self.steps: dict[tuple[int, int], dict[tuple[int, tuple[int, ...]], _Group]] = {}
        self.queue: list[tuple[int, int]] = []
        self.expanded = 0
        self.cut = float("inf")
        self.found: list[Entry] = []
        self._gaps: dict[tuple[int, int, int], GapTable] = {}
        self._reads: dict[tuple[int, int, int], ReadTable] = {}
        self._ahead: dict[tuple[int, int], AheadTable] = {}

    def run(self) -> StateSearch:
        """Visit every state; ``found`` then has the ``k`` cheapest covers, ``cut`` the least cost that was
        dropped."""
        live = tuple(self.frontier.inputs)
        start = self._group(0, (), live, self.frontier.prices.total)
        caller = len(self.frontier.engines)
        start.add(tuple(self._made(tensor, caller, 0) for tensor in live), 0.0, None, self.k)
        while self.queue:
            step = heapq.heappop(self.queue)
            self._step(self.steps.pop(step))
        return self

    @property
    def complete(self) -> bool:
        """Whether no dropped state could be among the k cheapest."""
        if self.cut == float("inf"):
            return True
        return len(self.found) == self.k and self.cut >= self.found[-1].cost

    def _group(
        self, covered: int, reserved: tuple[Option, ...], live: tuple[int, ...], rest: float
    ) -> _Group:
        step = (covered.bit_count(), len(reserved))
        if step not in self.steps:
            self.steps[step] = {}
            heapq.heappush(self.queue, step)
        key = (covered, tuple(option.match for option in reserved))
        group = self.steps[step].get(key)
        if group is None:
            group = self.steps[step][key] = _Group(covered, reserved, live, rest)
        return group

    def _step(self, groups: dict[tuple[int, tuple[int, ...]], _Group]) -> None:
        undominated = [(group, entry) for group in groups.values() for entry in self._undominated(group)]
        if len(undominated) > self.max_states:
            undominated.sort(key=lambda pair: pair[1].bound)
            self.cut = min(self.cut, undominated[self.max_states][1].bound)
            del undominated[self.max_states :]
        self.expanded += len(undominated)
        by_group: dict[int, tuple[_Group, list[Entry]]] = {}
        for group, entry in undominated:
            by_group.setdefault(id(group), (group, []))[1].append(entry)
        for group, entries in by_group.values():
            if group.covered == self.everything:
                self.found = sorted(entries, key=lambda entry: entry.cost)[: self.k]
            else:
                self._expand(group, entries)

    def _undominated(self, group: _Group) -> list[Entry]:
        """Entries that could still be among the k best: fewer than k others are at least as good whatever follows. An
        entry is at least as good if it costs no more even with the largest possible difference in later crossings."""
        ahead = [self._ahead_of(tensor, group.covered) for tensor in group.live]
        entries = []
        for state, ways in group.states.items():
            rest = group.rest + sum(table[where] for table, where in zip(ahead, state, strict=True))
            entries += [
                Entry(cost, cost + rest, state, chain) for cost, chain in ways if cost + rest <= self.ceiling
            ]
        entries.sort(key=lambda entry: entry.cost)
        if len(entries) <= self.k:
            return entries
        gaps = [self._gap(tensor, group.covered) for tensor in group.live]
        undominated: list[Entry] = []
        for entry in entries:
            dominators = 0
            for other in undominated[:MAX_COMPARISONS]:
                slack = entry.cost - other.cost
                for table, ours, theirs in zip(gaps, other.state, entry.state, strict=True):
                    if ours != theirs:
                        slack -= table[ours, theirs]
                        if slack < 0:
                            break
                if slack >= 0:
                    dominators += 1
                    if dominators >= self.k:
                        break
            if dominators < self.k:
                undominated.append(entry)
        return undominated

    def _expand(self, group: _Group, entries: list[Entry]) -> None:
        covered, reserved = group.covered, group.reserved
        missing = reserved[-1].laid.before & ~covered if reserved else self.everything & ~covered
        if not missing:
            self._place(group, reserved[-1], reserved[:-1], entries)
            return
        held = covered | union(option.laid.nodes for option in reserved)
        for option in self.frontier.options[(missing & -missing).bit_length() - 1]:
            laid = option.laid
            waits = laid.before & ~covered
            if laid.nodes & held or waits & held:
                continue
            if not waits:
                self._place(group, option, reserved, entries)
                continue
            target = self._group(covered, (*reserved, option), group.live, group.rest)
            for entry in entries:
                target.add(entry.state, entry.cost, entry.chain, self.k)

    def _place(
        self, group: _Group, option: Option, reserved: tuple[Option, ...], entries: list[Entry]
    ) -> None:
        """Add ``option`` to every entry: charge the tensors it reads, record the location of its own."""
        laid = option.laid
        covered = group.covered | laid.nodes
        slots = {tensor: slot for slot, tensor in enumerate(group.live)}
        reads = [(slots[tensor], self._read(tensor, option.engine, covered)) for tensor in laid.entering]
        places = []
        for tensor in laid.leaving:
            slots[tensor] = len(slots)
            places.append(self._made(tensor, option.engine, covered))
        done = {t for t in laid.entering if not self.frontier.tensors[t].readers & ~covered}
        live = tuple(sorted(tensor for tensor in slots if tensor not in done))
        picks = [slots[tensor] for tensor in live]
        rest = group.rest - option.price
        target = self._group(covered, reserved, live, rest)
        for entry in entries:
            where = [*entry.state, *places]
            cost = entry.cost + option.cost
            for slot, table in reads:
                charge, where[slot] = table[where[slot]]
                cost += charge
            target.add(tuple([where[slot] for slot in picks]), cost, (option.match, entry.chain), self.k)

    def _made(self, tensor: int, source: int, covered: int) -> int:
        """The state of a tensor that ``source`` has just made."""
        engines, _ = self.frontier.engines_reading(tensor, covered)
        tariff = self.frontier.tensors[tensor].tariff
        return tariff.state(source, tariff.holds[source], engines)

    def _read(self, tensor: int, engine: int, covered: int) -> ReadTable:
        engines, _ = self.frontier.engines_reading(tensor, covered)
        key = (tensor, engine, engines)
        if key not in self._reads:
            self._reads[key] = ReadTable(self.frontier.tensors[tensor].tariff, engine, engines)
        return self._reads[key]

    def _ahead_of(self, tensor: int, covered: int) -> AheadTable:
        left = self.frontier.tensors[tensor].readers & ~covered
        if (tensor, left) not in self._ahead:
            tariff = self.frontier.tensors[tensor].tariff
            rewards = [
                (self.frontier.engines_of[rank], self.frontier.prices.rewards[tensor, rank])
                for rank in members(left)
            ]
            self._ahead[tensor, left] = AheadTable(tariff, rewards)
        return self._ahead[tensor, left]

    def _gap(self, tensor: int, covered: int) -> GapTable:
        engines, readers = self.frontier.engines_reading(tensor, covered)
        key = (tensor, engines, readers)
        if key not in self._gaps:
            self._gaps[key] = GapTable(self.frontier.tensors[tensor].tariff, engines, readers)
        return self._gaps[key]


def unroll(chain: Chain) -> tuple[int, ...]:
    """The matches of a chain in the order in which they were placed."""
    matches = []
    while chain is not None:
        match, chain = chain
        matches.append(match)
    return tuple(reversed(matches))
