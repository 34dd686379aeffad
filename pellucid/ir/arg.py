"""What an op's `arg` holds, when it is more than a number or a tuple: small frozen records.

Each record is data only, hashable, and prints as a Python expression, because graph text, content
keys and the docs are all made from that print. `CallInfo` is the one record with parts that a
content key leaves out: names and reasons are for people, and equal kernels stay equal whoever asked
for them.
"""

from __future__ import annotations

import enum
from dataclasses import field
from typing import Any

from pellucid.core.records import dataclass


class AddrSpace(enum.Enum):
    """Where storage lives: GLOBAL outlives the kernel, LOCAL is a tile, REG an accumulator."""

    GLOBAL = "global"
    LOCAL = "local"
    REG = "reg"

    def __repr__(self) -> str:
        return f"AddrSpace.{self.name}"


class AxisKind(enum.Enum):
    """What a RANGE has been chosen to become. One RANGE is not one loop."""

    LOOP = "loop"  # a loop over outputs
    REDUCE = "reduce"  # a loop that feeds an accumulator
    THREAD = "thread"  # the thread index of a CPU kernel
    GLOBAL = "global"  # a launch dimension (grid targets)
    LOCAL = "local"  # an index inside a work-group (grid targets)
    LANES = "lanes"  # lanes of a vector
    UPCAST = "upcast"  # unrolled copies of an output axis
    UNROLL = "unroll"  # unrolled copies of a reduced axis
    ROW = "row"  # rows of a matrix unit
    COLUMN = "column"  # columns of a matrix unit
    DEPTH = "depth"  # what a matrix unit sums over

    def __repr__(self) -> str:
        return f"AxisKind.{self.name}"


@dataclass(frozen=True)
class BufferArg:
    """Storage in a TENSOR or SCHEDULE graph: a number of its own, size in elements, device."""

    id: int
    size: int
    device: str

    def __hash__(self) -> int:
        return self.id


@dataclass(frozen=True)
class ParamArg:
    """A parameter of a kernel (or of a cached schedule): position and size in elements."""

    slot: int
    size: int

    def __hash__(self) -> int:
        return self.slot


@dataclass(frozen=True)
class RangeArg:
    """An iteration axis: its number inside the kernel, and what it has been chosen to become."""

    id: int
    kind: AxisKind

    def __hash__(self) -> int:
        return self.id


@dataclass(frozen=True)
class DefineArg:
    """Storage made inside a kernel: address space, number, and size in elements."""

    space: AddrSpace
    id: int
    size: int

    def __hash__(self) -> int:
        return self.id


@dataclass(frozen=True)
class VariableArg:
    """A symbolic size or offset: its name and inclusive bounds."""

    name: str
    min: int
    max: int


@dataclass(frozen=True)
class SpecialArg:
    """An index that the launch provides: `thread`, or `group0`, `local0` … on grid targets."""

    name: str


@dataclass(frozen=True)
class ReduceArg:
    """A reduction: its associative op, and the axes it removes (TENSOR form; empty afterwards).

    unit: the matrix unit that does the innermost part of a sum of products; empty for none.
    """

    op: Any  # an Op; typed loosely, as op.py stands above this file
    axes: tuple[int, ...] = ()
    unit: str = ""

    def __hash__(self) -> int:
        return hash(self.op)

    def __repr__(self) -> str:
        unit = f", unit={self.unit!r}" if self.unit else ""
        return f"ReduceArg(op={self.op!r}, axes={self.axes!r}{unit})"


@dataclass(frozen=True)
class StageArg:
    """Where a value is materialised, and why (for people: not part of a content key)."""

    space: AddrSpace
    reason: str = ""

    @property
    def key_text(self) -> str:
        """The part of the record that belongs to a content key."""
        return f"StageArg({self.space})"


@dataclass(frozen=True)
class Action:
    """One optimisation step for a kernel: what is done, to which axis, by how much.

    >>> Action("split", axis=1, amount=16)
    Action('split', 1, 16)
    """

    kind: str
    axis: int = -1
    amount: int = 0
    extra: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        parts = [repr(self.kind), str(self.axis), str(self.amount)]
        return f"Action({', '.join(parts + ([repr(self.extra)] if self.extra else []))})"


@dataclass(frozen=True)
class Hint:
    """Advice on how a kernel touches the parameter at a slot; it changes no value.

    kind: "prefetch", ask for what lies *ahead* elements further on, while this is worked at;
    "seek", ask for what an index in memory points to *ahead* turns later; "stream", write past the
    caches, which keep what is there.
    """

    kind: str
    slot: int
    ahead: int = 0


@dataclass(frozen=True)
class KernelInfo:
    """What a SINK says of its kernel: name, actions asked for (None: let us choose) and applied.

    *ordered* marks a kernel whose iterations must run in order on one thread, one at a time
    (a scatter, where the last write wins or sums pile up).  *hints* are left by actions.
    """

    name: str = "kernel"
    actions: tuple[Action, ...] | None = None
    applied: tuple[Action, ...] = ()
    ordered: bool = False
    hints: tuple[Hint, ...] = ()

    def __hash__(self) -> int:
        return hash(self.name)  # all of the actions would be hashed whenever a SINK is sought


@dataclass(frozen=True)
class CallInfo:
    """What a CALL says for people: why it is a kernel of its own, and the user's lines."""

    reason: str = ""
    lines: tuple[str, ...] = ()

    @property
    def key_text(self) -> str:
        """The part of the record that belongs to a content key: nothing."""
        return "CallInfo()"


@dataclass(frozen=True)
class CheckArg:
    """A run-time check of values: which op asked, and the size that an index was held against.

    The flag is an int64 scalar: -1 when all is well, else the position of the first bad index.
    """

    op_name: str
    axis: int
    size: int
    line: str = ""

    @property
    def key_text(self) -> str:
        """The part of the record that belongs to a content key."""
        return f"CheckArg({self.op_name!r}, {self.axis}, {self.size})"


@dataclass(frozen=True)
class ProgramInfo:
    """Facts of a PROGRAM, derived from its lowered SINK and the target.

    name: symbol in the binary.  num_threads: how many thread indices to launch (1: no THREAD).
    reads, writes: slots of the params that are read and written, ascending.
    param_sizes: elements of every slot.  param_dtypes: dtype names of every slot.
    variables: the symbolic values it takes, in the order of the `vars` argument.
    scratch_bytes: per-thread scratch.  flops, bytes: estimates of one run.
    units: the matrix units that it executes.  unit_ops: what those for integers do in one run.
    """

    name: str
    num_threads: int = 1
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    param_sizes: tuple[int, ...] = ()
    param_dtypes: tuple[str, ...] = ()
    variables: tuple[VariableArg, ...] = ()
    scratch_bytes: int = 0
    flops: int = 0
    bytes: int = 0
    applied: tuple[Action, ...] = field(default=())
    units: tuple[str, ...] = ()
    unit_ops: int = 0

    def __hash__(self) -> int:
        return hash(self.name)
