"""Linear programs as LLVM IR text, ready for code generation without any IR pass.

    acc = 0; for i in 0..7: acc += x[i]; y[0] = acc          becomes

    loop0:
      %i0 = phi i64 [ 0, %entry ], [ %i0.next, %loop0 ]
      %acc0 = phi float [ 0.0, %entry ], [ %v2, %loop0 ]
      %v1 = load float, ptr …
      %v2 = fadd float %acc0, %v1
      …

Nobody cleans up after this text, so it is written as code generation likes it: accumulators are
values that loops carry (phi), never memory; loops test at their end; buffers' addresses are
loaded once; addresses are computed in 64 bits from 64-bit counters, also where the program says
int32, as far as bounds prove that both agree; strength reduction is left to code generation,
which does it at every level above 0.

Vectors are LLVM's. A bool is i1 and lies in memory as a byte, 0 or 1. Floats are strict: no
fast-math flag is ever set. Buffers may be the same memory, so no parameter but the table of
buffers is `noalias`.

Source: LLVM Language Reference Manual, release 22 (nothing newer than release 20 is used).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from pellucid.core.dtype import DType, Scalar, dtypes, round_to
from pellucid.core.target import Target
from pellucid.ir.arg import AddrSpace, ProgramInfo
from pellucid.ir.bounds import bounds
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp
from pellucid.render.join import join_llvm
from pellucid.render.llvm_units import (
    SPELLED,
    TILE,
    as_tile,
    asked_features,
    find_tiles,
    load_tile,
    multiply_matrices,
    tile_to_vector,
)
from pellucid.render.renderer import (
    SCRATCH_ALIGNMENT,
    Emitters,
    Renderer,
    cannot_wrap,
    closed_ranges,
    described,
    is_register,
    leaves,
    loop_bodies,
    memory_dtype,
    refusal,
    scratch_layout,
    storage_of,
    streamed_bytes,
    value_of,
)

_FLOAT_NAMES: Final = {"float16": "half", "float32": "float", "float64": "double"}


class LLVMRenderer(Renderer):
    """LLVM IR text, one function for each kernel.

    float16 is native for conversions alone, where the processor converts: by F16C on x86-64.
    """

    name: ClassVar[str] = "llvm"
    version: ClassVar[int] = 1

    def describe(self, machine: Target) -> Target:
        """See `Renderer.describe`."""
        halves = machine.has("f16c") or machine.arch == "aarch64"
        spelled = described(machine, emits.elementwise_ops, ("float16",) if halves else ())
        return replace(spelled, matrix_units=machine.units_of(SPELLED))

    def render(self, linear: UOp, info: ProgramInfo) -> str:
        """See `Renderer.render`."""
        return LLVMWriter(linear, info, self.target).text()

    def join(self, texts: Sequence[str], names: Sequence[str]) -> str:
        """See `Renderer.join`."""
        return join_llvm(texts)


def llvm_type(dtype: DType) -> str:
    """The LLVM name of a value's type.

    >>> llvm_type(dtypes.float32.vec(16)), llvm_type(dtypes.uint8), llvm_type(dtypes.bool)
    ('<16 x float>', 'i8', 'i1')
    """
    scalar = _FLOAT_NAMES.get(dtype.name) or f"i{dtype.bits}"
    return scalar if dtype.lanes == 1 else f"<{dtype.lanes} x {scalar}>"


def _suffix(dtype: DType) -> str:
    """How the name of an intrinsic spells a type: v16f32, i64."""
    scalar = f"{'f' if dtype.is_float else 'i'}{dtype.bits}"
    return scalar if dtype.lanes == 1 else f"v{dtype.lanes}{scalar}"


def llvm_literal(dtype: DType, value: Scalar | tuple[Scalar, ...]) -> str:
    """A literal; floats by their bits, as decimals would have to be exact.

    >>> llvm_literal(dtypes.float32, 1.5), llvm_literal(dtypes.int32.vec(4), 7)
    ('0x3FF8000000000000', 'splat (i32 7)')
    """
    scalar = dtype.scalar
    if isinstance(value, tuple):
        lanes = ", ".join(f"{llvm_type(scalar)} {_scalar_literal(scalar, v)}" for v in value)
        return f"<{lanes}>"
    text = _scalar_literal(scalar, value)
    return text if dtype.lanes == 1 else f"splat ({llvm_type(scalar)} {text})"


def _scalar_literal(dtype: DType, value: Scalar) -> str:
    if dtype.is_bool:
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))
    number = round_to(dtype, float(value))
    if dtype is dtypes.float16:
        return f"0xH{struct.unpack('<H', struct.pack('<e', number))[0]:04X}"
    if number != number:
        return "0x7FF8000000000000"
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


@dataclass
class _Loop:
    """An open loop: its labels, and what its phis wait for."""

    node: UOp
    number: int
    before: str
    carried: dict[UOp, str]  # register -> name of its phi
    initial: dict[UOp, str]
    phi_line: int
    count: str
    guarded: bool


@dataclass
class _If:
    """An open IF: the block it came from, and the registers as they were there."""

    number: int
    before: str
    registers: dict[UOp, str]


class LLVMWriter:
    """Writes one function: emitters call `define` for a value and `effect` for the rest."""

    def __init__(self, linear: UOp, info: ProgramInfo, target: Target) -> None:
        self.linear, self.info, self.target = linear, info, target
        self.lines: list[str] = []
        self.names: dict[UOp, str] = {}
        self.wide_names: dict[UOp, str] = {}
        self.registers: dict[UOp, str] = {}  # what each accumulator holds here
        self.declared: dict[str, str] = {}
        self.block = "entry"
        self.addresses: dict[tuple[UOp, str], str] = {}  # of storage at an offset, in this block
        self.open: list[_Loop | _If] = []
        self.counts: dict[str, int] = {}
        self.bodies = loop_bodies(linear.src)
        self.streamed = streamed_bytes(linear.src)
        self.tiles = find_tiles(linear.src)
        self.vectors: dict[UOp, str] = {}  # of tiles, in this block
        self.wide, self.narrow = _widths(linear.src)

    # ---- text ------------------------------------------------------------------------------------

    def text(self) -> str:
        """The whole function, with the declarations of what it calls."""
        self.enter()
        for node in self.linear.src:
            self.write(node)
        if self.streamed:
            self.fence()
        self.effect("ret void")
        asked = asked_features(self.linear.src, self.target)
        wide = ' "prefer-vector-width"="512"' if self.target.vector_bytes == 64 else ""
        name = self.info.name
        head = (
            f"define void @{name}(ptr noalias readonly %buffers, ptr readonly %vars, "
            "i64 %thread, ptr %scratch) #0 {"
        )
        declarations = [self.declared[key] for key in sorted(self.declared)]
        attributes = f'attributes #0 = {{ nounwind "no-trapping-math"="true"{wide}{asked} }}'
        facts = [_STREAMED_FACT] if self.streamed else []
        parts = [head, "entry:", *self.lines, "}", *declarations, attributes, *facts]
        return "\n".join(parts) + "\n"

    def enter(self) -> None:
        """What stands once at the start: addresses of buffers, variables, the kernel's storage."""
        for param in sorted(leaves(self.linear, Ops.PARAM), key=lambda p: p.arg.slot):
            slot = param.arg.slot
            address = self.address("%buffers", "ptr", str(slot)) if slot else "%buffers"
            self.names[param] = f"%buffer{slot}"
            if self.names[param] not in self.counts:
                self.counts[self.names[param]] = 1
                self.effect(f"%buffer{slot} = load ptr, ptr {address}, align 8")
        self.ask_alignment()
        offsets, _ = scratch_layout(self.linear)
        for define in leaves(self.linear, Ops.DEFINE):
            self.reserve(define, offsets)
        for variable in leaves(self.linear, Ops.VARIABLE):
            position = self.info.variables.index(variable.arg)
            value = self.value(
                f"load i64, ptr {self.address('%vars', 'i64', str(position))}, align 8"
            )
            self.integer(variable, value)

    def ask_alignment(self) -> None:
        """Ask of each parameter that is written past the caches whether it lies as that needs."""
        for slot, size_bytes in self.streamed.items():
            address = self.value(f"ptrtoint ptr %buffer{slot} to i64")
            rest = self.value(f"and i64 {address}, {size_bytes - 1}")
            self.effect(f"%aligned{slot} = icmp eq i64 {rest}, 0")

    def fence(self) -> None:
        """Let what went past the caches be seen by others before the kernel ends."""
        if self.target.arch == "x86-64":
            self.effect(self.call("llvm.x86.sse.sfence", "void"))

    def reserve(self, define: UOp, offsets: dict[UOp, int]) -> None:
        """Give storage to a DEFINE: scratch memory, the stack, or nothing (a register)."""
        if is_register(define):
            return
        if define.arg.space is AddrSpace.LOCAL and self.info.scratch_bytes:
            self.names[define] = self.address("%scratch", "i8", str(offsets[define]))
            return
        dtype = memory_dtype(define.dtype)
        size = define.arg.size
        self.names[define] = self.value(
            f"alloca [{size} x {llvm_type(dtype)}], align {SCRATCH_ALIGNMENT}"
        )

    def effect(self, text: str) -> None:
        """One line."""
        self.lines.append("  " + text)

    def fresh(self, prefix: str) -> str:
        """A name that is not taken."""
        number = self.counts.get(prefix, 0)
        self.counts[prefix] = number + 1
        return f"%{prefix}{number}"

    def value(self, text: str, prefix: str = "v") -> str:
        """One line that computes a value; returns its name."""
        name = self.fresh(prefix)
        self.lines.append(f"  {name} = {text}")
        return name

    def label(self, name: str) -> None:
        """Start a block."""
        self.lines.append(f"{name}:")
        self.block = name
        self.addresses.clear()
        self.vectors.clear()

    def call(self, intrinsic: str, result: str, *arguments: tuple[str, str]) -> str:
        """The text of a call of an intrinsic, which is declared at the end."""
        types = ", ".join(kind for kind, _ in arguments)
        self.declared[intrinsic] = f"declare {result} @{intrinsic}({types})"
        return f"call {result} @{intrinsic}({', '.join(f'{k} {text}' for k, text in arguments)})"

    # ---- values ----------------------------------------------------------------------------------

    def __getitem__(self, node: UOp) -> str:
        """The name (or literal) of a value."""
        node = value_of(node)
        if node.op is Ops.CONST:
            return llvm_literal(node.dtype, node.arg)
        return self.vector_of(node) if node in self.tiles else self.names[node]

    def vector_of(self, tile: UOp) -> str:
        """A tile as a vector, converted once in a block."""
        if tile not in self.vectors:
            kind = llvm_type(tile.dtype)
            self.vectors[tile] = tile_to_vector(self, self.names[tile], kind)
        return self.vectors[tile]

    def typed(self, node: UOp) -> str:
        """A value with its type before it, as most instructions want."""
        return f"{llvm_type(node.dtype)} {self[node]}"

    def argument(self, node: UOp) -> tuple[str, str]:
        """A value for `call`."""
        return llvm_type(node.dtype), self[node]

    def wide_of(self, node: UOp) -> str:
        """An integer as i64."""
        node = value_of(node)
        if node.op is Ops.CONST:
            return str(node.arg)
        return self.names[node] if node.dtype.bits == 64 else self.wide_names[node]

    def integer(self, node: UOp, wide: str) -> None:
        """Record a value that was made as i64, in the widths that the program asks for."""
        self.wide_names[node] = wide
        if node.dtype.bits == 64:
            self.names[node] = wide
        elif node in self.narrow:
            self.names[node] = self.value(f"trunc i64 {wide} to {llvm_type(node.dtype)}")

    def address(self, base: str, element: str, offset: str) -> str:
        """The address of an element."""
        if offset == "0":
            return base
        return self.value(f"getelementptr {element}, ptr {base}, i64 {offset}", "p")

    def element_address(self, index: UOp) -> str:
        """The address that an INDEX means; neighbours are literal steps from one address."""
        storage = storage_of(index)
        element = llvm_type(memory_dtype(storage.dtype))
        place, step = _place_and_step(index.src[1])
        key = (storage, self.wide_of(place))
        if key not in self.addresses:
            self.addresses[key] = self.address(self.names[storage], element, key[1])
        return self.address(self.addresses[key], element, str(step))

    def register_type(self, register: UOp) -> str:
        """The type of what an accumulator holds."""
        return TILE if register in self.tiles else llvm_type(register.dtype)

    # ---- nodes -----------------------------------------------------------------------------------

    def write(self, node: UOp) -> None:
        """Write one item of the program."""
        if node.op in _SILENT or _is_step(node, self):
            return
        if node in self.wide and node not in self.narrow and node.op in _WIDE_INSTRUCTION:
            self.widen_computed(node)
            return
        emit = emits.find(node)
        if emit is None:
            raise refusal(node, "llvm", self.info.name)
        text = emit(self, node)
        if text is None:
            return
        self.names[node] = self.value(text)
        if node in self.wide and node.dtype.bits < 64:
            self.widen_result(node)

    def widen_computed(self, node: UOp) -> None:
        """Compute an address's integer in 64 bits, from sources of 64 bits."""
        left, right = (self.wide_of(s) for s in node.src)
        operation = _WIDE_INSTRUCTION[node.op]
        self.wide_names[node] = self.value(f"{operation} nsw i64 {left}, {right}")
        if node.dtype.bits == 64:
            self.names[node] = self.wide_names[node]

    def widen_result(self, node: UOp) -> None:
        """Extend a narrow integer for use in an address."""
        if node.op in _WIDE_INSTRUCTION and all(_has_wide(self, s) for s in node.src):
            if cannot_wrap(node):
                self.widen_computed(node)
                return
        extend = "zext" if node.dtype.is_unsigned else "sext"
        self.wide_names[node] = self.value(f"{extend} {self.typed(node)} to i64")


def _place_and_step(index: UOp) -> tuple[UOp, int]:
    """An index as a value, and a literal that is added to it."""
    index = value_of(index)
    if index.op is Ops.ADD and index.src[1].is_const and cannot_wrap(index):
        return value_of(index.src[0]), index.src[1].arg
    return index, 0


def _is_step(node: UOp, w: LLVMWriter) -> bool:
    """True for a sum that nothing uses but addresses, as a step from another one."""
    return node.op is Ops.ADD and node not in w.wide and node not in w.narrow


def _has_wide(w: LLVMWriter, node: UOp) -> bool:
    node = value_of(node)
    return node.op is Ops.CONST or node in w.wide_names or node.dtype.bits == 64


def _widths(items: tuple[UOp, ...]) -> tuple[set[UOp], set[UOp]]:
    """Integers that addresses need in 64 bits, and values that are needed in their own width."""
    wide: set[UOp] = set()
    narrow: set[UOp] = set()
    for node in reversed(items):
        if node.op is Ops.INDEX:
            wide.add(_place_and_step(node.src[1])[0])
        elif node.op is Ops.RANGE:
            wide.add(value_of(node.src[0]))
        elif node.op in _SILENT or node.op is Ops.END or node.op is Ops.SPECIAL:
            continue
        elif node.op is Ops.ADD and node not in wide and node not in narrow:
            continue  # a step of addresses only
        elif node in wide and node.op in _WIDE_INSTRUCTION and cannot_wrap(node):
            wide.update(value_of(s) for s in node.src)
            if node in narrow:
                narrow.update(value_of(s) for s in node.src)
        else:
            if node in wide:
                narrow.add(node)
            narrow.update(value_of(s) for s in node.src)
    return wide, narrow


_SILENT: Final = frozenset(
    (
        *(Ops.CONST, Ops.PARAM, Ops.DEFINE, Ops.VARIABLE, Ops.INDEX),
        *(Ops.AFTER, Ops.GROUP, Ops.SINK, Ops.BARRIER),
    )
)
_STREAMED_FACT: Final = "!0 = !{i32 1}"  # what `!nontemporal !0` refers to
_WIDE_INSTRUCTION: Final = {Ops.ADD: "add", Ops.SUB: "sub", Ops.MUL: "mul"}

emits: Emitters[LLVMWriter] = Emitters()


# ---- arithmetic ----------------------------------------------------------------------------------


def _simple(w: LLVMWriter, instruction: str, node: UOp) -> str:
    return f"{instruction} {w.typed(node.src[0])}, {w[node.src[1]]}"


def _rows(table: dict[Op, str], **facts: bool) -> None:
    """Register instructions that only differ in their name."""
    for op, instruction in table.items():
        emits(op, **facts)(_instruction(instruction))


def _instruction(instruction: str) -> Callable[[LLVMWriter, UOp], str]:
    return lambda w, node: _simple(w, instruction, node)


_rows({Ops.ADD: "fadd", Ops.SUB: "fsub", Ops.MUL: "fmul", Ops.FDIV: "fdiv"}, floats=True)
_rows({Ops.AND: "and", Ops.OR: "or", Ops.XOR: "xor", Ops.ISHL: "shl"}, floats=False)
_rows({Ops.IDIV: "udiv", Ops.IMOD: "urem", Ops.ISHR: "lshr"}, unsigned=True)
_rows({Ops.IDIV: "sdiv", Ops.IMOD: "srem", Ops.ISHR: "ashr"}, unsigned=False)
_rows(
    {
        Ops.CMPLT: "fcmp olt",
        Ops.CMPLE: "fcmp ole",
        Ops.CMPEQ: "fcmp oeq",
        Ops.CMPNE: "fcmp une",
    },
    floats=True,
)
_rows({Ops.CMPLT: "icmp ult", Ops.CMPLE: "icmp ule"}, unsigned=True)
_rows({Ops.CMPLT: "icmp slt", Ops.CMPLE: "icmp sle"}, unsigned=False)
_rows({Ops.CMPEQ: "icmp eq", Ops.CMPNE: "icmp ne"}, floats=False)


@emits(Ops.ADD, Ops.SUB, Ops.MUL, floats=False)
def wrapping(w: LLVMWriter, node: UOp) -> str:
    """Integers wrap; where they provably do not, address arithmetic may be rearranged."""
    flag = " nsw" if not node.dtype.is_unsigned and cannot_wrap(node) else ""
    return _simple(w, _WIDE_INSTRUCTION[node.op] + flag, node)


@emits(Ops.NEG, floats=True)
def flip_sign(w: LLVMWriter, node: UOp) -> str:
    """Only the sign bit changes."""
    return f"fneg {w.typed(node.src[0])}"


@emits(Ops.NEG, floats=False)
def negate(w: LLVMWriter, node: UOp) -> str:
    """0 - x."""
    return f"sub {llvm_type(node.dtype)} {llvm_literal(node.dtype, 0)}, {w[node.src[0]]}"


_INTRINSICS: Final = {
    Ops.SQRT: "sqrt",
    Ops.FLOOR: "floor",
    Ops.CEIL: "ceil",
    Ops.TRUNC: "trunc",
    Ops.ROUND: "roundeven",
    Ops.MULADD: "fma",
}


@emits(*_INTRINSICS, floats=True)
def intrinsic(w: LLVMWriter, node: UOp) -> str:
    """Functions that the processor has."""
    name = f"llvm.{_INTRINSICS[node.op]}.{_suffix(node.dtype)}"
    return w.call(name, llvm_type(node.dtype), *map(w.argument, node.src))


@emits(Ops.MAX, Ops.MIN, floats=False)
def integer_extreme(w: LLVMWriter, node: UOp) -> str:
    """Maximum and minimum of integers."""
    sign = "u" if node.dtype.is_unsigned or node.dtype.is_bool else "s"
    name = f"llvm.{sign}{node.op.name.lower()}.{_suffix(node.dtype)}"
    return w.call(name, llvm_type(node.dtype), *map(w.argument, node.src))


@emits(Ops.WHERE)
def select(w: LLVMWriter, node: UOp) -> str:
    """Both sides are computed; nothing branches."""
    return "select " + ", ".join(w.typed(s) for s in node.src)


# ---- conversions ---------------------------------------------------------------------------------


@emits(Ops.CAST)
def cast(w: LLVMWriter, node: UOp) -> str | None:
    """Between integers, from integers to floats, between floats, and to bool."""
    source, result = node.src[0], node.dtype
    if result.is_bool:
        zero = llvm_literal(source.dtype, 0.0 if source.dtype.is_float else 0)
        compare = "fcmp une" if source.dtype.is_float else "icmp ne"
        return f"{compare} {w.typed(source)}, {zero}"
    conversion = _conversion(source.dtype, result)
    if conversion == "":
        w.names[node] = w[source]
        if node in w.wide and result.bits < 64:
            w.widen_result(node)
        return None
    return f"{conversion} {w.typed(source)} to {llvm_type(result)}"


def _conversion(source: DType, result: DType) -> str:
    unsigned = source.is_unsigned or source.is_bool
    if source.is_float:
        if not result.is_float:
            return "fptoui" if result.is_unsigned else "fptosi"
        return "fpext" if result.bits > source.bits else "fptrunc"
    if result.is_float:
        return "uitofp" if unsigned else "sitofp"
    if result.bits == source.bits:
        return ""
    if result.bits < source.bits:
        return "trunc"
    return "zext" if unsigned else "sext"


@emits(Ops.FTOI)
def float_to_integer(w: LLVMWriter, node: UOp) -> str:
    """Towards zero, for values that fit."""
    conversion = "fptoui" if node.dtype.is_unsigned else "fptosi"
    return f"{conversion} {w.typed(node.src[0])} to {llvm_type(node.dtype)}"


@emits(Ops.BITCAST)
def bitcast(w: LLVMWriter, node: UOp) -> str:
    """The same bits; a bool counts as a byte."""
    source, result = node.src[0].dtype, node.dtype
    if result.is_bool and not source.is_bool:
        return f"trunc {w.typed(node.src[0])} to {llvm_type(result)}"
    conversion = "zext" if source.is_bool and not result.is_bool else "bitcast"
    return f"{conversion} {w.typed(node.src[0])} to {llvm_type(result)}"


# ---- lanes ---------------------------------------------------------------------------------------


@emits(Ops.SPLAT)
def splat(w: LLVMWriter, node: UOp) -> str:
    """Insert into lane 0, then copy it to all."""
    vector = llvm_type(node.dtype)
    one = w.value(f"insertelement {vector} poison, {w.typed(node.src[0])}, i64 0")
    lanes = f"<{node.dtype.lanes} x i32> zeroinitializer"
    return f"shufflevector {vector} {one}, {vector} poison, {lanes}"


@emits(Ops.LANE)
def lane(w: LLVMWriter, node: UOp) -> str:
    """One lane as a scalar, or some as a vector."""
    vector = w.typed(node.src[0])
    if isinstance(node.arg, int):
        return f"extractelement {vector}, i64 {node.arg}"
    if len(node.arg) == 1:
        return f"extractelement {vector}, i64 {node.arg[0]}"
    poison = f"{llvm_type(node.src[0].dtype)} poison"
    return f"shufflevector {vector}, {poison}, {_lane_list(node.arg)}"


emits(Ops.MMA)(multiply_matrices)


@emits(Ops.STACK)
def stack(w: LLVMWriter, node: UOp) -> str | None:
    """Scalars are inserted one by one; vectors of one size are joined in pairs."""
    vector = llvm_type(node.dtype)
    if node.dtype.lanes == 1:
        w.names[node] = w[node.src[0]]
        return None
    if all(s.dtype.lanes == 1 for s in node.src):
        text = "poison"
        for position, part in enumerate(node.src[:-1]):
            text = w.value(f"insertelement {vector} {text}, {w.typed(part)}, i64 {position}")
        return f"insertelement {vector} {text}, {w.typed(node.src[-1])}, i64 {len(node.src) - 1}"
    lanes, count = node.src[0].dtype.lanes, len(node.src)
    if all(s.dtype.lanes == lanes for s in node.src) and count & (count - 1) == 0:
        return _stack_in_pairs(w, node)
    return _stack_lane_by_lane(w, node)


def _stack_in_pairs(w: LLVMWriter, node: UOp) -> str:
    """As many parts as a power of two, of one size: neighbours are joined, again and again."""
    lanes, scalar = node.src[0].dtype.lanes, node.dtype.scalar
    parts = [w[s] for s in node.src]
    while True:
        kind = llvm_type(scalar.vec(lanes))
        pairs = [
            f"shufflevector {kind} {low}, {kind} {high}, {_lane_list(range(2 * lanes))}"
            for low, high in zip(parts[::2], parts[1::2], strict=True)
        ]
        if len(pairs) == 1:
            return pairs[0]
        parts, lanes = [w.value(text) for text in pairs], 2 * lanes


def _stack_lane_by_lane(w: LLVMWriter, node: UOp) -> str:
    """Parts of different sizes: every lane on its own."""
    vector, text, position = llvm_type(node.dtype), "poison", 0
    for part in node.src:
        for which in range(part.dtype.lanes):
            one = w.typed(part)
            if part.dtype.lanes > 1:
                taken = w.value(f"extractelement {one}, i64 {which}")
                one = f"{llvm_type(part.dtype.scalar)} {taken}"
            text = w.value(f"insertelement {vector} {text}, {one}, i64 {position}")
            position += 1
    return f"freeze {vector} {text}"


def _lane_list(lanes: range | tuple[int, ...]) -> str:
    return f"<{len(lanes)} x i32> <{', '.join(f'i32 {i}' for i in lanes)}>"


# ---- memory --------------------------------------------------------------------------------------


@emits(Ops.LOAD, gated=False)
def load(w: LLVMWriter, node: UOp) -> str | None:
    """Read memory, or what a register holds here."""
    storage = storage_of(node.src[0])
    if is_register(storage):
        if storage not in w.registers:
            raise refusal(node, "llvm", w.info.name, "a register is read before it is set")
        w.names[node] = w.registers[storage]
        return None
    if node in w.tiles:
        return load_tile(w, w.element_address(node.src[0]))
    return _from_memory(w, node.dtype, _plain_load(w, node, w.element_address(node.src[0])))


def _plain_load(w: LLVMWriter, node: UOp, address: str) -> str:
    dtype = memory_dtype(node.dtype)
    return f"load {llvm_type(dtype)}, ptr {address}, align {dtype.scalar.itemsize}"


def _from_memory(w: LLVMWriter, dtype: DType, text: str) -> str:
    """Turn the bytes of bools into bits."""
    if not dtype.is_bool:
        return text
    stored = memory_dtype(dtype)
    return f"icmp ne {llvm_type(stored)} {w.value(text)}, {llvm_literal(stored, 0)}"


def _to_memory(w: LLVMWriter, node: UOp) -> tuple[str, str]:
    """A value as it lies in memory: its type there, and its name."""
    if not node.dtype.is_bool:
        return w.argument(node)
    stored = llvm_type(memory_dtype(node.dtype))
    return stored, w.value(f"zext {w.typed(node)} to {stored}")


@emits(Ops.LOAD, gated=True, wide=False)
def gated_load(w: LLVMWriter, node: UOp) -> str:
    """Where the gate is false, the first element is read instead, and dropped."""
    index, fallback, gate = node.src
    storage = storage_of(index)
    if storage.arg.size == 0:
        return f"select i1 true, {w.typed(fallback)}, {w.typed(fallback)}"
    asked = w.element_address(index)
    safe = w.value(f"select i1 {w[gate]}, ptr {asked}, ptr {w.names[storage]}", "p")
    read = w.value(_from_memory(w, node.dtype, _plain_load(w, node, safe)))
    return f"select i1 {w[gate]}, {llvm_type(node.dtype)} {read}, {w.typed(fallback)}"


@emits(Ops.LOAD, gated=True, wide=True)
def masked_load(w: LLVMWriter, node: UOp) -> str | None:
    """Lanes whose gate is false are not touched and take the fallback.

    One gate for all lanes needs no mask, which few processors have for narrow numbers.
    """
    index, fallback, gate = node.src
    if gate.dtype.lanes == 1 and storage_of(index).arg.size >= node.dtype.lanes:
        return gated_load(w, node)
    stored = memory_dtype(node.dtype)
    vector = llvm_type(stored)
    name = f"llvm.masked.load.{_suffix(stored)}.p0"
    text = w.call(
        name,
        vector,
        ("ptr", w.element_address(index)),
        ("i32", str(stored.scalar.itemsize)),
        _mask(w, gate, node.dtype.lanes),
        _to_memory(w, fallback),
    )
    return _from_memory(w, node.dtype, text)


def _mask(w: LLVMWriter, gate: UOp, lanes: int) -> tuple[str, str]:
    if gate.dtype.lanes == lanes:
        return w.argument(gate)
    vector = f"<{lanes} x i1>"
    one = w.value(f"insertelement {vector} poison, {w.typed(gate)}, i64 0")
    zeros = f"<{lanes} x i32> zeroinitializer"
    return vector, w.value(f"shufflevector {vector} {one}, {vector} poison, {zeros}")


@emits(Ops.STORE, gated=False)
def store(w: LLVMWriter, node: UOp) -> None:
    """Write memory, or set a register."""
    index, value = node.src
    storage = storage_of(index)
    if is_register(storage):
        w.registers[storage] = as_tile(w, value) if storage in w.tiles else w[value]
        return
    if node.arg == "stream":
        _streamed_store(w, index, value)
        return
    _plain_store(w, index, value)


def _streamed_store(w: LLVMWriter, index: UOp, value: UOp) -> None:
    """Write past the caches where the parameter is aligned, else as usual."""
    address = w.element_address(index)
    kind, name = _to_memory(w, value)
    number = w.fresh("stream")[1:]
    storage_slot = storage_of(index).arg.slot
    w.effect(f"br i1 %aligned{storage_slot}, label %{number}.past, label %{number}.plain")
    w.label(f"{number}.past")
    past = f"align {memory_dtype(value.dtype).itemsize}, !nontemporal !0"
    w.effect(f"store {kind} {name}, ptr {address}, {past}")
    w.effect(f"br label %{number}.end")
    w.label(f"{number}.plain")
    w.effect(f"store {kind} {name}, ptr {address}, align {value.dtype.scalar.itemsize}")
    w.effect(f"br label %{number}.end")
    w.label(f"{number}.end")


def _plain_store(w: LLVMWriter, index: UOp, value: UOp) -> None:
    alignment = memory_dtype(value.dtype).scalar.itemsize
    address = w.element_address(index)
    kind, name = _to_memory(w, value)
    w.effect(f"store {kind} {name}, ptr {address}, align {alignment}")


@emits(Ops.STORE, gated=True)
def gated_store(w: LLVMWriter, node: UOp) -> None:
    """Touch memory only where the gate is true: by a mask for lanes, by a branch for one value."""
    index, value, gate = node.src
    storage = storage_of(index)
    if is_register(storage):
        kept = f"{llvm_type(value.dtype)} {w.registers[storage]}"
        w.registers[storage] = w.value(f"select {w.typed(gate)}, {w.typed(value)}, {kept}")
        return
    if gate.dtype.lanes > 1:
        _masked_store(w, index, value, gate)
        return
    number = w.fresh("gate")[1:]
    w.effect(f"br {w.typed(gate)}, label %{number}.do, label %{number}.end")
    w.label(f"{number}.do")
    _plain_store(w, index, value)
    w.effect(f"br label %{number}.end")
    w.label(f"{number}.end")


def _masked_store(w: LLVMWriter, index: UOp, value: UOp, gate: UOp) -> None:
    stored = memory_dtype(value.dtype)
    text = w.call(
        f"llvm.masked.store.{_suffix(stored)}.p0",
        "void",
        _to_memory(w, value),
        ("ptr", w.element_address(index)),
        ("i32", str(stored.scalar.itemsize)),
        w.argument(gate),
    )
    w.effect(text)


@emits(Ops.PREFETCH)
def prefetch(w: LLVMWriter, node: UOp) -> None:
    """Ask for a line of the data cache, to be read or written, kept in all levels."""
    numbers = (("i32", str(int(node.arg == "write"))), ("i32", "3"), ("i32", "1"))
    address = ("ptr", w.element_address(node.src[0]))
    w.effect(w.call("llvm.prefetch.p0", "void", address, *numbers))


# ---- control -------------------------------------------------------------------------------------


@emits(Ops.SPECIAL)
def special(w: LLVMWriter, node: UOp) -> None:
    """The index of this thread."""
    if node.arg.name != "thread":
        raise refusal(node, "llvm", w.info.name)
    w.integer(node, "%thread")


@emits(Ops.RANGE)
def open_loop(w: LLVMWriter, node: UOp) -> None:
    """Begin a loop that tests at its end, and before it only where it may have no turn."""
    number = int(w.fresh("loop")[5:])
    guarded = bounds(node.src[0]).min < 1
    count = w.wide_of(node.src[0])
    before, initial = w.block, {}
    for register in w.bodies[node]:
        if register in w.registers:
            initial[register] = w.registers[register]
    if guarded:
        some = w.value(f"icmp sgt i64 {count}, 0")
        w.effect(f"br i1 {some}, label %loop{number}, label %end{number}")
    else:
        w.effect(f"br label %loop{number}")
    w.label(f"loop{number}")
    carried = {register: w.fresh("acc") for register in initial}
    w.registers.update(carried)
    loop = _Loop(node, number, before, carried, initial, len(w.lines), count, guarded)
    w.lines.extend([""] * (1 + len(carried)))
    w.open.append(loop)
    w.integer(node, f"%i{number}")


@emits(Ops.END)
def close_loops(w: LLVMWriter, node: UOp) -> None:
    """Close the innermost loops, as many as the END has ranges."""
    for _ in closed_ranges(node):
        loop = w.open.pop()
        assert isinstance(loop, _Loop), "an END closes an IF"
        _close_loop(w, loop)


def _close_loop(w: LLVMWriter, loop: _Loop) -> None:
    number = loop.number
    w.effect(f"%i{number}.next = add nuw nsw i64 %i{number}, 1")
    more = w.value(f"icmp slt i64 %i{number}.next, {loop.count}")
    w.effect(f"br i1 {more}, label %loop{number}, label %end{number}")
    last = w.block
    phis = [f"  %i{number} = phi i64 [ 0, %{loop.before} ], [ %i{number}.next, %{last} ]"]
    for register, name in loop.carried.items():
        kind = w.register_type(register)
        start, final = loop.initial[register], w.registers[register]
        phis.append(f"  {name} = phi {kind} [ {start}, %{loop.before} ], [ {final}, %{last} ]")
    w.lines[loop.phi_line : loop.phi_line + len(phis)] = phis
    w.label(f"end{number}")
    for register in w.bodies[loop.node]:
        if register not in loop.carried:
            w.registers.pop(register, None)  # born inside: nobody may read it outside
        elif loop.guarded:
            start, final = loop.initial[register], w.registers[register]
            sources = f"[ {start}, %{loop.before} ], [ {final}, %{last} ]"
            w.registers[register] = w.value(f"phi {w.register_type(register)} {sources}", "acc")


@emits(Ops.IF)
def open_if(w: LLVMWriter, node: UOp) -> None:
    """What follows runs where the condition holds."""
    number = int(w.fresh("then")[5:])
    w.effect(f"br {w.typed(node.src[0])}, label %then{number}, label %join{number}")
    w.open.append(_If(number, w.block, dict(w.registers)))
    w.label(f"then{number}")


@emits(Ops.ENDIF)
def close_if(w: LLVMWriter, node: UOp) -> None:
    """Registers that the body set have two possible values from here on."""
    branch = w.open.pop()
    assert isinstance(branch, _If), "an ENDIF closes a loop"
    last = w.block
    w.effect(f"br label %join{branch.number}")
    w.label(f"join{branch.number}")
    for register, value in list(w.registers.items()):
        if register not in branch.registers:
            del w.registers[register]
        elif value != branch.registers[register]:
            old = branch.registers[register]
            sources = f"[ {old}, %{branch.before} ], [ {value}, %{last} ]"
            w.registers[register] = w.value(f"phi {w.register_type(register)} {sources}", "acc")
