"""Steps of programs on two memories, run by a device that works in order, as late as it may."""

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from collage_evo.graph.ir.graph import Tensor
from collage_evo.graph.ir.memory import MemoryPlan, plan_memory
from collage_evo.runtime.program import Piece, Program, lifetimes
from collage_evo_cuda.route import RunPiece, ToDevice, ToHost, Wait, route_of

Drawn = tuple[Program, list[bool]]


@st.composite
def programs(draw: st.DrawFn) -> Drawn:
    """Some pieces with inputs of what was there before, who of them runs on the device."""
    inputs = tuple(f"in{k}" for k in range(draw(st.integers(1, 2))))
    made, pieces = list(inputs), []
    for index in range(draw(st.integers(1, 7))):
        reads = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
        makes = [f"t{index}.{k}" for k in range(draw(st.integers(1, 2)))]
        pieces.append(Piece(Path(), "any", "default", tuple(reads), tuple(makes)))
        made += makes
    outputs = {made[-1], *draw(st.lists(st.sampled_from(made), max_size=2))}
    sizes = draw(st.lists(st.integers(0, 3), min_size=len(made), max_size=len(made)))
    tensors = {name: Tensor(name, "float32", (64 * size,)) for name, size in zip(made, sizes, strict=True)}
    program = Program(tuple(pieces), inputs, tuple(sorted(outputs)), tensors)
    on_device = draw(st.lists(st.booleans(), min_size=len(pieces), max_size=len(pieces)))
    return program, on_device


class Memory:
    """What is where: whoever reads a tensor finds it whole."""

    def __init__(self, plan: MemoryPlan, tensors: Mapping[str, Tensor]) -> None:
        self.places = {name: range(start, start + tensors[name].nbytes) for name, start in plan.offsets.items()}
        self.bytes: dict[int, str] = {}

    def write(self, name: str) -> None:
        self.bytes.update(dict.fromkeys(self.places[name], name))

    def read(self, name: str) -> None:
        assert all(self.bytes.get(place) == name for place in self.places[name]), name


@given(programs(), st.randoms(use_true_random=False))
@settings(max_examples=300)
def test_whoever_reads_a_tensor_finds_it_however_late_the_device_is(drawn: Drawn, chance: Random) -> None:
    program, on_device = drawn
    route, tensors = route_of(program, on_device), program.tensors
    host, device = (Memory(plan_memory(lives), tensors) for lives in (route.host, route.device))
    queue: list[Callable[[], None]] = []

    def work(most: int) -> None:
        for _ in range(min(most, len(queue))):
            queue.pop(0)()

    def piece(memory: Memory, index: int) -> None:
        for name in program.pieces[index].inputs:
            memory.read(name)
        for name in program.pieces[index].outputs:
            memory.write(name)

    def copy(source: Memory, target: Memory, name: str) -> None:
        source.read(name)
        target.write(name)

    for _ in range(2):
        for name in program.inputs:
            host.write(name)
        for step in route.whole:
            match step:
                case RunPiece(index, True):
                    queue.append(partial(piece, device, index))
                case RunPiece(index, False):
                    piece(host, index)
                case ToDevice(name):
                    queue.append(partial(copy, host, device, name))
                case ToHost(name):
                    queue.append(partial(copy, device, host, name))
                case Wait():
                    work(len(queue))
            work(chance.choice((0, 0, 1, 2)))
        for name in (*program.inputs, *program.outputs):
            host.read(name)
            if name in device.places:
                device.read(name)


def test_what_the_device_did_before_the_host_works_on_it_has_ended() -> None:
    names = [f"t{k}" for k in range(8)]
    pieces = [Piece(Path(), "any", "default", (one,), (other,)) for one, other in itertools.pairwise(names)]
    program = Program(tuple(pieces), ("t0",), ("t7",), {name: Tensor(name, "float32", (64,)) for name in names})
    plan = plan_memory(route_of(program, [True, False] * 3 + [True]).device, 256)
    assert set(plan.offsets) == set(names)
    assert plan.size == 3 * 256, "the input, and what one piece reads and makes"


@given(programs())
def test_nothing_is_copied_twice_and_nobody_waits_in_vain(drawn: Drawn) -> None:
    program, on_device = drawn
    steps = route_of(program, on_device).whole
    copies = [step for step in steps if isinstance(step, ToDevice | ToHost)]
    assert len(set(copies)) == len(copies)
    coming: set[str] = set()
    for step, following in itertools.pairwise(steps):
        if isinstance(step, ToHost):
            coming.add(step.tensor)
        if isinstance(step, Wait):
            assert isinstance(following, RunPiece)
            assert coming.intersection(program.pieces[following.piece].inputs)
            coming.clear()


@given(programs())
def test_a_program_of_the_host_alone_is_planned_as_without_a_device(drawn: Drawn) -> None:
    program, on_device = drawn
    route = route_of(program, [False] * len(on_device))

    def overlaps(lives: Mapping[str, tuple[int, int]]) -> set[tuple[str, str]]:
        return {(a, b) for a in lives for b in lives if lives[a][0] <= lives[b][1] and lives[b][0] <= lives[a][1]}

    here, there = ({x.name: (x.first, x.last) for x in lives} for lives in (route.host, lifetimes(program)))
    assert overlaps(here) == overlaps(there)
    assert not route.device
    assert not route.before + route.after
