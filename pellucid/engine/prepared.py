"""A compiled schedule that lacks nothing but addresses.

    CALL(PROGRAM add, BUFFER 4, BUFFER 1), CALL(PROGRAM mul, BUFFER 5, BUFFER 4)
      ->  a tape, and for each role a list of places in it:
          given  BUFFER 1   the caller's, another one in each run
          made   BUFFER 5   new in each run: results, flags of checks
          own    BUFFER 4   scratch of the run, forgotten afterwards (or kept, for a replay)

One run is: write addresses, play the tape. Graphs, schedules and programs are not looked at again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pellucid.engine.compile import device_of
from pellucid.engine.memory import buffer_of, new_memory
from pellucid.engine.run import loaded_program
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.runtime.allocator import Allocator
from pellucid.runtime.program import CPUProgram
from pellucid.runtime.registry import allocator_of
from pellucid.runtime.tape import Step, Tape, copy_function

Places = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Own:
    """Memory that a run needs for itself."""

    nbytes: int
    allocator: Allocator
    places: Places


class Prepared:
    """A tape, and which of its words hold whose address. Run it by one thread at a time."""

    __slots__ = ("_given", "_made", "_own", "tape")

    def __init__(
        self,
        tape: Tape,
        given: Sequence[Places],
        made: Sequence[tuple[UOp, Places]],
        own: Sequence[Own],
    ) -> None:
        self.tape = tape
        self._given = tuple(given)
        self._made = tuple(made)
        self._own = tuple(own)

    def run(self, given: Sequence[UOp]) -> list[UOp]:
        """Run on the memory of the *given* BUFFERs; return the new BUFFERs that were made."""
        tape = self.tape
        words = tape.words
        for node, places in zip(given, self._given, strict=True):
            address = buffer_of(node).address
            for place in places:
                words[place] = address
        results = []
        for like, places in self._made:
            node, address = new_memory(like)
            results.append(node)
            for place in places:
                words[place] = address
        if self._own:
            held = []  # until the tape has been played
            for own in self._own:
                storage = own.allocator.allocate(own.nbytes)
                held.append(storage)
                for place in own.places:
                    words[place] = storage.address
        tape.run()
        return results


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
    own = [
        Own(node.arg.size * node.dtype.itemsize, allocator_of(node.arg.device), tuple(found))
        for node, found in places.items()
        if node not in fixed
    ]
    if tape.scratch_bytes and not keep:
        own.append(Own(tape.scratch_bytes, allocator_of("CPU"), tuple(tape.scratch_places)))
    return Prepared(
        tape,
        [tuple(places.get(node, ())) for node in given],
        [(node, tuple(places.get(node, ()))) for node in made],
        own,
    )


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
