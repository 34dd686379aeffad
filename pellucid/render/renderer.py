"""What all renderers share: the table of emitters, the reading of a linear program, and `Renderer`.

    @emits(Ops.SQRT)                          one small function for each op;
    def square_root(w, node): ...             the first registered row that fits is taken

A program is a LINEAR of native ops, each after its sources. RANGE opens a loop and END closes it,
IF and ENDIF likewise; a node that is no effect is a value, computed where it stands. AFTER and
GROUP only said in which order things happen, which is the order of the list now. A DEFINE in
registers of size 1 is a variable: LOAD reads it and STORE sets it.

    DEFINE acc; STORE acc, 0; RANGE i; … ; STORE acc, acc + x; END; LOAD acc
    ->  acc0 = 0; for (i0 …) { acc0 = acc0 + x; }  … acc0 …

Every kernel is a function `void NAME(void **buffers, const int64_t *vars, int64_t thread, void
*scratch)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Generic, TypeVar

from pellucid.core.dtype import DType, dtypes
from pellucid.core.errors import CompileError
from pellucid.core.target import Target, host_target
from pellucid.ir.arg import AddrSpace, DefineArg, ProgramInfo
from pellucid.ir.bounds import bounds
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp

W = TypeVar("W")
Emit = Callable[[W, UOp], str | None]

SCRATCH_ALIGNMENT: Final = 64
"""Each piece of scratch memory starts at a multiple of this many bytes."""

NATIVE_DTYPES: Final = frozenset(
    d.name
    for d in (
        *(dtypes.bool, dtypes.float32, dtypes.float64),
        *(dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64),
        *(dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64),
    )
)
"""Types that every CPU renderer computes in."""

# What an emitter may ask for, besides the op.
_FACTS: Final[dict[str, Callable[[UOp], bool]]] = {
    "floats": lambda node: node.src[0].dtype.is_float,
    "wide": lambda node: node.dtype.lanes > 1 or any(s.dtype.lanes > 1 for s in node.src),
    "gated": lambda node: len(node.src) > 2,
    "unsigned": lambda node: node.src[0].dtype.is_unsigned or node.src[0].dtype.is_bool,
}


@dataclass(frozen=True)
class _Row(Generic[W]):
    """An emitter, and the facts that must hold for it to be chosen."""

    facts: tuple[tuple[Callable[[UOp], bool], bool], ...]
    emit: Emit[W]


class Emitters(Generic[W]):
    """The table of a renderer: for each op, its emitters with the facts that they ask for."""

    def __init__(self) -> None:
        self.rows: dict[Op, list[_Row[W]]] = {}

    def __call__(self, *ops: Op, **facts: bool) -> Callable[[Emit[W]], Emit[W]]:
        """Register an emitter for *ops*, where *facts* (floats, wide, gated, unsigned) hold."""
        asked = tuple((_FACTS[name], wanted) for name, wanted in facts.items())

        def register(emit: Emit[W]) -> Emit[W]:
            for op in ops:
                self.rows.setdefault(op, []).append(_Row(asked, emit))
            return emit

        return register

    def find(self, node: UOp) -> Emit[W] | None:
        """The emitter for *node*: the first whose facts hold."""
        for row in self.rows.get(node.op, ()):
            if all(fact(node) is wanted for fact, wanted in row.facts):
                return row.emit
        return None

    @property
    def elementwise_ops(self) -> frozenset[str]:
        """Names of the elementwise ops that the table has."""
        return frozenset(op.name for op in self.rows if op.is_elementwise)


class Renderer:
    """A renderer: it turns linear programs into text, for a target that says what it can spell.

    >>> from pellucid.render import CRenderer
    >>> "MULADD" in CRenderer().target.native_ops or not CRenderer().target.has("fma")
    True
    """

    name: ClassVar[str] = ""
    version: ClassVar[int] = 1

    def __init__(self, target: Target | None = None) -> None:
        self.target = self.describe(target or host_target())

    def describe(self, machine: Target) -> Target:
        """Add to the facts of *machine* what this renderer can spell on it."""
        raise NotImplementedError

    def render(self, linear: UOp, info: ProgramInfo) -> str:
        """Return the text of the kernel *linear*."""
        raise NotImplementedError

    def join(self, texts: Sequence[str], names: Sequence[str]) -> str:
        """Return one text of several that `render` gave, whose kernels have different *names*."""
        raise NotImplementedError

    @property
    def key(self) -> str:
        """A text that is equal exactly for renderers that give equal text, for cache keys."""
        return f"{self.name} {self.version} {self.target.key}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.target.arch})"


def described(machine: Target, ops: Iterable[str], extra_dtypes: Iterable[str] = ()) -> Target:
    """The target of a CPU renderer with *ops*; MULADD only where the machine rounds it once."""
    native = set(ops)
    if machine.arch in ("x86-64", "generic") and not machine.has("fma"):
        native.discard(Ops.MULADD.name)
    return replace(
        machine,
        native_ops=frozenset(native),
        native_dtypes=NATIVE_DTYPES | frozenset(extra_dtypes),
        has_masked_memory=True,
        has_threads=True,
        has_lanes=True,
    )


def storage_of(node: UOp) -> UOp:
    """The PARAM or DEFINE below AFTERs and an INDEX.

    >>> acc = UOp(Ops.DEFINE, dtypes.int32, (), DefineArg(AddrSpace.REG, 0, 1))
    >>> storage_of(acc.after(acc)) is acc
    True
    """
    while node.op is Ops.AFTER or node.op is Ops.INDEX:
        node = node.src[0]
    return node


def value_of(node: UOp) -> UOp:
    """The node itself, below the AFTERs that said when it may be used."""
    while node.op is Ops.AFTER:
        node = node.src[0]
    return node


def is_register(storage: UOp) -> bool:
    """True for an accumulator that is one variable: in registers, of size 1."""
    arg = storage.arg
    return storage.op is Ops.DEFINE and arg.space is AddrSpace.REG and arg.size == 1


def storage_bytes(define: UOp) -> int:
    """Bytes of a DEFINE."""
    arg: DefineArg = define.arg
    return define.dtype.itemsize * arg.size


def scratch_layout(linear: UOp) -> tuple[dict[UOp, int], int]:
    """Offsets of a kernel's LOCAL storage in its scratch memory, and the bytes of all of it.

    >>> tile = UOp(Ops.DEFINE, dtypes.float32, (), DefineArg(AddrSpace.LOCAL, 0, 17))
    >>> scratch_layout(UOp(Ops.LINEAR, dtypes.void, (tile,)))[1]
    128
    """
    offsets: dict[UOp, int] = {}
    end = 0
    for node in linear.toposort():
        if node.op is Ops.DEFINE and node.arg.space is AddrSpace.LOCAL:
            offsets[node] = end
            end += -(-storage_bytes(node) // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
    return offsets, end


def streamed_bytes(items: tuple[UOp, ...]) -> dict[int, int]:
    """The slots of parameters that are written past the caches, and the widest vector for each."""
    found: dict[int, int] = {}
    for node in items:
        if node.op is Ops.STORE and node.arg == "stream":
            slot, size_bytes = storage_of(node.src[0]).arg.slot, node.src[1].dtype.itemsize
            found[slot] = max(found.get(slot, 0), size_bytes)
    return dict(sorted(found.items()))


def loop_bodies(items: tuple[UOp, ...]) -> dict[UOp, tuple[UOp, ...]]:
    """The registers that are set between each RANGE or IF and the END or ENDIF that closes it."""
    found: dict[UOp, dict[UOp, None]] = {}
    open_blocks: list[UOp] = []
    for node in items:
        if node.op is Ops.RANGE or node.op is Ops.IF:
            open_blocks.append(node)
            found[node] = {}
        elif node.op is Ops.END:
            del open_blocks[len(open_blocks) - len(closed_ranges(node)) :]
        elif node.op is Ops.ENDIF:
            open_blocks.pop()
        elif node.op is Ops.STORE and is_register(storage_of(node.src[0])):
            for block in open_blocks:
                found[block][storage_of(node.src[0])] = None
    return {block: tuple(registers) for block, registers in found.items()}


def closed_ranges(end: UOp) -> list[UOp]:
    """The loops that an END closes."""
    return [source for source in end.src[1:] if source.op is Ops.RANGE]


def leaves(linear: UOp, op: Op) -> Iterator[UOp]:
    """The nodes of a leaf *op* in a program, each once, in a fixed order."""
    return (node for node in linear.toposort() if node.op is op)


def cannot_wrap(node: UOp) -> bool:
    """True where bounds prove that an integer ADD, SUB or MUL stays inside of its type."""
    if node.dtype.lanes > 1 or not node.dtype.is_int:
        return False
    left, right = bounds(node.src[0]), bounds(node.src[1])
    corners = _CORNERS[node.op](left.min, left.max, right.min, right.max)
    return int(node.dtype.min) <= min(corners) and max(corners) <= int(node.dtype.max)


_CORNERS: Final[dict[Op, Callable[[int, int, int, int], tuple[int, ...]]]] = {
    Ops.ADD: lambda a, b, c, d: (a + c, b + d),
    Ops.SUB: lambda a, b, c, d: (a - d, b - c),
    Ops.MUL: lambda a, b, c, d: (a * c, a * d, b * c, b * d),
}


def refusal(node: UOp, renderer: str, kernel: str, problem: str = "") -> CompileError:
    """The error for what a renderer cannot write: a pass left it over, or in disorder."""
    types = ", ".join(str(s.dtype) for s in node.src)
    problem = problem or f"the {renderer} renderer has no emitter for this op"
    return CompileError(
        f"{problem}: {node.op.name} ({types}) -> {node.dtype}", stage="render", kernel=kernel
    )


def memory_dtype(dtype: DType) -> DType:
    """How a value lies in memory: a bool is a byte, 0 or 1; all else is itself."""
    return dtypes.uint8.vec(dtype.lanes) if dtype.is_bool else dtype
