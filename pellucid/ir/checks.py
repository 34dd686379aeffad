"""What the forms promise, one function a promise.

A check looks at one node and gives None, or the sentence that says what is wrong with it.
Checks about a whole kernel look at its SINK, those about a program's order at its LINEAR.
form.py says which checks belong to which form, verify.py runs them, and the docs print the
docstrings. The file is long because it is a list: each entry stands alone.

    reduce_names_a_range(REDUCE(x))  ->  "REDUCE without a range"
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from pellucid.core.dtype import dtypes, to_scalar
from pellucid.core.target import Target
from pellucid.core.units import MATRIX_UNITS
from pellucid.ir import arg as records
from pellucid.ir.arg import AxisKind
from pellucid.ir.bounds import alignment
from pellucid.ir.op import PAIR_OPS, REDUCE_OPS, TRANSCENDENTAL, Group, Op, Ops
from pellucid.ir.uop import UOp, arg_text

Message = str | None
Check = Callable[[UOp], Message]
TargetCheck = Callable[[UOp, Target], Message]


# ---- every form --------------------------------------------------------------------------------


def sources_fit_the_row(node: UOp) -> Message:
    """A node has as many sources as its row in the op table names."""
    names = node.op.sources
    least = sum(not name.endswith(("?", "*")) for name in names)
    most = math.inf if any(name.endswith("*") for name in names) else len(names)
    if least <= len(node.src) <= most:
        return None
    return f"{node.op.name} has {len(node.src)} sources; its row names {' '.join(names) or 'none'}"


def arg_fits_the_op(node: UOp) -> Message:
    """The arg is of the kind that the op takes, and None where it takes none."""
    fits, wanted = _ARGS.get(node.op, (_is_none, "no arg"))
    return None if fits(node.arg) else f"{node.op.name} takes {wanted}, not {node.arg!r}"


def literals_are_of_their_type(node: UOp) -> Message:
    """The value of a CONST is one that its type holds, one for all lanes or one for each."""
    if node.op is not Ops.CONST:
        return None
    values = node.arg if isinstance(node.arg, tuple) else (node.arg,)
    if len(values) not in (1, node.dtype.lanes):
        return f"CONST of {node.dtype} has {len(values)} values"
    for value in values:
        held = to_scalar(node.dtype.scalar, value)
        if type(held) is not type(value) or arg_text(held) != arg_text(value):
            return f"CONST of {node.dtype} cannot be {value!r}"
    return None


def elementwise_sources_agree(node: UOp) -> Message:
    """All sources of an elementwise op have one type (conditions: bool) and as many lanes."""
    if not node.op.is_elementwise:
        return None
    alike = node.src[1:] if node.op is Ops.WHERE else node.src
    if len({s.dtype for s in alike}) > 1:
        return f"{node.op.name} of {_names(s.dtype for s in alike)}"
    if len({s.dtype.lanes for s in node.src}) > 1:
        return f"{node.op.name} of {_names(s.dtype.lanes for s in node.src)} lanes"
    return None


def result_types_follow(node: UOp) -> Message:
    """The type of a node is the one that its row derives from the types of its sources."""
    if node.op is Ops.INDEX:
        expected = node.src[0].dtype.scalar.vec(node.dtype.lanes)
    elif node.op in (Ops.CAST, Ops.BITCAST, Ops.FTOI):
        expected = node.dtype.vec(node.src[0].dtype.lanes)
    elif node.op.result is not None and node.src:
        expected = node.op.result([s.dtype for s in node.src])
    elif node.op.result is not None and node.op.group in (Group.CONTROL, Group.PROGRAM):
        expected = dtypes.void
    else:
        return None
    return None if node.dtype is expected else f"{node.op.name} gives {expected}, not {node.dtype}"


def ops_fit_their_types(node: UOp) -> Message:
    """Float ops take floats, integer ops integers, bit ops integers and bools."""
    if not node.op.is_elementwise or not node.src:
        return None
    dtype = node.src[-1].dtype.scalar
    if node.op is Ops.THREEFRY:
        return None if dtype is dtypes.uint64 else f"THREEFRY of {dtype}"
    if dtype is dtypes.void:
        return f"{node.op.name} of an effect"
    if node.op in _OF_FLOATS and not dtype.is_float:
        return f"{node.op.name} of {dtype}, which is not a float"
    if node.op in _OF_INTEGERS and not dtype.is_int:
        return f"{node.op.name} of {dtype}, which is not an integer"
    if node.op in _OF_BITS and not (dtype.is_int or dtype.is_bool):
        return f"{node.op.name} of {dtype}, which is not an integer or bool"
    return None


def conditions_are_bool(node: UOp) -> Message:
    """What decides (of WHERE and IF, validity, gates) is a bool."""
    place = _CONDITIONS.get(node.op)
    if place is None or len(node.src) <= place or node.src[place].dtype.is_bool:
        return None
    return f"{node.op.name} decides by {node.src[place].dtype}"


def bitcasts_keep_the_width(node: UOp) -> Message:
    """A BITCAST goes between types of equal size."""
    if node.op is not Ops.BITCAST or node.src[0].dtype.itemsize == node.dtype.itemsize:
        return None
    return f"BITCAST from {node.src[0].dtype} to {node.dtype}"


def casts_change_the_type(node: UOp) -> Message:
    """A CAST to the type that its source has is its source."""
    if node.op in (Ops.CAST, Ops.BITCAST) and node.src[0].dtype is node.dtype:
        return f"{node.op.name} from {node.dtype} to itself"
    return None


# ---- TENSOR ------------------------------------------------------------------------------------


def tensors_have_a_shape(node: UOp) -> Message:
    """Every node but the SINK has a shape."""
    if node.op is Ops.SINK or node.shape is not None:
        return None
    return f"{node.op.name} has no shape"


def shapes_agree(node: UOp) -> Message:
    """All sources of an elementwise op, or of a PAIR, have one shape: broadcasting is EXPAND."""
    if (node.op.is_elementwise or node.op is Ops.PAIR) and len({s.shape for s in node.src}) > 1:
        return f"{node.op.name} of shapes {_names(s.shape for s in node.src)}"
    return None


def one_lane_each(node: UOp) -> Message:
    """Lanes do not exist yet."""
    return None if node.dtype.lanes == 1 else f"{node.op.name} has {node.dtype.lanes} lanes"


def movement_fits_its_source(node: UOp) -> Message:
    """A movement op names axes, sizes and boxes that its source has."""
    if not node.op.is_movement:
        return None
    shape, arg = node.src[0].known_shape, node.arg
    if _MOVEMENTS[node.op](shape, arg):
        return None
    return f"{node.op.name} of shape {shape} by {arg}"


def pad_fill_is_a_scalar(node: UOp) -> Message:
    """The fill of a PAD has shape () and the type of the source."""
    if node.op is not Ops.PAD:
        return None
    fill = node.src[1]
    if fill.shape == () and fill.dtype is node.src[0].dtype:
        return None
    return f"PAD of {node.src[0].dtype} with a fill of {fill.dtype}, shape {fill.shape}"


def reduce_names_an_axis(node: UOp) -> Message:
    """A REDUCE names at least one axis, each once, ascending, of those that its source has."""
    if node.op is not Ops.REDUCE:
        return None
    axes = node.arg.axes
    if not axes:
        return "REDUCE without an axis"
    good = list(axes) == sorted(set(axes)) and all(
        0 <= a < len(node.src[0].known_shape) for a in axes
    )
    return None if good else f"REDUCE of shape {node.src[0].known_shape} over axes {axes}"


def reduce_has_no_ranges_yet(node: UOp) -> Message:
    """Ranges come with LOOP form: whole tensors are reduced, and staged, by axes."""
    if node.op in (Ops.REDUCE, Ops.STAGE) and len(node.src) > 1:
        return f"{node.op.name} over ranges in TENSOR form"
    return None


def indices_fit_their_tensor(node: UOp) -> Message:
    """The indices of GATHER and SCATTER are integers of one shape, no more than there are axes."""
    first = {Ops.GATHER: 1, Ops.SCATTER: 2}.get(node.op)
    if first is None:
        return None
    indices, shape = node.src[first:], node.src[0].known_shape
    if not 1 <= len(indices) <= len(shape):
        return f"{node.op.name} of shape {shape} by {len(indices)} indices"
    if any(not i.dtype.is_int for i in indices):
        return f"{node.op.name} by {_names(i.dtype for i in indices)}"
    if len({i.shape for i in indices}) > 1:
        return f"{node.op.name} by indices of shapes {_names(i.shape for i in indices)}"
    return None


def written_values_fit(node: UOp) -> Message:
    """The value of a SCATTER or WRITE has the base's type, and the shape of what it replaces."""
    if node.op is Ops.SCATTER:
        base, value = node.src[:2]
        wanted = node.src[2].known_shape + base.known_shape[len(node.src) - 2 :]
    elif node.op is Ops.WRITE:
        base, window, value = node.src
        wanted = window.known_shape
    else:
        return None
    if value.dtype is not base.dtype:
        return f"{node.op.name} of {value.dtype} into {base.dtype}"
    if value.shape != wanted:
        return f"{node.op.name} of shape {value.shape} where {wanted} is replaced"
    return None


def window_ends_at_its_base(node: UOp) -> Message:
    """The window of a WRITE is a chain of RESHAPE, PERMUTE, SHRINK and FLIP over the base."""
    if node.op is not Ops.WRITE:
        return None
    window = node.src[1]
    while window is not node.src[0]:
        if window.op not in (Ops.RESHAPE, Ops.PERMUTE, Ops.SHRINK, Ops.FLIP):
            return f"the window of WRITE goes through {window.op.name}"
        window = window.src[0]
    return None


def flag_is_a_scalar_int64(node: UOp) -> Message:
    """The flag of a CHECK is one int64."""
    if node.op is not Ops.CHECK:
        return None
    flag = node.src[1]
    good = flag.dtype is dtypes.int64 and flag.shape == ()
    return None if good else f"the flag of CHECK is {flag.dtype} of shape {flag.shape}"


# ---- SCHEDULE ----------------------------------------------------------------------------------


def schedule_lists_calls(node: UOp) -> Message:
    """The LINEAR of a schedule holds CALLs only."""
    if node.op is Ops.LINEAR:
        return next(
            (f"a schedule lists {i.op.name}" for i in node.src if i.op is not Ops.CALL), None
        )
    return None


def calls_name_storage(node: UOp) -> Message:
    """A CALL runs a SINK, a PROGRAM or a COPY on BUFFERs and PARAMs."""
    if node.op is not Ops.CALL:
        return None
    callee, *buffers = node.src
    if callee.op not in (Ops.SINK, Ops.PROGRAM, Ops.COPY):
        return f"CALL of {callee.op.name}"
    bad = next((b for b in buffers if b.op not in (Ops.BUFFER, Ops.PARAM)), None)
    return None if bad is None else f"CALL on {bad.op.name}, which is not storage"


def calls_fit_their_kernel(node: UOp) -> Message:
    """The buffers of a CALL are those that the kernel's PARAMs describe: number, type and size."""
    if node.op is not Ops.CALL or node.src[0].op not in (Ops.SINK, Ops.PROGRAM):
        return None
    buffers = node.src[1:]
    for param in node.src[0].toposort():
        if param.op is not Ops.PARAM:
            continue
        slot = param.arg.slot
        if slot >= len(buffers):
            return f"CALL on {len(buffers)} buffers of a kernel with parameter {slot}"
        given = buffers[slot]
        same_type = given.dtype is param.dtype or node.src[0].op is Ops.PROGRAM
        if not same_type or given.arg.size < param.arg.size:
            what = f"{given.arg.size} {given.dtype}"
            return f"parameter {slot} is {param.arg.size} {param.dtype}; its buffer has {what}"
    return None


# ---- kernels -----------------------------------------------------------------------------------


def kernel_has_its_info(node: UOp) -> Message:
    """The SINK of a kernel carries a KernelInfo."""
    if node.op is Ops.SINK and not isinstance(node.arg, records.KernelInfo):
        return f"the SINK of a kernel carries {node.arg!r}"
    return None


def sink_holds_effects(node: UOp) -> Message:
    """A SINK, a GROUP and an END hold effects: STOREs and what is made of them."""
    if node.op not in (Ops.SINK, Ops.GROUP, Ops.END):
        return None
    effects = node.src[:1] if node.op is Ops.END else node.src
    bad = next((s for s in effects if s.dtype is not dtypes.void), None)
    return None if bad is None else f"{node.op.name} holds {bad.op.name}, which is a value"


def loops_close_ranges(node: UOp) -> Message:
    """What END and REDUCE close are RANGEs, each once."""
    if node.op not in (Ops.END, Ops.REDUCE):
        return None
    closed = node.src[1:]
    bad = next((s for s in closed if s.op is not Ops.RANGE), None)
    if bad is not None:
        return f"{node.op.name} closes {bad.op.name}"
    return None if len(set(closed)) == len(closed) else f"{node.op.name} closes a RANGE twice"


def stores_close_their_ranges(node: UOp) -> Message:
    """Every RANGE that a STORE depends on is closed by an END around it."""
    if node.op is not Ops.SINK:
        return None
    for effect in _effects(node):
        if effect.op is Ops.STORE and effect.ranges:
            return f"STORE depends on {_range_names(effect)}, which no END closes"
    return None


def no_open_ranges_at_the_sink(node: UOp) -> Message:
    """Nothing at the SINK depends on a RANGE any more."""
    if node.op is Ops.SINK and node.ranges:
        return f"{_range_names(node)} is still open at the SINK"
    return None


def range_ids_differ(node: UOp) -> Message:
    """Two RANGEs of a kernel have different numbers."""
    if node.op is not Ops.SINK:
        return None
    ids = [n.arg.id for n in node.toposort() if n.op is Ops.RANGE]
    twice = _first_repeated(ids)
    return None if twice is None else f"two RANGEs have number {twice}"


def params_have_one_slot_each(node: UOp) -> Message:
    """The PARAMs of a kernel have different slots."""
    if node.op is not Ops.SINK:
        return None
    slots = [n.arg.slot for n in node.toposort() if n.op is Ops.PARAM]
    twice = _first_repeated(slots)
    return None if twice is None else f"two PARAMs have slot {twice}"


def reduce_names_a_range(node: UOp) -> Message:
    """A REDUCE names at least one RANGE; a reduction over none is its source."""
    if node.op is Ops.REDUCE and len(node.src) < 2:
        return "REDUCE without a range"
    return None


def reduce_has_no_axes_left(node: UOp) -> Message:
    """The axes of a REDUCE have become ranges."""
    if node.op is Ops.REDUCE and node.arg.axes:
        return f"REDUCE still names axes {node.arg.axes}"
    return None


def pairs_are_reduced_as_pairs(node: UOp) -> Message:
    """What ARGMAX and ARGMIN reduce is a PAIR, and nothing else reduces one."""
    if node.op is not Ops.REDUCE:
        return None
    is_pair = node.src[0].op is Ops.PAIR
    if is_pair == (node.arg.op in PAIR_OPS):
        return None
    return f"REDUCE of {node.src[0].op.name} by {node.arg.op.name}"


def reduces_have_ranges_of_their_own(node: UOp) -> Message:
    """No RANGE is closed by two REDUCEs, but those of one pair, or by a REDUCE and an END."""
    if node.op is not Ops.SINK:
        return None
    owner: dict[UOp, UOp] = {}
    for closer in node.toposort():
        if closer.op not in (Ops.REDUCE, Ops.END):
            continue
        for r in closer.src[1:]:
            other = owner.setdefault(r, closer)
            if other is not closer and not _are_of_one_pair(other, closer):
                return f"{other.op.name} and {closer.op.name} both close i{r.arg.id}"
    return None


def _are_of_one_pair(first: UOp, second: UOp) -> bool:
    """True for reductions by the same keys, and for two ENDs, which may share a RANGE."""
    if first.op is Ops.END and second.op is Ops.END:
        return True
    if first.op is not second.op or first.src[1:] != second.src[1:]:
        return False
    pairs = (first.src[0], second.src[0])
    return all(p.op is Ops.PAIR for p in pairs) and pairs[0].src[1] is pairs[1].src[1]


def indices_are_integers(node: UOp) -> Message:
    """INDEX takes integers, and so do the sizes of RANGE and SPECIAL."""
    place = {Ops.INDEX: 1, Ops.RANGE: 0, Ops.SPECIAL: 0}.get(node.op)
    if place is None or node.src[place].dtype.is_int:
        return None
    return f"{node.op.name} by {node.src[place].dtype}"


def index_is_unbounded(node: UOp) -> Message:
    """Addresses and RANGEs are of type index until a width is chosen."""
    place = {Ops.INDEX: 1, Ops.RANGE: 0}.get(node.op)
    if place is None or node.src[place].dtype.is_index:
        return None
    return f"{node.op.name} by {node.src[place].dtype}, before widths are chosen"


def index_is_into_storage(node: UOp) -> Message:
    """INDEX goes into a PARAM or a DEFINE, itself or AFTER something."""
    if node.op is not Ops.INDEX:
        return None
    storage = node.src[0]
    while storage.op is Ops.AFTER:
        storage = storage.src[0]
    return None if storage.op in (Ops.PARAM, Ops.DEFINE) else f"INDEX into {storage.op.name}"


def accesses_go_through_an_index(node: UOp) -> Message:
    """LOAD, STORE and PREFETCH take an INDEX."""
    if node.op not in (Ops.LOAD, Ops.STORE, Ops.PREFETCH) or node.src[0].op is Ops.INDEX:
        return None
    return f"{node.op.name} at {node.src[0].op.name}"


def accesses_fit_their_index(node: UOp) -> Message:
    """What is stored, or taken as fallback, has the type of the INDEX; a gate has its lanes."""
    if node.op not in (Ops.LOAD, Ops.STORE):
        return None
    if len(node.src) > 1 and node.src[1].dtype is not node.src[0].dtype:
        return f"{node.op.name} of {node.src[1].dtype} at an INDEX of {node.src[0].dtype}"
    if len(node.src) > 2 and node.src[2].dtype.lanes != node.src[0].dtype.lanes:
        lanes = node.src[2].dtype.lanes, node.src[0].dtype.lanes
        return f"{node.op.name} with a gate of {lanes[0]} lanes for {lanes[1]}"
    return None


def streamed_stores_are_whole_vectors(node: UOp) -> Message:
    """A streamed STORE goes to a PARAM, ungated, by aligned vectors of 16 bytes or more."""
    if node.op is not Ops.STORE or node.arg is None:
        return None
    index, value = node.src[:2]
    if len(node.src) > 2 or value.dtype.itemsize < 16:
        return f"STORE 'stream' of {value.dtype}" + (" with a gate" if len(node.src) > 2 else "")
    storage = index.src[0]
    while storage.op is Ops.AFTER:
        storage = storage.src[0]
    is_aligned = alignment(index.src[1]) % value.dtype.lanes == 0
    return None if storage.op is Ops.PARAM and is_aligned else "STORE 'stream' off its alignment"


def loads_have_fallback_and_gate(node: UOp) -> Message:
    """A LOAD has a fallback and a gate, or neither."""
    return (
        "LOAD with a fallback and no gate" if node.op is Ops.LOAD and len(node.src) == 2 else None
    )


# ---- lanes -------------------------------------------------------------------------------------


def no_lanes_yet(node: UOp) -> Message:
    """LANES ranges are ranges still, so nothing has several lanes."""
    return one_lane_each(node)


def lane_ops_fit(node: UOp) -> Message:
    """SPLAT spreads a scalar, the parts of a STACK fill its lanes, LANE takes lanes that exist."""
    lanes = node.dtype.lanes
    if node.op is Ops.SPLAT and node.src[0].dtype.vec(lanes) is not node.dtype:
        return f"SPLAT of {node.src[0].dtype} to {node.dtype}"
    if node.op is Ops.SPLAT and node.src[0].dtype.lanes != 1:
        return f"SPLAT of {node.src[0].dtype}"
    if node.op is Ops.STACK and sum(s.dtype.lanes for s in node.src) != lanes:
        return f"STACK of {_names(s.dtype for s in node.src)} to {node.dtype}"
    if node.op is Ops.LANE:
        chosen = node.arg if isinstance(node.arg, tuple) else (node.arg,)
        if len(chosen) != lanes or any(not 0 <= c < node.src[0].dtype.lanes for c in chosen):
            return f"LANE {node.arg} of {node.src[0].dtype} to {node.dtype}"
    return None


def matrices_fit_their_unit(node: UOp) -> Message:
    """The operands of an MMA have the lanes and types of its unit, or the bits of these types."""
    if node.op is not Ops.MMA:
        return None
    unit = MATRIX_UNITS[node.arg]
    lanes = (unit.rows * unit.depth, unit.depth * unit.columns, unit.rows * unit.columns)
    types = (unit.left, unit.right, unit.sum)
    for source, count, dtype in zip(node.src, lanes, types, strict=True):
        alike = source.dtype.scalar is dtype or source.dtype.scalar.name == f"uint{dtype.bits}"
        if source.dtype.lanes != count or not alike:
            return f"{unit.name} of {_names(s.dtype for s in node.src)}"
    return None


def no_lanes_ranges_left(node: UOp) -> Message:
    """LANES ranges and those of matrix units are lanes now; UPCAST and UNROLL are copies."""
    if node.op is Ops.RANGE and node.arg.kind in _EXPANDED:
        return f"i{node.arg.id} is still a RANGE of kind {node.arg.kind.name}"
    return None


# ---- SCALAR and below --------------------------------------------------------------------------


def index_width_is_chosen(node: UOp) -> Message:
    """No node is of type index any more."""
    return f"{node.op.name} is of type index" if node.dtype.is_index else None


def no_launch_ranges_left(node: UOp) -> Message:
    """THREAD, GLOBAL and LOCAL ranges have become indices that the launch provides."""
    if node.op is Ops.RANGE and node.arg.kind in _LAUNCHED:
        return f"i{node.arg.id} is still a RANGE of kind {node.arg.kind.name}"
    return None


def reads_are_loads(node: UOp) -> Message:
    """An INDEX is an address: its value is read by a LOAD."""
    if node.op in (Ops.AFTER, Ops.GROUP):
        return None
    used = node.src[1:] if node.op in (Ops.LOAD, Ops.STORE, Ops.PREFETCH) else node.src
    if any(s.op is Ops.INDEX for s in used) and node.op is not Ops.LINEAR:
        return f"{node.op.name} reads an INDEX without a LOAD"
    return None


def no_vector_indices(node: UOp) -> Message:
    """An access of several lanes is side by side in memory, at a scalar index."""
    if node.op is Ops.INDEX and node.src[1].dtype.lanes > 1:
        return f"INDEX by {node.src[1].dtype.lanes} lanes"
    return None


def validity_is_gates(node: UOp) -> Message:
    """INDEX has two sources; what must not be touched is gated at the LOAD and the STORE."""
    return "INDEX with a third source" if node.op is Ops.INDEX and len(node.src) > 2 else None


def no_functions_left(node: UOp) -> Message:
    """Functions such as exp are spelled with exact ops."""
    return f"{node.op.name} is not exact" if node.op in TRANSCENDENTAL else None


def only_native_ops(node: UOp, target: Target) -> Message:
    """Arithmetic is what the target has."""
    native: Any = getattr(target, "native_ops", None)
    if node.op is Ops.MMA and node.arg not in target.matrix_units:
        return f"{node.arg} is not native to the target"
    if not native or not node.op.is_elementwise or node.op.name in native:
        return None
    return f"{node.op.name} is not native to the target"


def only_native_dtypes(node: UOp, target: Target) -> Message:
    """Values are of types that the target computes with."""
    native: Any = getattr(target, "native_dtypes", None)
    if not native or node.dtype is dtypes.void or node.op in (Ops.PARAM, Ops.DEFINE, Ops.AFTER):
        return None
    name = node.dtype.scalar.name
    return (
        None if name in native else f"{node.op.name} of {name}, which is not native to the target"
    )


# ---- LINEAR ------------------------------------------------------------------------------------


def each_source_comes_first(node: UOp) -> Message:
    """In a list, each item comes after its sources, and once."""
    if node.op is not Ops.LINEAR:
        return None
    seen: set[UOp] = set()
    for place, item in enumerate(node.src):
        missing = next((s for s in item.src if s not in seen), None)
        if missing is not None:
            return f"item {place} ({item.op.name}) comes before its source {missing.op.name}"
        if item in seen:
            return f"item {place} ({item.op.name}) is listed twice"
        seen.add(item)
    return None


def loops_nest(node: UOp) -> Message:
    """Each RANGE is closed by its END and each IF by its ENDIF, innermost first."""
    if node.op is not Ops.LINEAR:
        return None
    open_blocks: list[UOp] = []
    for place, item in enumerate(node.src):
        if item.op in (Ops.RANGE, Ops.IF):
            open_blocks.append(item)
        elif item.op in (Ops.END, Ops.ENDIF):
            closed = set(item.src[1:] if item.op is Ops.END else item.src)
            if not closed or set(open_blocks[-len(closed) :]) != closed:
                return f"item {place} ({item.op.name}) does not close the innermost block"
            del open_blocks[-len(closed) :]
    return f"{open_blocks[-1].op.name} is never closed" if open_blocks else None


def values_stay_in_their_loop(node: UOp) -> Message:
    """An item stands inside the loops of the RANGEs that it depends on."""
    if node.op is not Ops.LINEAR:
        return None
    open_ranges: set[UOp] = set()
    for place, item in enumerate(node.src):
        needed = {r for s in item.src for r in s.ranges}
        outside = needed - open_ranges
        if outside:
            names = ", ".join(sorted(f"i{r.arg.id}" for r in outside))
            return f"item {place} ({item.op.name}) stands outside of the loop of {names}"
        if item.op is Ops.RANGE:
            open_ranges.add(item)
        elif item.op is Ops.END:
            open_ranges -= set(item.src[1:])
    return None


def sink_is_last(node: UOp) -> Message:
    """The last item of a program's list is its SINK, the only one."""
    if node.op is not Ops.LINEAR:
        return None
    sinks = [place for place, item in enumerate(node.src) if item.op is Ops.SINK]
    return None if sinks == [len(node.src) - 1] else "SINK is not the last item"


# ---- PROGRAM -----------------------------------------------------------------------------------


def program_has_its_parts(node: UOp) -> Message:
    """A PROGRAM holds SINK, LINEAR, SOURCE and BINARY, in this order, as far as it has got."""
    if node.op is not Ops.PROGRAM:
        return None
    parts = tuple(s.op for s in node.src)
    whole = (Ops.SINK, Ops.LINEAR, Ops.SOURCE, Ops.BINARY)
    good = parts and parts == whole[: len(parts)]
    return None if good else f"PROGRAM holds {_names(p.name for p in parts) or 'nothing'}"


# ---- facts that the checks share ---------------------------------------------------------------

_FLOAT_ONLY: Final = (Ops.FDIV, Ops.SQRT, Ops.FLOOR, Ops.CEIL, Ops.TRUNC, Ops.ROUND, Ops.FTOI)
_OF_FLOATS: Final = frozenset(_FLOAT_ONLY) | (set(TRANSCENDENTAL) - {Ops.THREEFRY})
_OF_INTEGERS: Final = {
    *(Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.IDIV, Ops.IMOD),
    *(Ops.SHL, Ops.SHR, Ops.ISHL, Ops.ISHR),
}
_OF_BITS: Final = frozenset([Ops.AND, Ops.OR, Ops.XOR])
_CONDITIONS: Final = {Ops.WHERE: 0, Ops.IF: 0, Ops.INDEX: 2, Ops.LOAD: 2, Ops.STORE: 2}
_EXPANDED: Final = (
    *(AxisKind.LANES, AxisKind.UPCAST, AxisKind.UNROLL),
    *(AxisKind.ROW, AxisKind.COLUMN, AxisKind.DEPTH),
)
_LAUNCHED: Final = (AxisKind.THREAD, AxisKind.GLOBAL, AxisKind.LOCAL)


def _names(things: Any) -> str:
    return ", ".join(map(str, things))


def _first_repeated(numbers: list[int]) -> int | None:
    return next((n for n, count in Counter(numbers).items() if count > 1), None)


def _range_names(node: UOp) -> str:
    return ", ".join(f"i{r.arg.id}" for r in node.ranges)


def _effects(node: UOp) -> Iterator[UOp]:
    for source in node.src:
        yield source
        if source.op is Ops.GROUP:
            yield from _effects(source)


def _is_none(arg: Any) -> bool:
    return arg is None


def _is_record(record: type) -> Callable[[Any], bool]:
    return lambda arg: isinstance(arg, record)


def _is_count(arg: Any) -> bool:
    return type(arg) is int and arg >= 0


def _are_counts(arg: Any) -> bool:
    return isinstance(arg, tuple) and all(map(_is_count, arg))


def _are_pairs(arg: Any) -> bool:
    return isinstance(arg, tuple) and all(_are_counts(p) and len(p) == 2 for p in arg)


def _is_scalar(arg: Any) -> bool:
    values = arg if isinstance(arg, tuple) else (arg,)
    return all(isinstance(v, (bool, int, float)) for v in values)


def _is_reduction(arg: Any) -> bool:
    return isinstance(arg, records.ReduceArg) and arg.op in REDUCE_OPS


def _is_combiner(arg: Any) -> bool:
    return arg is None or arg in (Ops.ADD, Ops.MUL, Ops.MIN, Ops.MAX)


def _record(record: type) -> tuple[Callable[[Any], bool], str]:
    return _is_record(record), f"a {record.__name__}"


_COUNTS: Final = (_are_counts, "a tuple of counts")
_PAIRS: Final = (_are_pairs, "a tuple of pairs of counts")
_ARGS: Final[dict[Op, tuple[Callable[[Any], bool], str]]] = {
    Ops.CONST: (_is_scalar, "a number, or a tuple of numbers"),
    Ops.VARIABLE: _record(records.VariableArg),
    Ops.BUFFER: _record(records.BufferArg),
    Ops.PARAM: _record(records.ParamArg),
    Ops.IOTA: (_is_count, "a size"),
    Ops.DEFINE: _record(records.DefineArg),
    Ops.SPECIAL: _record(records.SpecialArg),
    Ops.RANGE: _record(records.RangeArg),
    Ops.RESHAPE: _COUNTS,
    Ops.PERMUTE: _COUNTS,
    Ops.EXPAND: _COUNTS,
    Ops.PAD: _PAIRS,
    Ops.SHRINK: _PAIRS,
    Ops.FLIP: _COUNTS,
    Ops.REDUCE: (_is_reduction, "a ReduceArg with an associative op"),
    Ops.SCATTER: (_is_combiner, "None, or an op that combines"),
    Ops.COPY: (lambda arg: isinstance(arg, str), "the name of a device"),
    Ops.LEAF: (lambda arg: type(arg) is int, "a number"),
    Ops.CHECK: _record(records.CheckArg),
    Ops.STAGE: _record(records.StageArg),
    Ops.MMA: (lambda arg: arg in MATRIX_UNITS, "the name of a matrix unit"),
    Ops.LANE: (lambda arg: _is_count(arg) or _are_counts(arg), "a lane, or a tuple of lanes"),
    Ops.SINK: (lambda arg: arg is None or isinstance(arg, records.KernelInfo), "a KernelInfo"),
    Ops.STORE: (lambda arg: arg in (None, "stream"), "None or 'stream'"),
    Ops.PREFETCH: (lambda arg: arg in (None, "write"), "None or 'write'"),
    Ops.CALL: _record(records.CallInfo),
    Ops.SOURCE: (lambda arg: isinstance(arg, str), "text"),
    Ops.BINARY: (lambda arg: isinstance(arg, bytes), "bytes"),
    Ops.PROGRAM: _record(records.ProgramInfo),
}


def _can_reshape(shape: tuple[int, ...], arg: Any) -> bool:
    return bool(math.prod(shape) == math.prod(arg))


def _can_permute(shape: tuple[int, ...], arg: Any) -> bool:
    return sorted(arg) == list(range(len(shape)))


def _can_expand(shape: tuple[int, ...], arg: Any) -> bool:
    if len(arg) < len(shape):
        return False
    ends = arg[len(arg) - len(shape) :]
    return all(old in (1, new) for old, new in zip(shape, ends, strict=True))


def _can_pad(shape: tuple[int, ...], arg: Any) -> bool:
    return len(arg) == len(shape)


def _can_shrink(shape: tuple[int, ...], arg: Any) -> bool:
    if len(arg) != len(shape):
        return False
    return all(start <= end <= size for (start, end), size in zip(arg, shape, strict=True))


def _can_flip(shape: tuple[int, ...], arg: Any) -> bool:
    return list(arg) == sorted(set(arg)) and all(a < len(shape) for a in arg)


_MOVEMENTS: Final[dict[Op, Callable[[tuple[int, ...], Any], bool]]] = {
    Ops.RESHAPE: _can_reshape,
    Ops.PERMUTE: _can_permute,
    Ops.EXPAND: _can_expand,
    Ops.PAD: _can_pad,
    Ops.SHRINK: _can_shrink,
    Ops.FLIP: _can_flip,
}
