"""Programs: the lifetimes of their tensors, and what it takes to check them."""

from pathlib import Path

from collage_evo.graph.ir.graph import Tensor
from collage_evo.runtime import program
from collage_evo.runtime.program import Piece, Program


def test_a_tensor_is_alive_from_the_piece_that_makes_it_to_the_last_that_reads_it() -> None:
    wires = ((("x",), "a"), (("a",), "b"), (("a",), "c"), (("b", "c"), "y"))
    pieces = tuple(Piece(Path(), "any", "default", reads, (makes,)) for reads, makes in wires)
    branches = Program(pieces, ("x",), ("y",), {n: Tensor(n, "float32", (4,)) for n in "xabcy"})
    alive = {life.name: (life.first, life.last) for life in program.lifetimes(branches)}
    assert alive == {"x": (-1, 4), "a": (0, 2), "b": (1, 3), "c": (2, 3), "y": (3, 4)}


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
