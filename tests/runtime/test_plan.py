"""The arena: no two tensors alive at the same time overlap, and freed memory is used again."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from collage_evo.graph.ir.graph import Tensor
from collage_evo.runtime import program
from collage_evo.runtime.plan import Lifetime, plan_memory
from collage_evo.runtime.program import Piece, Program


@st.composite
def lifetimes(draw: st.DrawFn) -> list[Lifetime]:
    found = []
    for index in range(draw(st.integers(1, 12))):
        first = draw(st.integers(0, 10))
        size = draw(st.integers(0, 300))
        found.append(Lifetime(Tensor(f"t{index}", "uint8", (size,)), first, first + draw(st.integers(0, 5))))
    return found


@given(lifetimes())
def test_tensors_alive_together_never_overlap(lives: list[Lifetime]) -> None:
    plan = plan_memory(lives)
    for a in lives:
        for b in lives:
            if a is not b and a.first <= b.last and b.first <= a.last:
                start, other = plan.offsets[a.tensor.name], plan.offsets[b.tensor.name]
                apart = start + a.tensor.nbytes <= other or other + b.tensor.nbytes <= start
                assert apart or not a.tensor.nbytes or not b.tensor.nbytes


def test_a_tensor_is_alive_from_the_piece_that_makes_it_to_the_last_that_reads_it() -> None:
    wires = ((("x",), "a"), (("a",), "b"), (("a",), "c"), (("b", "c"), "y"))
    pieces = tuple(Piece(Path(), "any", "default", reads, (makes,)) for reads, makes in wires)
    branches = Program(pieces, ("x",), ("y",), {n: Tensor(n, "float32", (4,)) for n in "xabcy"})
    alive = {life.tensor.name: (life.first, life.last) for life in program.lifetimes(branches)}
    assert alive == {"x": (-1, 4), "a": (0, 2), "b": (1, 3), "c": (2, 3), "y": (3, 4)}


def test_memory_is_used_again_once_a_tensor_is_dead() -> None:
    chain = [Lifetime(Tensor(f"t{i}", "float32", (1000,)), i, i + 1) for i in range(50)]
    assert plan_memory(chain).size <= 2 * 4096


class Counted(str):
    """A name that counts how often it is looked up."""

    looks = 0

    def __hash__(self) -> int:
        Counted.looks += 1
        return super().__hash__()


def test_the_work_of_checking_a_program_grows_with_its_tensors_and_no_faster() -> None:
    names = tuple(Counted(f"t{index}") for index in range(1000))
    piece = Piece(Path(), "any", "default", ("x",), names)
    Counted.looks = 0
    program.require_closed(Program((piece,), ("x",), names, {}))
    assert Counted.looks <= 10 * len(names)
