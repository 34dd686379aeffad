"""A compiled schedule that lacks nothing but addresses.

    CALL(PROGRAM add, BUFFER 4, BUFFER 1), CALL(PROGRAM mul, BUFFER 5, BUFFER 4)
      ->  a tape, and for each role a list of places in it:
          given  BUFFER 1   the caller's, another one in each run
          made   BUFFER 5   new in each run: results, flags of checks
          own    BUFFER 4   scratch of the run, forgotten afterwards (or kept, for a replay)

One run is: write addresses, play the tape. Graphs, schedules and programs are not looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pellucid.core.dtype import dtypes
from pellucid.core.records import dataclass
from pellucid.engine.compile import device_of
from pellucid.engine.memory import buffer_of
from pellucid.engine.run import loaded_program
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp, new_buffer
from pellucid.runtime.allocator import Block
from pellucid.runtime.program import CPUProgram
from pellucid.runtime.registry import allocator_of
from pellucid.runtime.tape import Step, Tape, copy_function

Places = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """Memory that is new in each run, for a BUFFER of the kind of *like*."""

    like: UOp
    nbytes: int
    allocate: Callable[[int], Block]
    places: Places


class Prepared:
    """A tape, and which of its words hold whose address. Run it by one thread at a time."""

    __slots__ = ("given", "made", "own", "tape")

    def __init__(
        self, tape: Tape, given: Sequence[Places], made: Sequence[Made], own: Sequence[Made]
    ) -> None:
        self.tape = tape
        self.given = tuple(given)
        self.made = tuple(made)
        self.own = tuple(own)

    def run(self, given: Sequence[Block]) -> list[Block]:
        """Run on the *given* blocks; return the new blocks that were made."""
        words = self.tape.words
        for block, places in zip(given, self.given, strict=True):
            for place in places:
                words[place] = block.address
        results = self._allocated(self.made)
        own = self._allocated(self.own) if self.own else None  # held until the tape has been played
        self.tape.run()
        del own
        return results

    def _allocated(self, wanted: Sequence[Made]) -> list[Block]:
        blocks = []
        words = self.tape.words
        for one in wanted:
            block = one.allocate(one.nbytes)
            blocks.append(block)
            for place in one.places:
                words[place] = block.address
        return blocks


def prepare(
    calls: Sequence[UOp], given: Sequence[UOp], made: Sequence[UOp], *, keep: bool = False
) -> Prepared | None:
    """Prepare compiled CALLs, or return None for those that have to be run one by one.

    These are calls on devices without memory, and programs with variables. With *keep* all other
    BUFFERs have the memory that they have, whose nodes the caller holds.
    """
    steps: list[Step] = []
    programs: list[CPUProgram] = []
    for call in calls:
        step = _step(call, programs)
        if step is None:
            return None
        steps.append(step)
    tape = Tape(steps, programs)
    places: dict[UOp, list[int]] = {}
    for call, first in zip(calls, tape.places, strict=True):
        for offset, node in enumerate(call.src[1:]):
            places.setdefault(node, []).append(first + offset)
    fixed = {*given, *made}
    if keep:
        tape.take_scratch()
        for node in places.keys() - fixed:
            for place in places[node]:
                tape.words[place] = buffer_of(node).address
            fixed.add(node)
    own = [_made(node, tuple(found)) for node, found in places.items() if node not in fixed]
    if tape.scratch_bytes and not keep:
        scratch = new_buffer(tape.scratch_bytes, dtypes.uint8, "CPU")
        own.append(_made(scratch, tuple(tape.scratch_places)))
    return Prepared(
        tape,
        [tuple(places.get(node, ())) for node in given],
        [_made(node, tuple(places.get(node, ()))) for node in made],
        own,
    )


def _made(node: UOp, places: Places) -> Made:
    arg = node.arg
    allocate = allocator_of(arg.device).allocate
    return Made(node, arg.size * node.dtype.itemsize, allocate, places)


def _step(call: UOp, programs: list[CPUProgram]) -> Step | None:
    callee, *nodes = call.src
    if any(node.arg.device == "NULL" for node in nodes):
        return None
    empty = (0,) * len(nodes)
    if callee.op is Ops.COPY:
        nbytes = nodes[0].arg.size * nodes[0].dtype.itemsize
        return Step(copy_function(), empty, (nbytes,), work=nbytes)
    info = callee.arg
    program = loaded_program(callee, device_of(call))
    if info.variables or not isinstance(program, CPUProgram):
        return None
    programs.append(program)
    return Step(
        program.function_address,
        empty,
        (),
        info.num_threads,
        info.scratch_bytes,
        work=info.flops + info.bytes,
    )
