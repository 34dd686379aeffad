"""The op table: every operation of the graph, one row each.

A row says what the sources are, what type comes out, what it means, and the facts that rewriting
may use (commutative, identity …). Folding constants, the interpreter, the prover, graph text, form
checks and the docs all read this table: an op is described once. `Ops.ADD` is the row itself;
compare rows with `is`.

    Ops.ADD.sources == ("left", "right")      Ops.ADD.identity_for(dtypes.int32) == 0

`python` gives the exact meaning on Python numbers, before the result is cast to the type of the
node; ops without it (exp, sin …) are never folded: they are first spelled with exact ops, so that a
folded program and a computed one are the same program. Floats follow IEEE 754-2019; `//` and `%`
round to minus infinity and give 0 for a zero divisor; a shift by the width or more gives 0, or -1
for negative values shifted right.
"""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

from pellucid.core.dtype import DType, Scalar, dtypes
from pellucid.core.records import dataclass

Shape = tuple[int, ...]
TypeRule = Callable[[Sequence[DType]], DType]
ShapeRule = Callable[[Sequence[Shape], Any], Shape]


class Group(enum.Enum):
    """The family of an op; forms allow and forbid whole families."""

    LEAF = "leaf"
    ELEMENTWISE = "elementwise"
    MOVEMENT = "movement"
    TENSOR = "tensor"
    PAIR = "pair"
    VECTOR = "vector"
    MEMORY = "memory"
    CONTROL = "control"
    PROGRAM = "program"


@dataclass(frozen=True, eq=False)
class Op:
    """One row of the table.

    sources: names; one with `?` may be missing, one with `*` stands for any number.
    result: type rule, from the sources' types; None where the maker of the node gives the type.
    shape: shape rule in TENSOR form, from the sources' shapes and the arg; None: no shape.
    python: exact meaning on Python numbers.
    exact: the result is fully defined by IEEE or integer rules.
    identity: value that leaves the other source unchanged, for reductions and laws.
    """

    sources: tuple[str, ...]
    result: TypeRule | None
    group: Group
    doc: str
    shape: ShapeRule | None = None
    python: Callable[..., Scalar] | None = None
    commutative: bool = False
    associative: bool = False
    idempotent: bool = False
    exact: bool = True
    identity: Callable[[DType], Scalar] | None = None
    native_only: bool = False
    name: str = field(default="", init=False)

    def __set_name__(self, owner: type, name: str) -> None:
        object.__setattr__(self, "name", name)

    def __repr__(self) -> str:
        return f"Ops.{self.name}"

    def __reduce__(self) -> str | tuple[Any, ...]:
        return (_op_named, (self.name,))

    @cached_property
    def is_elementwise(self) -> bool:
        """True for arithmetic, comparison, selection and casts."""
        return self.group is Group.ELEMENTWISE

    @cached_property
    def is_movement(self) -> bool:
        """True for the ops that only rearrange elements."""
        return self.group is Group.MOVEMENT

    def identity_for(self, dtype: DType) -> Scalar:
        """The value that leaves the other source unchanged in *dtype*."""
        if self.identity is None:
            raise KeyError(f"{self} has no identity")
        return self.identity(dtype.scalar)


# ---- type rules


def like(index: int = 0) -> TypeRule:
    """The type of the source at *index*."""
    return lambda given: given[index]


def compares(given: Sequence[DType]) -> DType:
    """bool, with as many lanes as the sources."""
    return dtypes.bool.vec(given[0].lanes)


def nothing(given: Sequence[DType]) -> DType:
    """void: an effect."""
    return dtypes.void


# ---- shape rules (TENSOR form)


def same_shape(shapes: Sequence[Shape], arg: Any) -> Shape:
    """All sources have one shape, which is the result's."""
    return shapes[0] if shapes else ()


def scalar_shape(shapes: Sequence[Shape], arg: Any) -> Shape:
    """A single value."""
    return ()


def arg_shape(shapes: Sequence[Shape], arg: Any) -> Shape:
    """The arg is the shape."""
    return tuple(arg)


def permuted_shape(shapes: Sequence[Shape], arg: Any) -> Shape:
    """Axes in the order that the arg lists."""
    return tuple(shapes[0][axis] for axis in arg)


def padded_shape(shapes: Sequence[Shape], arg: Any) -> Shape:
    """Each axis grows by what the arg puts before and after it."""
    return tuple(size + low + high for size, (low, high) in zip(shapes[0], arg, strict=True))


def shrunk_shape(shapes: Sequence[Shape], arg: Any) -> Shape:
    """Each axis keeps the half-open interval that the arg gives."""
    return tuple(end - start for start, end in arg)


def reduced_shape(shapes: Sequence[Shape], arg: Any) -> Shape:
    """The axes in the arg are gone."""
    return tuple(size for axis, size in enumerate(shapes[0]) if axis not in arg.axes)


def gathered_shape(shapes: Sequence[Shape], arg: Any) -> Shape:
    """Leading axes are replaced by the shape of the indices."""
    return shapes[1] + shapes[0][len(shapes) - 1 :]


def buffer_shape(shapes: Sequence[Shape], arg: Any) -> Shape:
    """A flat run of elements."""
    return (arg.size,)


def iota_shape(shapes: Sequence[Shape], arg: Any) -> Shape:
    """One axis, as long as the arg says."""
    return (arg,)


# ---- meanings that Python's own operators lack


def maximum(a: Any, b: Any) -> Scalar:
    """The larger one; NaN wins; 0.0 is above -0.0."""
    if a != a or b != b:
        return math.nan
    if a == b == 0 and isinstance(a, float):
        return a if math.copysign(1.0, a) > 0 else b
    return max(a, b)  # type: ignore[no-any-return]


def minimum(a: Any, b: Any) -> Scalar:
    """The smaller one; NaN wins; -0.0 is below 0.0."""
    if a != a or b != b:
        return math.nan
    if a == b == 0 and isinstance(a, float):
        return a if math.copysign(1.0, a) < 0 else b
    return min(a, b)  # type: ignore[no-any-return]


def floor_divide(a: int, b: int) -> int:
    """Quotient rounded to minus infinity; 0 for a zero divisor."""
    return a // b if b else 0


def floor_modulo(a: int, b: int) -> int:
    """Remainder with the sign of the divisor; 0 for a zero divisor."""
    return a % b if b else 0


def truncated_divide(a: int, b: int) -> int:
    """Quotient rounded towards zero; 0 for a zero divisor."""
    if not b:
        return 0
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def truncated_modulo(a: int, b: int) -> int:
    """Remainder with the sign of the dividend; 0 for a zero divisor."""
    return a - b * truncated_divide(a, b) if b else 0


def divide(a: float, b: float) -> float:
    """IEEE division."""
    if b == 0 or b != b:
        if a == 0 or a != a or b != b:
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def square_root(a: float) -> float:
    """IEEE square root."""
    return math.nan if a < 0 else math.sqrt(a)


def integral(function: Callable[[float], int]) -> Callable[[float], float]:
    """Lift a rounding function to infinities, NaN and the sign of zero."""

    def rounded(a: float) -> float:
        return a if not math.isfinite(a) else math.copysign(float(function(a)), a)

    return rounded


def multiply(a: Any, b: Any) -> Scalar:
    """The product (infinity times zero is NaN)."""
    return a * b  # type: ignore[no-any-return]


def bits_and(a: Any, b: Any) -> Scalar:
    """Bitwise and."""
    return a & b  # type: ignore[no-any-return]


def lowest(dtype: DType) -> Scalar:
    """The identity of a maximum."""
    return dtype.min


def highest(dtype: DType) -> Scalar:
    """The identity of a minimum."""
    return dtype.max


def zero(dtype: DType) -> Scalar:
    """0 of the type."""
    return 0.0 if dtype.is_float else False if dtype.is_bool else 0


def one(dtype: DType) -> Scalar:
    """1 of the type."""
    return 1.0 if dtype.is_float else True if dtype.is_bool else 1


def all_ones(dtype: DType) -> Scalar:
    """Every bit set."""
    return True if dtype.is_bool else int(dtype.max) if dtype.is_unsigned else -1


# ---- makers of rows


def unary(doc: str, python: Callable[..., Scalar] | None = None, **facts: Any) -> Op:
    """A row for one source, lane by lane."""
    return Op(("x",), like(), Group.ELEMENTWISE, doc, same_shape, python, **facts)


def binary(doc: str, python: Callable[..., Scalar] | None = None, **facts: Any) -> Op:
    """A row for two sources of one type, lane by lane."""
    result = facts.pop("result", like())
    sources = facts.pop("sources", ("left", "right"))
    return Op(sources, result, Group.ELEMENTWISE, doc, same_shape, python, **facts)


def row(
    group: Group,
    sources: str,
    doc: str,
    result: TypeRule | None = None,
    shape: ShapeRule | None = None,
    **facts: Any,
) -> Op:
    """A row of any other family; *sources* are separated by spaces."""
    return Op(tuple(sources.split()), result, group, doc, shape, **facts)


class Ops:
    """All operations. Each is one row; adding one here is what adding an op means."""

    # -- leaves
    CONST = row(
        Group.LEAF,
        "",
        "A literal; with several lanes, one value for all or a tuple.",
        None,
        scalar_shape,
    )
    VARIABLE = row(
        Group.LEAF, "", "A symbolic integer with bounds; arg VariableArg.", None, scalar_shape
    )
    BUFFER = row(
        Group.LEAF,
        "",
        "Storage that exists outside of the graph; arg BufferArg.",
        None,
        buffer_shape,
    )
    PARAM = row(
        Group.LEAF, "", "Storage that the caller passes in; arg ParamArg.", None, buffer_shape
    )
    IOTA = row(
        Group.LEAF,
        "",
        "0, 1, … size-1 along one axis (TENSOR form); arg the size.",
        None,
        iota_shape,
    )
    DEFINE = row(Group.LEAF, "", "Storage made inside a kernel; arg DefineArg.")
    SPECIAL = row(Group.LEAF, "size", "An index that the launch provides; arg SpecialArg.", like())
    RANGE = row(Group.CONTROL, "size", "An iteration axis 0 <= i < size; arg RangeArg.", like())

    # -- arithmetic (integers wrap at the width of the node's type)
    ADD = binary("Sum.", operator.add, commutative=True, associative=True, identity=zero)
    MUL = binary("Product.", multiply, commutative=True, associative=True, identity=one)
    FDIV = binary("Quotient of floats.", divide, sources=("dividend", "divisor"))
    FLOORDIV = binary(
        "Integer quotient rounded to minus infinity; 0 for a zero divisor.",
        floor_divide,
        sources=("dividend", "divisor"),
    )
    FLOORMOD = binary(
        "Integer remainder with the sign of the divisor; 0 for a zero divisor.",
        floor_modulo,
        sources=("dividend", "divisor"),
    )
    TRUNCDIV = binary(
        "Integer quotient rounded to zero; 0 for a zero divisor.",
        truncated_divide,
        sources=("dividend", "divisor"),
    )
    TRUNCMOD = binary(
        "Integer remainder with the sign of the dividend; 0 for a zero divisor.",
        truncated_modulo,
        sources=("dividend", "divisor"),
    )
    MAX = binary(
        "The larger; NaN if either is.",
        maximum,
        commutative=True,
        associative=True,
        idempotent=True,
        identity=lowest,
    )
    MIN = binary(
        "The smaller; NaN if either is.",
        minimum,
        commutative=True,
        associative=True,
        idempotent=True,
        identity=highest,
    )
    SQRT = unary("Square root, correctly rounded.", square_root)
    FLOOR = unary("Largest integral float not above.", integral(math.floor))
    CEIL = unary("Smallest integral float not below.", integral(math.ceil))
    TRUNC = unary("Integral float towards zero.", integral(math.trunc))
    ROUND = unary("Nearest integral float, ties to even.", integral(round))

    # -- functions that are spelled with exact ops before they are computed
    EXP = unary("e to the x.", exact=False)
    EXP2 = unary("2 to the x.", exact=False)
    LOG = unary("Natural logarithm.", exact=False)
    LOG2 = unary("Logarithm to base 2.", exact=False)
    SIN = unary("Sine of radians.", exact=False)
    COS = unary("Cosine of radians.", exact=False)
    TANH = unary("Hyperbolic tangent.", exact=False)
    ERF = unary("Error function.", exact=False)
    POW = binary("x to the y, floats.", exact=False, sources=("base", "exponent"))
    THREEFRY = binary(
        "Threefry-2x32 block of counter and key, both uint64.",
        sources=("counter", "key"),
        exact=False,
    )

    # -- bits (on bool: logic)
    AND = binary(
        "Bitwise and.",
        bits_and,
        commutative=True,
        associative=True,
        idempotent=True,
        identity=all_ones,
    )
    OR = binary(
        "Bitwise or.",
        operator.or_,
        commutative=True,
        associative=True,
        idempotent=True,
        identity=zero,
    )
    XOR = binary(
        "Bitwise exclusive or.", operator.xor, commutative=True, associative=True, identity=zero
    )
    SHL = binary("Shift left; 0 when the count is the width or more.", sources=("x", "count"))
    SHR = binary(
        "Shift right, arithmetic if signed; all sign when the count is the width or more.",
        sources=("x", "count"),
    )

    # -- comparison and selection
    CMPLT = binary("Less.", operator.lt, result=compares)
    CMPLE = binary(
        "Less or equal (not the negation of greater, for NaN).", operator.le, result=compares
    )
    CMPEQ = binary("Equal.", operator.eq, result=compares, commutative=True)
    CMPNE = binary("Not equal.", operator.ne, result=compares, commutative=True)
    WHERE = Op(
        ("condition", "if_true", "if_false"),
        like(1),
        Group.ELEMENTWISE,
        "Select lane by lane.",
        same_shape,
        lambda c, a, b: a if c else b,
    )
    CAST = Op(
        ("x",),
        None,
        Group.ELEMENTWISE,
        "Convert the value to the node's type.",
        same_shape,
        lambda a: a,
    )
    BITCAST = Op(
        ("x",),
        None,
        Group.ELEMENTWISE,
        "Keep the bits, change the type to one of equal width.",
        same_shape,
    )

    # -- what only targets know: made by the decomposing passes
    NEG = unary("Minus x (flips the sign bit of a float).", operator.neg, native_only=True)
    SUB = binary("Difference.", operator.sub, native_only=True)
    MULADD = Op(
        ("left", "right", "addend"),
        like(),
        Group.ELEMENTWISE,
        "left * right + addend, rounded once.",
        same_shape,
        native_only=True,
    )
    IDIV = binary(
        "Truncating quotient; the divisor is not zero and it does not overflow.",
        truncated_divide,
        native_only=True,
    )
    IMOD = binary(
        "Truncating remainder; the divisor is not zero and it does not overflow.",
        truncated_modulo,
        native_only=True,
    )
    ISHL = binary("Shift left by less than the width.", operator.lshift, native_only=True)
    ISHR = binary("Shift right by less than the width.", operator.rshift, native_only=True)
    FTOI = Op(
        ("x",),
        None,
        Group.ELEMENTWISE,
        "Float to integer towards zero; the value is known to fit.",
        same_shape,
        native_only=True,
    )

    # -- movement (TENSOR form)
    RESHAPE = row(
        Group.MOVEMENT,
        "x",
        "Same elements in order, other shape; arg the shape.",
        like(),
        arg_shape,
    )
    PERMUTE = row(
        Group.MOVEMENT, "x", "Axes in another order; arg the order.", like(), permuted_shape
    )
    EXPAND = row(
        Group.MOVEMENT,
        "x",
        "Broadcast to the shape in arg: new axes lead, axes of size 1 repeat.",
        like(),
        arg_shape,
    )
    PAD = row(
        Group.MOVEMENT,
        "x fill",
        "Add elements of value fill (a scalar) around; arg ((before, after), …).",
        like(),
        padded_shape,
    )
    SHRINK = row(Group.MOVEMENT, "x", "Keep a box; arg ((start, end), …).", like(), shrunk_shape)
    FLIP = row(Group.MOVEMENT, "x", "Reverse axes; arg the axes, ascending.", like(), same_shape)

    # -- whole tensors
    REDUCE = row(
        Group.TENSOR,
        "x ranges*",
        "Combine along axes (TENSOR) or ranges (LOOP); arg ReduceArg.",
        like(),
        reduced_shape,
    )
    GATHER = row(
        Group.TENSOR,
        "x indices*",
        "x[i0, i1, …] for integer tensors of one shape, over the leading axes.",
        like(),
        gathered_shape,
    )
    SCATTER = row(
        Group.TENSOR,
        "base value indices*",
        "base with value at base[i0, …]: arg None, the last one wins, or an op that combines.",
        like(),
        same_shape,
    )
    WRITE = row(
        Group.TENSOR,
        "base window value",
        "base with the elements that window shows replaced by value.",
        like(),
        same_shape,
    )
    CONTIGUOUS = row(
        Group.TENSOR, "x", "The user asked for this value in memory.", like(), same_shape
    )
    COPY = row(Group.TENSOR, "x", "The value on another device; arg its name.", like(), same_shape)
    LEAF = row(
        Group.TENSOR,
        "x",
        "x as a leaf of differentiation with an identity of its own; arg a number.",
        like(),
        same_shape,
    )
    DETACH = row(Group.TENSOR, "x", "x, hidden from differentiation.", like(), same_shape)
    CHECK = row(
        Group.TENSOR,
        "x flag",
        "x, once flag (int64 scalar) is found negative; arg CheckArg.",
        like(),
        same_shape,
    )
    STAGE = row(
        Group.TENSOR,
        "x ranges*",
        "Put x into memory over these ranges (TENSOR form: all axes); arg StageArg.",
        like(),
        same_shape,
    )

    # -- pairs of a value and a key (pairs.py)
    PAIR = row(
        Group.PAIR,
        "value key",
        "A value with the key by which a REDUCE chooses it; the value, where nothing does.",
        like(),
        same_shape,
    )
    ARGMAX = row(
        Group.PAIR,
        "value key other_value other_key",
        "How a REDUCE joins PAIRs: the value of the larger key, the smaller value of equal keys.",
        like(),
        commutative=True,
        associative=True,
        idempotent=True,
        identity=highest,
    )
    ARGMIN = row(
        Group.PAIR,
        "value key other_value other_key",
        "How a REDUCE joins PAIRs: the value of the smaller key, the smaller value of equal keys.",
        like(),
        commutative=True,
        associative=True,
        idempotent=True,
        identity=highest,
    )

    # -- lanes
    SPLAT = row(Group.VECTOR, "x", "All lanes equal to a scalar.")
    STACK = row(Group.VECTOR, "parts*", "Concatenate lanes.")
    LANE = row(Group.VECTOR, "x", "Lanes of x: arg an int (a scalar) or a tuple (a vector).")
    MMA = row(
        Group.VECTOR,
        "left right addend",
        "Matrix multiply-add: addend + left @ right; arg names the unit (core/units.py).",
        like(2),
    )

    # -- memory
    INDEX = row(
        Group.MEMORY,
        "buffer index valid?",
        "The element(s) at an index; 0 where valid is false.",
        like(),
    )
    LOAD = row(
        Group.MEMORY,
        "index fallback? gate?",
        "Read; where the gate is false, the fallback and no access.",
        like(),
    )
    STORE = row(
        Group.MEMORY,
        "index value gate?",
        "Write, where the gate is true; arg 'stream': past the caches.",
        nothing,
    )
    PREFETCH = row(
        Group.MEMORY,
        "index",
        "Ask for a cache line soon, which need not exist; arg 'write': to write it.",
        nothing,
    )

    # -- order and control
    AFTER = row(
        Group.CONTROL,
        "x deps*",
        "x, used only once deps have happened (a RANGE as dep: inside its loop).",
        like(),
    )
    GROUP = row(Group.CONTROL, "effects*", "Several effects as one.", nothing)
    END = row(
        Group.CONTROL, "body ranges*", "The effect of body over all values of ranges.", nothing
    )
    BARRIER = row(Group.CONTROL, "effects*", "All work-items arrive before any goes on.", nothing)
    IF = row(
        Group.CONTROL,
        "condition",
        "LINEAR only: what follows runs where the condition holds.",
        nothing,
    )
    ENDIF = row(Group.CONTROL, "if", "LINEAR only: closes an IF.", nothing)

    # -- programs
    SINK = row(
        Group.PROGRAM,
        "effects*",
        "Root: of a kernel (arg KernelInfo), or of a set of tensors (arg None).",
        nothing,
    )
    CALL = row(Group.PROGRAM, "callee buffers*", "Run callee on buffers; arg CallInfo.", nothing)
    LINEAR = row(
        Group.PROGRAM,
        "items*",
        "An ordered list: CALLs in a schedule, low-level ops in a program.",
        nothing,
    )
    SOURCE = row(Group.PROGRAM, "", "Program text; arg str.")
    BINARY = row(Group.PROGRAM, "", "Compiled program; arg bytes.")
    PROGRAM = row(
        Group.PROGRAM, "sink linear source binary", "A compiled kernel; arg ProgramInfo.", nothing
    )

    @staticmethod
    def all() -> Iterator[Op]:
        """Every row, in the order of the table."""
        return (value for value in vars(Ops).values() if isinstance(value, Op))


def _op_named(name: str) -> Op:
    return getattr(Ops, name)  # type: ignore[no-any-return]


def shift_left(a: int, count: int, bits: int) -> int:
    """Meaning of SHL at a width of *bits*."""
    return a << count if 0 <= count < bits else 0


def shift_right(a: int, count: int, bits: int) -> int:
    """Meaning of SHR at a width of *bits*."""
    return a >> (count if 0 <= count < bits else bits)


PAIR_OPS = (Ops.ARGMAX, Ops.ARGMIN)
REDUCE_OPS = (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN, Ops.AND, Ops.OR, Ops.XOR, *PAIR_OPS)
COMPARISONS = (Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE)
TRANSCENDENTAL = tuple(op for op in Ops.all() if op.group is Group.ELEMENTWISE and not op.exact)
