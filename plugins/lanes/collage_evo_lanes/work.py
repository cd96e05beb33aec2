"""The work of a region for lane scheduling: times, dependencies, and the timeline of a schedule."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collage_evo.graph.ir.graph import Graph, NodeSet, members
from collage_evo_lanes.estimate import USUAL, Charges


@dataclass(frozen=True)
class Flow:
    """A tensor between nodes: ms to convert it at a border of its maker and its reader."""

    maker: int
    """-1 where it comes from outside."""
    readers: tuple[int, ...]
    ms: float
    returned: bool


@dataclass(frozen=True)
class Work:
    """The ms of each node on a lane's cores, and for each the nodes it waits for and those that wait for it."""

    ms: tuple[float, ...]
    before: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]
    flows: tuple[Flow, ...]
    charges: Charges

    @classmethod
    def of(cls, graph: Graph, ms: Sequence[float], charges: Charges = USUAL) -> Work:
        """The work of all of ``graph``, whose nodes take ``ms``."""
        before, after = (tuple(tuple(members(nodes)) for nodes in side) for side in (graph.pred, graph.succ))
        return cls(tuple(ms), before, after, tuple(_flows(graph, charges)), charges)

    @property
    def serial_ms(self) -> float:
        """Time as one call in one lane."""
        ends = sum(flow.ms for flow in self.flows if flow.returned or flow.maker < 0)
        return self.charges.call_ms + ends + sum(self.ms)


def _flows(graph: Graph, charges: Charges) -> Iterator[Flow]:
    for name in (*graph.inputs, *(name for node in graph.nodes for name in node.outputs if name)):
        readers, returned = graph.consumers.get(name, ()), name in graph.outputs
        if readers or returned:
            ms = graph.tensors[name].nbytes / charges.border_bytes_per_ms
            yield Flow(graph.producer.get(name, -1), tuple(readers), ms, returned)


@dataclass(frozen=True)
class Groups:
    """Nodes that run as one piece each. ``before``: the groups that each waits for; ``ms`` includes its borders."""

    nodes: tuple[NodeSet, ...]
    lane: tuple[int, ...]
    ms: tuple[float, ...]
    before: tuple[frozenset[int], ...]
    handoff_ms: float

    @classmethod
    def of(cls, work: Work, nodes: Sequence[NodeSet], lane: Sequence[int]) -> Groups:
        """``nodes`` as groups in the lanes ``lane``; all of ``work`` is in one of them each."""
        owner = [0] * len(work.ms)
        for group, inside in enumerate(nodes):
            for index in members(inside):
                owner[index] = group
        ms = [work.charges.call_ms] * len(nodes)
        before: list[set[int]] = [set() for _ in nodes]
        for index, group in enumerate(owner):
            ms[group] += work.ms[index]
            before[group].update(owner[maker] for maker in work.before[index])
        for flow in work.flows:
            home = {owner[flow.maker]} if flow.maker >= 0 else set()
            others = {owner[index] for index in flow.readers} - home
            for group in (*home, *others) if others or flow.returned else ():
                ms[group] += flow.ms
        waits = tuple(frozenset(others - {group}) for group, others in enumerate(before))
        return cls(tuple(nodes), tuple(lane), tuple(ms), waits, work.charges.handoff_ms)

    def timeline(self) -> Timeline | None:
        """List scheduling: of the ready groups the one that can begin first runs next, then the most urgent one.

        None where groups wait for each other in a circle.
        """
        after: list[list[int]] = [[] for _ in self.nodes]
        waiting = [len(before) for before in self.before]
        for group, before in enumerate(self.before):
            for maker in sorted(before):
                after[maker].append(group)
        urgency = self._urgency(after)
        if urgency is None:
            return None
        idle_from = [0.0] * (max(self.lane) + 1)
        ready_at = [0.0] * len(self.nodes)
        queues: list[list[tuple[float, float, int]]] = [[] for _ in idle_from]

        def enqueue(group: int) -> None:
            heapq.heappush(queues[self.lane[group]], (ready_at[group], -urgency[group], group))

        for group, missing in enumerate(waiting):
            if not missing:
                enqueue(group)
        order: list[int] = []
        while any(queues):
            start, _, lane = min(
                (max(idle_from[lane], queue[0][0]), queue[0][1], lane) for lane, queue in enumerate(queues) if queue
            )
            group = _most_urgent(queues[lane], start)
            idle_from[lane] = start + self.ms[group]
            order.append(group)
            for other in after[group]:
                handoff = self.handoff_ms if self.lane[other] != lane else 0.0
                ready_at[other] = max(ready_at[other], idle_from[lane] + handoff)
                waiting[other] -= 1
                if not waiting[other]:
                    enqueue(other)
        return Timeline(tuple(order), max(idle_from))

    def _urgency(self, after: Sequence[Sequence[int]]) -> list[float] | None:
        """Upward rank (Topcuoglu et al., HEFT, 2002): ms from a group's beginning to the end of all that follows."""
        rank = list(self.ms)
        waiting = [len(others) for others in after]
        ready = [group for group, missing in enumerate(waiting) if not missing]
        for group in ready:
            for maker in sorted(self.before[group]):
                handoff = self.handoff_ms if self.lane[maker] != self.lane[group] else 0.0
                rank[maker] = max(rank[maker], self.ms[maker] + handoff + rank[group])
                waiting[maker] -= 1
                if not waiting[maker]:
                    ready.append(maker)
        return rank if len(ready) == len(rank) else None


def _most_urgent(queue: list[tuple[float, float, int]], start: float) -> int:
    """Remove from ``queue`` the group with the highest rank of those that are ready at ``start``."""
    best = min((entry for entry in queue if entry[0] <= start), key=lambda entry: entry[1:])
    queue.remove(best)
    heapq.heapify(queue)
    return best[2]


@dataclass(frozen=True)
class Timeline:
    """An order in which groups could run one after the other, and ms until all lanes are done."""

    order: tuple[int, ...]
    makespan_ms: float
