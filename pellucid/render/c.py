"""Linear programs as C text, for reading, for porting, and for an installed compiler.

    acc = 0; for i in 0..7: acc += x[i]; y[0] = acc          becomes

    float acc0;
    acc0 = 0.0f;
    for (int64_t i0 = 0; i0 < 8; i0++) {
        acc0 = acc0 + x1[i0];
    }
    x0[0] = acc0;

C11 with GNU's vector extensions, which gcc (from 12) and clang share. What the text relies on:
floats are not contracted (`-ffp-contract=off`), casts between pointers are harmless
(`-fno-strict-aliasing`). Integer arithmetic that bounds do not prove to fit is done unsigned, so
that it wraps with and without `-fwrapv`.

A vector of bools is a vector of signed integers, 0 or -1 in each lane, as wide as what was
compared; it is converted where it meets another width. A bool in memory is a byte, 0 or 1.
Operations that C has for scalars only are loops over lanes in small functions, which compilers
turn into one instruction where there is one.

Source: ISO/IEC 9899:2011; GCC manual, "Using Vector Instructions through Built-in Functions".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from pellucid.core.dtype import DType, Scalar, dtypes, round_to
from pellucid.core.target import Target
from pellucid.ir.arg import AddrSpace, ProgramInfo
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.render.join import join_c
from pellucid.render.renderer import (
    SCRATCH_ALIGNMENT,
    Emitters,
    Renderer,
    cannot_wrap,
    closed_ranges,
    described,
    is_register,
    leaves,
    memory_dtype,
    refusal,
    scratch_layout,
    storage_of,
    streamed_bytes,
    value_of,
)

_LONGEST_INLINE: Final = 60
_FLOAT_NAMES: Final = {"float32": "float", "float64": "double"}
_UNSIGNED: Final = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}
_SIGNED: Final = {8: dtypes.int8, 16: dtypes.int16, 32: dtypes.int32, 64: dtypes.int64}


class CRenderer(Renderer):
    """C text, one function for each kernel; the runtime's C toolchain has the flags."""

    name: ClassVar[str] = "c"
    version: ClassVar[int] = 1
    compiler_flags: ClassVar[tuple[str, ...]] = (
        *("-std=gnu11", "-O2", "-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing"),
        *("-fno-math-errno", "-fno-trapping-math", "-w"),
    )
    """What the text needs to mean what it says (the first line), and to be fast (the second)."""

    def describe(self, machine: Target) -> Target:
        """See `Renderer.describe`."""
        return described(machine, emits.elementwise_ops)

    def render(self, linear: UOp, info: ProgramInfo) -> str:
        """See `Renderer.render`."""
        return CWriter(linear, info).text()

    def join(self, texts: Sequence[str], names: Sequence[str]) -> str:
        """See `Renderer.join`."""
        return join_c(texts, names)


def c_type(dtype: DType) -> str:
    """The C name of a type; vectors are typedefs.

    >>> c_type(dtypes.float32), c_type(dtypes.int8), c_type(dtypes.float32.vec(16))
    ('float', 'int8_t', 'float32x16')
    """
    if dtype.lanes > 1:
        return str(dtype)
    if dtype.is_bool:
        return "bool"
    return _FLOAT_NAMES.get(dtype.name) or f"{dtype.name}_t"


def c_literal(dtype: DType, value: Scalar) -> str:
    """A scalar literal; decimals are those that read back as exactly the value.

    >>> c_literal(dtypes.float32, 0.1), c_literal(dtypes.int64, -(2**63))
    ('0.10000000149011612f', '(-INT64_C(9223372036854775807) - 1)')
    """
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.is_float:
        return _float_literal(dtype, round_to(dtype, float(value)))
    number = int(value)
    if dtype.bits == 64:
        if dtype.is_unsigned:
            return f"UINT64_C({number})"
        if number == -(2**63):
            return f"(-INT64_C({2**63 - 1}) - 1)"
        return str(number) if abs(number) < 2**31 else f"INT64_C({number})"
    if number == -(2**31):
        return f"(-{2**31 - 1} - 1)"
    return f"{number}u" if dtype is dtypes.uint32 else str(number)


def _float_literal(dtype: DType, value: float) -> str:
    suffix = "f" if dtype is dtypes.float32 else ""
    if value != value:
        return f'__builtin_nan{suffix}("")'
    if value in (float("inf"), float("-inf")):
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
    return repr(value) + suffix


def _mask_dtype(bits: int, lanes: int) -> DType:
    return _SIGNED[max(bits, 8)].vec(lanes)


class CWriter:
    """Writes one function. Values that are used once, nearby, are written where they are used."""

    def __init__(self, linear: UOp, info: ProgramInfo) -> None:
        self.linear, self.info = linear, info
        self.lines: list[str] = []
        self.texts: dict[UOp, str] = {}
        self.helpers: dict[str, str] = {}
        self.types: dict[str, str] = {}
        self.mask_bits: dict[UOp, int] = {}
        self.counts: dict[str, int] = {}
        self.indent = 1
        self.inline = _used_once_nearby(linear.src)

    # ---- text ------------------------------------------------------------------------------------

    def text(self) -> str:
        """The whole file: a comment, types and helpers, and the function."""
        self.enter()
        for node in self.linear.src:
            self.write(node)
        if streamed_bytes(self.linear.src):
            self.lines += ["#ifdef __x86_64__", "    __builtin_ia32_sfence();", "#endif"]
        parameters = "void **buffers, const int64_t *vars, int64_t thread, void *scratch"
        head = f"void {self.info.name}({parameters})\n{{"
        parts = [self.header(), "#include <stdbool.h>\n#include <stdint.h>"]
        if self.types:
            parts.append("\n".join(self.types.values()))
        parts.extend(self.helpers.values())
        parts.append("\n".join([head, *self.lines, "}"]))
        return "\n\n".join(parts) + "\n"

    def header(self) -> str:
        """A comment with the kernel's name and what its parameters are."""
        rows = [f"/* {self.info.name}"]
        for param in _params(self.linear):
            slot = param.arg.slot
            roles = [
                r
                for r, slots in (("read", self.info.reads), ("written", self.info.writes))
                if slot in slots
            ]
            role = f", {' and '.join(roles)}" if roles else ""
            rows.append(f"   x{slot}: {param.dtype} [{param.arg.size}]{role}")
        rows.extend(f"   {v.name}: {v.min} to {v.max}" for v in self.info.variables)
        if self.info.num_threads > 1:
            rows.append(f"   thread: 0 to {self.info.num_threads - 1}")
        return "\n".join(rows) + " */"

    def enter(self) -> None:
        """Declare parameters, variables and storage."""
        for param in _params(self.linear):
            slot = param.arg.slot
            kind = c_type(memory_dtype(param.dtype))
            self.statement(f"{kind} *x{slot} = buffers[{slot}];")
        for param in leaves(self.linear, Ops.PARAM):
            self.texts[param] = f"x{param.arg.slot}"
        for variable in leaves(self.linear, Ops.VARIABLE):
            position = self.info.variables.index(variable.arg)
            self.texts[variable] = name = f"n{position}"
            kind = c_type(variable.dtype)
            self.statement(f"const {kind} {name} = vars[{position}]; /* {variable.arg.name} */")
        offsets, _ = scratch_layout(self.linear)
        for define in leaves(self.linear, Ops.DEFINE):
            self.reserve(define, offsets)

    def reserve(self, define: UOp, offsets: dict[UOp, int]) -> None:
        """Declare a DEFINE: a variable, an array, or a piece of scratch memory."""
        if is_register(define):
            self.texts[define] = name = self.fresh("acc")
            self.statement(f"{self.value_type(define)} {name};")
            return
        self.texts[define] = name = self.fresh("tile")
        kind = self.type_name(memory_dtype(define.dtype))
        if define.arg.space is AddrSpace.LOCAL and self.info.scratch_bytes:
            self.statement(f"{kind} *{name} = (void *)((char *)scratch + {offsets[define]});")
            return
        aligned = f"__attribute__((aligned({SCRATCH_ALIGNMENT})))"
        self.statement(f"{kind} {name}[{define.arg.size}] {aligned};")

    def statement(self, text: str) -> None:
        """One line of the function."""
        self.lines.append("    " * self.indent + text)

    def fresh(self, prefix: str) -> str:
        """A name that is not taken."""
        number = self.counts.get(prefix, 0)
        self.counts[prefix] = number + 1
        return f"{prefix}{number}"

    def type_name(self, dtype: DType) -> str:
        """The name of a type, which is defined where it is a vector."""
        name = c_type(dtype)
        if dtype.lanes > 1 and name not in self.types:
            scalar = c_type(dtype.scalar)
            attribute = f"vector_size({dtype.itemsize})"
            self.types[name] = f"typedef {scalar} {name} __attribute__(({attribute}));"
        return name

    def memory_type(self, dtype: DType) -> str:
        """The type of a vector in memory, where it is only aligned as its elements are."""
        name = f"{dtype}_in_memory"
        if name not in self.types:
            scalar = c_type(dtype.scalar)
            attributes = (
                f"vector_size({dtype.itemsize}), aligned({dtype.scalar.itemsize}), may_alias"
            )
            self.types[name] = f"typedef {scalar} {name} __attribute__(({attributes}));"
        return name

    def value_type(self, node: UOp) -> str:
        """The type of the variable that holds a value."""
        if node.dtype.is_bool and node.dtype.lanes > 1:
            bits = self.mask_bits.setdefault(node, 8)
            return self.type_name(_mask_dtype(bits, node.dtype.lanes))
        return self.type_name(node.dtype)

    def helper(self, name: str, result: DType, parameters: str, body: str) -> str:
        """Define a small function, once; returns its name."""
        if name not in self.helpers:
            head = "static inline __attribute__((always_inline))"
            self.helpers[name] = (
                f"{head} {self.type_name(result)} {name}({parameters})\n{{\n{body}\n}}"
            )
        return name

    # ---- values ----------------------------------------------------------------------------------

    def __getitem__(self, node: UOp) -> str:
        """The text of a value; a vector of bools as a mask of its own width."""
        node = value_of(node)
        if node.op is Ops.CONST:
            return self.literal(node.dtype, node.arg)
        return self.texts[node]

    def literal(self, dtype: DType, value: Scalar | tuple[Scalar, ...]) -> str:
        """A literal of any type but a vector of bools."""
        if isinstance(value, tuple):
            lanes = ", ".join(c_literal(dtype.scalar, v) for v in value)
            return f"({self.type_name(dtype)}){{{lanes}}}"
        text = c_literal(dtype.scalar, value)
        return text if dtype.lanes == 1 else self.splat(dtype, text)

    def splat(self, dtype: DType, text: str) -> str:
        """The call that copies a scalar to all lanes."""
        lanes = ", ".join(["x"] * dtype.lanes)
        body = f"    return ({self.type_name(dtype)}){{{lanes}}};"
        return f"{self.helper(f'splat_{dtype}', dtype, f'{c_type(dtype.scalar)} x', body)}({text})"

    def width_of_mask(self, *nodes: UOp) -> int:
        """The width in which masks are combined: that of the first that is no literal."""
        for node in map(value_of, nodes):
            if node.op is not Ops.CONST and node.dtype.is_bool and node.dtype.lanes > 1:
                return self.mask_bits[node]
        return 8

    def mask(self, node: UOp, bits: int) -> str:
        """A vector of bools as a mask of *bits* wide lanes."""
        node = value_of(node)
        dtype = _mask_dtype(bits, node.dtype.lanes)
        if node.op is Ops.CONST:
            value = node.arg
            lanes = tuple(-int(v) for v in value) if isinstance(value, tuple) else -int(value)
            return self.literal(dtype, lanes)
        if self.mask_bits[node] == bits:
            return self.texts[node]
        return f"__builtin_convertvector({self.texts[node]}, {self.type_name(dtype)})"

    def element(self, index: UOp) -> str:
        """The place in memory that an INDEX means, with all of its lanes."""
        storage = storage_of(index)
        base, offset = self.texts[storage], _stripped(self[index.src[1]])
        extra = index.dtype.lanes // storage.dtype.lanes
        if extra == 1:
            return f"{base}[{offset}]"
        kind = self.memory_type(memory_dtype(index.dtype))
        return f"*({kind} *){base if offset == '0' else f'({base} + {offset})'}"

    # ---- nodes -----------------------------------------------------------------------------------

    def write(self, node: UOp) -> None:
        """Write one item of the program."""
        if node.op in _SILENT:
            return
        emit = emits.find(node)
        if emit is None or node.dtype.lanes & (node.dtype.lanes - 1):
            raise refusal(node, "c", self.info.name)
        if node.dtype.is_bool and node.dtype.lanes > 1:
            self.mask_bits[node] = _mask_width(self, node)
        text = emit(self, node)
        if text is None:
            return
        if node in self.inline and len(text) <= _LONGEST_INLINE:
            self.texts[node] = text
            return
        name = self.fresh("v")
        self.statement(f"const {self.value_type(node)} {name} = {_stripped(text)};")
        self.texts[node] = name


def _params(linear: UOp) -> list[UOp]:
    """One PARAM for each slot, by slot."""
    by_slot = {param.arg.slot: param for param in leaves(linear, Ops.PARAM)}
    return [by_slot[slot] for slot in sorted(by_slot)]


def _stripped(text: str) -> str:
    """An expression without parentheses around all of it."""
    if not text.startswith("(") or not text.endswith(")"):
        return text
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[1:-1] if position == len(text) - 1 else text
    return text


def _used_once_nearby(items: tuple[UOp, ...]) -> set[UOp]:
    """Pure values that one other item uses, in the same block: they may stand where they are used.

    A read of a register may too, where its one use goes into the register's one write of the block.
    """
    block, blocks = 0, 0
    block_of: dict[UOp, int] = {}
    uses: dict[UOp, list[tuple[UOp, int]]] = {}
    writes: dict[tuple[UOp, int], int] = {}
    for node in items:
        if node.op in (Ops.RANGE, Ops.END, Ops.IF, Ops.ENDIF):
            blocks += 1
            block = blocks
        block_of[node] = block
        if node.op in _SILENT or node.op is Ops.END:
            continue
        sources = list(node.src)
        if node.op in (Ops.LOAD, Ops.STORE, Ops.PREFETCH):
            sources[0] = node.src[0].src[1]
            if node.op is Ops.STORE:
                place = (storage_of(node.src[0]), block)
                writes[place] = writes.get(place, 0) + 1
        for source in map(value_of, sources):
            uses.setdefault(source, []).append((node, block))
    once: set[UOp] = set()
    for node, users in uses.items():
        if len(users) != 1 or users[0][1] != block_of.get(node, -1):
            continue
        if node.op.is_elementwise or node.op is Ops.SPLAT:
            once.add(node)
        elif node.op is Ops.LOAD and is_register(storage_of(node.src[0])):
            if _feeds_own_write(node, users[0][0], uses, writes, block_of):
                once.add(node)
    return once


def _feeds_own_write(
    load: UOp,
    user: UOp,
    uses: dict[UOp, list[tuple[UOp, int]]],
    writes: dict[tuple[UOp, int], int],
    block_of: dict[UOp, int],
) -> bool:
    register = storage_of(load.src[0])
    users = uses.get(user, [])
    if writes.get((register, block_of[load])) != 1 or len(users) != 1:
        return False
    store = users[0][0]
    return store.op is Ops.STORE and storage_of(store.src[0]) is register


def _mask_width(w: CWriter, node: UOp) -> int:
    """Lanes of a mask are as wide as those of what made it."""
    if node.op in (Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE) and not node.src[0].dtype.is_bool:
        return node.src[0].dtype.bits
    if node.op in (Ops.CAST, Ops.BITCAST):
        return max(node.src[0].dtype.bits, 8)
    if node.op is Ops.LOAD:
        return w.mask_bits.get(storage_of(node.src[0]), 8)
    return w.width_of_mask(*(node.src[1:] + node.src[:1] if node.op is Ops.WHERE else node.src))


_SILENT: Final = frozenset(
    (
        *(Ops.CONST, Ops.PARAM, Ops.DEFINE, Ops.VARIABLE, Ops.INDEX),
        *(Ops.AFTER, Ops.GROUP, Ops.SINK, Ops.BARRIER),
    )
)
_SIGNS: Final = {
    Ops.ADD: "+",
    Ops.SUB: "-",
    Ops.MUL: "*",
    Ops.FDIV: "/",
    Ops.IDIV: "/",
    Ops.IMOD: "%",
    Ops.AND: "&",
    Ops.OR: "|",
    Ops.XOR: "^",
    Ops.ISHL: "<<",
    Ops.ISHR: ">>",
    Ops.CMPLT: "<",
    Ops.CMPLE: "<=",
    Ops.CMPEQ: "==",
    Ops.CMPNE: "!=",
}

emits: Emitters[CWriter] = Emitters()


# ---- arithmetic ----------------------------------------------------------------------------------


def _infix(w: CWriter, node: UOp) -> str:
    return f"({w[node.src[0]]} {_SIGNS[node.op]} {w[node.src[1]]})"


@emits(Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, floats=True)
def float_arithmetic(w: CWriter, node: UOp) -> str:
    """Floats: as C does it."""
    return _infix(w, node)


@emits(Ops.ADD, Ops.SUB, Ops.MUL, Ops.ISHL, floats=False)
def wrapping(w: CWriter, node: UOp) -> str:
    """Integers wrap: computed unsigned, unless bounds say that they cannot."""
    dtype, op = node.dtype, node.op
    if dtype.bits >= 32 and (dtype.is_unsigned or (op is not Ops.ISHL and cannot_wrap(node))):
        return _infix(w, node)
    bits = dtype.bits if dtype.lanes > 1 else max(dtype.bits, 32)
    unsigned = w.type_name(_UNSIGNED[bits].vec(dtype.lanes))
    left, right = (f"({unsigned}){w[s]}" for s in node.src)
    return f"({w.type_name(dtype)})({left} {_SIGNS[op]} {right})"


@emits(Ops.IDIV, Ops.IMOD, Ops.ISHR, floats=False)
def integer_arithmetic(w: CWriter, node: UOp) -> str:
    """Never out of range, by the meaning of these ops."""
    narrow = node.dtype.bits < 32 and node.dtype.lanes == 1
    return f"({w.type_name(node.dtype)}){_infix(w, node)}" if narrow else _infix(w, node)


@emits(Ops.NEG, floats=True)
def flip_sign(w: CWriter, node: UOp) -> str:
    """Only the sign bit changes."""
    return f"(- {w[node.src[0]]})"


@emits(Ops.NEG, floats=False)
def negate(w: CWriter, node: UOp) -> str:
    """0 - x, unsigned."""
    dtype = node.dtype
    bits = dtype.bits if dtype.lanes > 1 else max(dtype.bits, 32)
    unsigned = w.type_name(_UNSIGNED[bits].vec(dtype.lanes))
    return f"({w.type_name(dtype)})(- ({unsigned}){w[node.src[0]]})"


@emits(Ops.AND, Ops.OR, Ops.XOR, floats=False)
def bitwise(w: CWriter, node: UOp) -> str:
    """Bits, and logic of bools."""
    if node.dtype.is_bool and node.dtype.lanes > 1:
        left, right = (w.mask(s, w.mask_bits[node]) for s in node.src)
        return f"({left} {_SIGNS[node.op]} {right})"
    narrow = node.dtype.bits < 32 and node.dtype.lanes == 1 and not node.dtype.is_bool
    return f"({w.type_name(node.dtype)}){_infix(w, node)}" if narrow else _infix(w, node)


_FUNCTIONS: Final = {
    Ops.SQRT: "sqrt",
    Ops.FLOOR: "floor",
    Ops.CEIL: "ceil",
    Ops.TRUNC: "trunc",
    Ops.ROUND: "rint",
    Ops.MULADD: "fma",
}


@emits(*_FUNCTIONS, floats=True)
def function(w: CWriter, node: UOp) -> str:
    """Functions that the processor has; lane by lane for vectors."""
    dtype = node.dtype
    name = f"__builtin_{_FUNCTIONS[node.op]}{'f' if dtype.bits == 32 else ''}"
    arguments = ", ".join(_stripped(w[s]) for s in node.src)
    if dtype.lanes == 1:
        return f"{name}({arguments})"
    letters = "abc"[: len(node.src)]
    call = f"{name}({', '.join(f'{x}[lane]' for x in letters)})"
    return f"{_by_lanes(w, _FUNCTIONS[node.op], dtype, letters, call)}({arguments})"


def _by_lanes(w: CWriter, name: str, dtype: DType, letters: str, expression: str) -> str:
    """A helper that computes *expression* for each lane."""
    kind = w.type_name(dtype)
    body = (
        f"    {kind} result;\n    for (int lane = 0; lane < {dtype.lanes}; lane++)\n"
        f"        result[lane] = {expression};\n    return result;"
    )
    parameters = ", ".join(f"{kind} {letter}" for letter in letters)
    return w.helper(f"{name}_{dtype}", dtype, parameters, body)


@emits(Ops.MAX, Ops.MIN, floats=False)
def integer_extreme(w: CWriter, node: UOp) -> str:
    """Maximum and minimum of integers."""
    dtype = node.dtype
    sign, name = (">", "max") if node.op is Ops.MAX else ("<", "min")
    if dtype.lanes > 1:
        letters = f"a[lane] {sign} b[lane] ? a[lane] : b[lane]"
        left, right = (_stripped(w[s]) for s in node.src)
        return f"{_by_lanes(w, name, dtype, 'ab', letters)}({left}, {right})"
    kind = c_type(dtype)
    parameters = f"{kind} a, {kind} b"
    chosen = w.helper(f"{name}_{dtype}", dtype, parameters, f"    return a {sign} b ? a : b;")
    return f"{chosen}({_stripped(w[node.src[0]])}, {_stripped(w[node.src[1]])})"


@emits(Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE)
def compare(w: CWriter, node: UOp) -> str:
    """Scalars give 0 or 1, vectors 0 or -1 in each lane."""
    if node.dtype.lanes == 1:
        return _infix(w, node)
    if node.src[0].dtype.is_bool:
        return _compare_masks(w, node)
    kind = w.type_name(_mask_dtype(w.mask_bits[node], node.dtype.lanes))
    return f"({kind}){_infix(w, node)}"


def _compare_masks(w: CWriter, node: UOp) -> str:
    left, right = (w.mask(s, w.mask_bits[node]) for s in node.src)
    return {
        Ops.CMPLT: f"(~{left} & {right})",
        Ops.CMPLE: f"(~{left} | {right})",
        Ops.CMPEQ: f"(~({left} ^ {right}))",
        Ops.CMPNE: f"({left} ^ {right})",
    }[node.op]


@emits(Ops.WHERE, wide=False)
def select(w: CWriter, node: UOp) -> str:
    """One of two values."""
    condition, if_true, if_false = (w[s] for s in node.src)
    literals = all(value_of(s).op is Ops.CONST for s in node.src[1:])
    kind = f"({c_type(node.dtype)})" if literals and node.dtype.bits == 64 else ""
    return f"({condition} ? {kind}{if_true} : {if_false})"


@emits(Ops.WHERE, wide=True)
def select_lanes(w: CWriter, node: UOp) -> str:
    """Lane by lane, by masking."""
    condition, if_true, if_false = node.src
    if node.dtype.is_bool:
        bits = w.mask_bits[node]
        chosen, left, right = (w.mask(s, bits) for s in node.src)
        return f"(({chosen} & {left}) | (~{chosen} & {right}))"
    dtype = node.dtype
    mask = _mask_dtype(dtype.bits, dtype.lanes)
    kind, bits_kind = w.type_name(dtype), w.type_name(mask)
    body = f"    return ({kind})((mask & ({bits_kind})a) | (~mask & ({bits_kind})b));"
    name = w.helper(f"select_{dtype}", dtype, f"{bits_kind} mask, {kind} a, {kind} b", body)
    chosen = w.mask(condition, dtype.bits)
    return f"{name}({_stripped(chosen)}, {_stripped(w[if_true])}, {_stripped(w[if_false])})"


# ---- conversions ---------------------------------------------------------------------------------


@emits(Ops.CAST, Ops.FTOI)
def cast(w: CWriter, node: UOp) -> str:
    """Between types, by value; floats become integers towards zero."""
    source, result = node.src[0], node.dtype
    if result.is_bool:
        return _to_bool(w, node)
    if result.lanes == 1:
        return f"({c_type(result)}){w[source]}"
    if source.dtype.is_bool:
        bits = w.width_of_mask(source)
        ones = f"(-{w.mask(source, bits)})"
        same = _mask_dtype(bits, result.lanes)
        return ones if result is same else f"__builtin_convertvector({ones}, {w.type_name(result)})"
    return f"__builtin_convertvector({_stripped(w[source])}, {w.type_name(result)})"


def _to_bool(w: CWriter, node: UOp) -> str:
    source = node.src[0]
    zero = w.literal(source.dtype, 0.0 if source.dtype.is_float else 0)
    if node.dtype.lanes == 1:
        return f"({w[source]} != {zero})"
    kind = w.type_name(_mask_dtype(w.mask_bits[node], node.dtype.lanes))
    return f"({kind})({w[source]} != {zero})"


@emits(Ops.BITCAST, wide=False)
def bitcast(w: CWriter, node: UOp) -> str:
    """The same bits, through memory; a bool counts as a byte."""
    source, result = node.src[0], node.dtype
    if not source.dtype.is_float and not result.is_float:
        return f"({c_type(result)}){w[source]}"
    kind = c_type(result)
    body = (
        f"    {kind} result;\n    __builtin_memcpy(&result, &x, sizeof result);\n    return result;"
    )
    name = f"{result}_of_{source.dtype}_bits"
    w.helper(name, result, f"{c_type(source.dtype)} x", body)
    return f"{name}({_stripped(w[source])})"


@emits(Ops.BITCAST, wide=True)
def bitcast_lanes(w: CWriter, node: UOp) -> str:
    """The same bits; a bool counts as a byte."""
    source, result = node.src[0], node.dtype
    if result.is_bool:
        return w[source] if source.dtype.is_bool else _to_bool(w, node)
    if source.dtype.is_bool:
        return f"({w.type_name(result)})(-{w.mask(source, 8)})"
    return f"({w.type_name(result)}){w[source]}"


# ---- lanes ---------------------------------------------------------------------------------------


@emits(Ops.SPLAT)
def splat(w: CWriter, node: UOp) -> str:
    """One scalar in all lanes."""
    if node.dtype.is_bool:
        mask = _mask_dtype(w.mask_bits[node], node.dtype.lanes)
        return w.splat(mask, f"-{w[node.src[0]]}")
    return w.splat(node.dtype, _stripped(w[node.src[0]]))


@emits(Ops.LANE)
def lane(w: CWriter, node: UOp) -> str:
    """One lane as a scalar, or some as a vector."""
    source = node.src[0]
    text = w.mask(source, w.width_of_mask(source)) if source.dtype.is_bool else w[source]
    text = text if text.isidentifier() else f"({text})"
    which = node.arg if isinstance(node.arg, int) else node.arg[0] if len(node.arg) == 1 else None
    if which is not None:
        return f"({text}[{which}] != 0)" if source.dtype.is_bool else f"{text}[{which}]"
    lanes = ", ".join(map(str, node.arg))
    return f"__builtin_shufflevector({text}, {text}, {lanes})"


@emits(Ops.STACK)
def stack(w: CWriter, node: UOp) -> str:
    """All lanes of all parts, in order."""
    if node.dtype.lanes == 1:
        return w[node.src[0]]
    sign, dtype = "", node.dtype
    if dtype.is_bool:
        sign, dtype = "-", _mask_dtype(w.mask_bits[node], dtype.lanes)
    lanes: list[str] = []
    for part in node.src:
        if part.dtype.lanes == 1:
            lanes.append(sign + w[part])
        else:
            text = w.mask(part, dtype.bits) if part.dtype.is_bool else w[part]
            text = text if text.isidentifier() else f"({text})"
            lanes.extend(f"{text}[{i}]" for i in range(part.dtype.lanes))
    return f"({w.type_name(dtype)}){{{', '.join(lanes)}}}"


# ---- memory --------------------------------------------------------------------------------------


@emits(Ops.LOAD, gated=False)
def load(w: CWriter, node: UOp) -> str:
    """Read memory or a register."""
    storage = storage_of(node.src[0])
    if is_register(storage):
        return w.texts[storage]
    return _from_memory(w, node, w.element(node.src[0]))


def _from_memory(w: CWriter, node: UOp, text: str) -> str:
    if not node.dtype.is_bool:
        return text
    if node.dtype.lanes == 1:
        return f"({text} != 0)"
    return f"({w.type_name(_mask_dtype(8, node.dtype.lanes))})({text} != 0)"


def _to_memory(w: CWriter, node: UOp) -> str:
    if node.dtype.is_bool and node.dtype.lanes > 1:
        return f"({w.type_name(memory_dtype(node.dtype))})(-{w.mask(node, 8)})"
    return w[node]


@emits(Ops.LOAD, gated=True, wide=False)
def gated_load(w: CWriter, node: UOp) -> str:
    """Touch memory only where the gate is true."""
    index, fallback, gate = node.src
    return f"({w[gate]} ? {_from_memory(w, node, w.element(index))} : {w[fallback]})"


@emits(Ops.LOAD, gated=True, wide=True)
def masked_load(w: CWriter, node: UOp) -> None:
    """Start from the fallback and replace the lanes whose gate is true."""
    index, fallback, gate = node.src
    name = w.fresh("v")
    scalar = node.dtype.is_bool
    start = w.mask(fallback, w.mask_bits[node]) if scalar else w[fallback]
    base, first = w.texts[storage_of(index)], _stripped(w[index.src[1]])
    read = f"{base}[{first} + lane]"
    condition = _gate_lane(w, gate)
    w.statement(f"{w.value_type(node)} {name} = {_stripped(start)};")
    w.statement(f"for (int lane = 0; lane < {node.dtype.lanes}; lane++)")
    value = f"-({read} != 0)" if scalar else read
    w.statement(f"    if ({condition}) {name}[lane] = {value};")
    w.texts[node] = name


def _gate_lane(w: CWriter, gate: UOp) -> str:
    """The gate of the lane `lane`; a mask is put into a variable first."""
    if gate.dtype.lanes == 1:
        return w[gate]
    bits = w.width_of_mask(gate)
    name = w.fresh("mask")
    kind = w.type_name(_mask_dtype(bits, gate.dtype.lanes))
    w.statement(f"const {kind} {name} = {_stripped(w.mask(gate, bits))};")
    return f"{name}[lane]"


@emits(Ops.STORE, gated=False)
def store(w: CWriter, node: UOp) -> None:
    """Write memory or a register."""
    index, value = node.src
    storage = storage_of(index)
    if is_register(storage):
        w.statement(f"{w.texts[storage]} = {_stripped(_register_value(w, storage, value))};")
        return
    if node.arg == "stream":
        base, offset = w.texts[storage], _stripped(w[index.src[1]])
        written = _stripped(_to_memory(w, value))
        w.statement(f"{_streaming(w, value.dtype)}({base} + {offset}, {written});")
        return
    w.statement(f"{w.element(index)} = {_stripped(_to_memory(w, value))};")


def _streaming(w: CWriter, dtype: DType) -> str:
    """The function that writes a vector past the caches where it is aligned, and clang is used."""
    stored = memory_dtype(dtype)
    name, kind, unaligned = f"stream_{stored}", w.type_name(stored), w.memory_type(stored)
    w.helpers[
        name
    ] = f"""static inline __attribute__((always_inline)) void {name}(void *p, {kind} x)
{{
#ifdef __clang__
    if (((uintptr_t)p & (sizeof x - 1)) == 0) {{
        __builtin_nontemporal_store(x, ({kind} *)p);
        return;
    }}
#endif
    *({unaligned} *)p = x;
}}"""
    return name


def _register_value(w: CWriter, storage: UOp, value: UOp) -> str:
    """A value as a register keeps it: masks have one width there."""
    if value.dtype.is_bool and value.dtype.lanes > 1:
        return w.mask(value, w.mask_bits[storage])
    return w[value]


@emits(Ops.STORE, gated=True)
def gated_store(w: CWriter, node: UOp) -> None:
    """Touch memory only where the gate is true."""
    index, value, gate = node.src
    storage = storage_of(index)
    if gate.dtype.lanes == 1:
        text = _register_value(w, storage, value) if is_register(storage) else _to_memory(w, value)
        place = w.texts[storage] if is_register(storage) else w.element(index)
        w.statement(f"if ({_stripped(w[gate])}) {place} = {_stripped(text)};")
        return
    name = w.fresh("v")
    kind = w.type_name(memory_dtype(value.dtype))
    base, first = w.texts[storage], _stripped(w[index.src[1]])
    w.statement(f"const {kind} {name} = {_stripped(_to_memory(w, value))};")
    condition = _gate_lane(w, gate)
    w.statement(f"for (int lane = 0; lane < {value.dtype.lanes}; lane++)")
    w.statement(f"    if ({condition}) {base}[{first} + lane] = {name}[lane];")


@emits(Ops.PREFETCH)
def prefetch(w: CWriter, node: UOp) -> None:
    """Ask for a line of the data cache, to be read or written."""
    index = node.src[0]
    place = f"{w.texts[storage_of(index)]} + {_stripped(w[index.src[1]])}"
    w.statement(f"__builtin_prefetch({place}, {int(node.arg == 'write')});")


# ---- control -------------------------------------------------------------------------------------


@emits(Ops.SPECIAL)
def special(w: CWriter, node: UOp) -> None:
    """The index of this thread."""
    if node.arg.name != "thread":
        raise refusal(node, "c", w.info.name)
    w.texts[node] = "thread" if node.dtype.bits == 64 else f"({c_type(node.dtype)})thread"


@emits(Ops.RANGE)
def open_loop(w: CWriter, node: UOp) -> None:
    """Begin a loop; its variable has the number of the range."""
    w.texts[node] = name = f"i{node.arg.id}"
    size = _stripped(w[node.src[0]])
    w.statement(f"for ({c_type(node.dtype)} {name} = 0; {name} < {size}; {name}++) {{")
    w.indent += 1


@emits(Ops.END)
def close_loops(w: CWriter, node: UOp) -> None:
    """Close the innermost loops, as many as the END has ranges."""
    for _ in closed_ranges(node):
        w.indent -= 1
        w.statement("}")


@emits(Ops.IF)
def open_if(w: CWriter, node: UOp) -> None:
    """What follows runs where the condition holds."""
    w.statement(f"if ({_stripped(w[node.src[0]])}) {{")
    w.indent += 1


@emits(Ops.ENDIF)
def close_if(w: CWriter, node: UOp) -> None:
    """The end of an IF."""
    w.indent -= 1
    w.statement("}")
