"""What all renderers share: the table of emitters, and `Renderer`.

    @emits(Ops.SQRT)                          one small function for each op;
    def square_root(w, node): ...             the first registered row that fits is taken

How a program is read is in `program.py`.

Every kernel is a function `void NAME(void **buffers, const int64_t *vars, int64_t thread, void
*scratch)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import ClassVar, Final, Generic, TypeVar

from pellucid.core.dtype import dtypes
from pellucid.core.errors import CompileError
from pellucid.core.records import dataclass
from pellucid.core.target import Target, host_target
from pellucid.ir.arg import ProgramInfo
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp

W = TypeVar("W")
Emit = Callable[[W, UOp], str | None]

NATIVE_DTYPES: Final = frozenset(
    d.name
    for d in (
        *(dtypes.bool, dtypes.float32, dtypes.float64),
        *(dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64),
        *(dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64),
    )
)
"""Types that every CPU renderer computes in."""

FUNCTIONS: Final[dict[Op, str]] = {
    Ops.SQRT: "sqrt",
    Ops.FLOOR: "floor",
    Ops.CEIL: "ceil",
    Ops.TRUNC: "trunc",
    Ops.MULADD: "fma",
}
"""Functions that processors have, as C and LLVM both call them."""

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
            for fact, wanted in row.facts:
                if fact(node) is not wanted:
                    break
            else:
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


def refusal(node: UOp, renderer: str, kernel: str, problem: str = "") -> CompileError:
    """The error for what a renderer cannot write: a pass left it over, or in disorder."""
    types = ", ".join(str(s.dtype) for s in node.src)
    problem = problem or f"the {renderer} renderer has no emitter for this op"
    return CompileError(
        f"{problem}: {node.op.name} ({types}) -> {node.dtype}", stage="render", kernel=kernel
    )
