"""Matrix units: the action, what becomes of it in each form, and the code for every instruction.

The same nest runs three ways: in the interpreter, form by form; as machine code of this machine,
which spells the units that it lacks with plain ops; and, where this machine cannot execute it, as
code for the unit's own features whose instructions are read.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from pellucid.core.dtype import DType, dtypes
from pellucid.core.errors import ActionError
from pellucid.core.options import Context
from pellucid.core.target import parse_target
from pellucid.core.units import MATRIX_UNITS, MatrixUnit
from pellucid.ir.arg import Action
from pellucid.ir.form import LOOP
from pellucid.ir.interpret import run_kernel
from pellucid.ir.interpret.mapping import value_mapping
from pellucid.ir.interpret.values import from_storage, to_storage
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.ir.verify import verify
from pellucid.opt.actions.table import apply_action
from pellucid.opt.axes import axes_of, describe_axes, size_of
from pellucid.pipeline import render_kernel
from pellucid.render import CRenderer, LLVMRenderer
from pellucid.runtime import Buffer, Device
from pellucid.runtime.toolchain_llvm import assembly_of
from tests.codegen import kernels
from tests.codegen.lowering import TARGET, stages, with_actions

ALL = list(MATRIX_UNITS.values())
TILES = [unit for unit in ALL if unit.is_tile]
DOTS = [unit for unit in ALL if not unit.is_tile]
WORDS = MATRIX_UNITS["pmaddwd_256"]


@pytest.fixture(autouse=True)
def relaxed():
    """Units that take denormal numbers as zero are allowed."""
    with Context(relaxed_float=True):
        yield


def product(rows: int, inner: int, columns: int, left: DType, right: DType, total: DType) -> UOp:
    """c[i, j] = sum over k of a[i, k] * b[k, j], added in the type *total*"""
    i, j, k = kernels.loop(rows, 0), kernels.loop(columns, 1), kernels.axis(inner, 2)
    a = kernels.param(1, rows * inner, left).index(i * inner + k).cast(total)
    b = kernels.param(2, inner * columns, right).index(k * columns + j).cast(total)
    place = kernels.param(0, rows * columns, total).index(i * columns + j)
    return kernels.kernel(place.store(kernels.reduce(a * b, k)).end(i, j))


def squares(rows: int, inner: int) -> UOp:
    """y[i] = sum over k of x[i, k] * x[i, k]"""
    i, k = kernels.loop(rows, 0), kernels.axis(inner, 1)
    x = kernels.param(1, rows * inner, dtypes.int16).index(i * inner + k).cast(dtypes.int32)
    place = kernels.param(0, rows, dtypes.int32).index(i)
    return kernels.kernel(place.store(kernels.reduce(x * x, k)).end(i))


def of_unit(unit: MatrixUnit, rows: int = 2, inner: int = 3, columns: int = 2) -> UOp:
    """A product of the types of a unit, so many of it along each axis."""
    sizes = rows * unit.rows, inner * unit.depth, columns * unit.columns
    return product(*sizes, unit.left, unit.right, unit.sum)


def forced(unit: MatrixUnit, packed: bool = True) -> list[Action]:
    """The unit on the axes of a `product`; operands copied in its order."""
    extra = (unit.name,) if unit.rows == 1 else (unit.name, 0)
    packs = [Action("pack", 0, 2)] + ([Action("pack", 0, 1)] if unit.rows > 1 else [])
    return [Action("unit", 2, 1, extra), *(packs if packed else [])]


def numbers(dtype: DType, count: int, seed: int) -> np.ndarray:
    """Any integers; floats with few bits, so that sums are exact in any order."""
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        return to_storage(dtype, rng.integers(-64, 65, count).astype(np.float32) / 8)
    return rng.integers(int(dtype.min), int(dtype.max) + 1, count).astype(dtype.name)


def buffers_of(sink: UOp, seed: int = 0) -> list[np.ndarray]:
    """A result to fill, and two matrices."""
    params = {n.arg.slot: n for n in sink.toposort() if n.op is Ops.PARAM}
    arrays = [numbers(params[slot].dtype, params[slot].arg.size, seed + slot) for slot in (1, 2)]
    return [np.zeros(params[0].arg.size, params[0].dtype.name), *arrays]


def interpreted(sink: UOp, arrays: list[np.ndarray]) -> np.ndarray:
    """What the interpreter makes of a kernel."""
    copies = [a.copy() for a in arrays]
    run_kernel(sink, copies)
    return copies[0]


def compiled(device: str, sink: UOp, arrays: list[np.ndarray]) -> np.ndarray:
    """What the machine code of a kernel gives on this machine."""
    renderer = LLVMRenderer() if device == "CPU:LLVM" else CRenderer()
    made = render_kernel(sink, renderer)
    binary = Device[device].compile(made.source.arg, made.info.name)
    program = Device[device].load(binary, made.info.name)
    buffers = []
    for array in arrays:
        buffer = Buffer(device, array.nbytes, dtypes.uint8)
        buffer.as_numpy()[:] = array.view(np.uint8)
        buffers.append(buffer)
    program(buffers, [], 1, made.info.scratch_bytes)
    return buffers[0].as_numpy().copy().view(arrays[0].dtype)


# ---- the action --------------------------------------------------------------------------------


def act(sink: UOp, *actions: Action) -> UOp:
    """The kernel after some actions, each checked for its form."""
    for action in actions:
        sink = apply_action(sink, action, TARGET)
        verify(sink, LOOP)
    return sink


def test_a_unit_takes_the_inner_part_of_each_axis() -> None:
    after = act(of_unit(MATRIX_UNITS["tdpbssd"]), *forced(MATRIX_UNITS["tdpbssd"], packed=False))
    assert [str(axis) for axis in describe_axes(after)] == [
        "axis 0: output, over 2, loop",
        "axis 1: output, over 16, row",
        "axis 2: output, over 2, loop",
        "axis 3: output, over 16, column",
        "axis 4: reduced, over 3, reduce",
        "axis 5: reduced, over 64, depth",
    ]


def test_axes_of_the_size_of_a_unit_are_not_split() -> None:
    after = act(of_unit(WORDS, 1, 1, 1), *forced(WORDS, packed=False))
    assert [size_of(axis) for axis in axes_of(after)] == [1, 8, 2]


def test_a_packed_operand_has_neighbours_along_the_sum_side_by_side() -> None:
    sink = of_unit(WORDS, 1, 2, 1)
    packed = act(sink, *forced(WORDS))
    store = next(
        n for n in packed.toposort() if n.op is Ops.STORE and n.src[0].dtype is dtypes.int16
    )
    loops = sorted(store.ranges, key=lambda r: r.arg.id)
    assert [size_of(r) for r in loops] == [2, 16]
    at = [
        store.src[1]
        .src[1]
        .substitute(dict(zip(loops, map(loops[0].const_like, place), strict=True)))
        for place in ((0, 0), (0, 1), (0, 2), (1, 15))
    ]
    rows = {index: divmod(value, 8) for index, value in enumerate(_values(at))}
    assert rows == {0: (0, 0), 1: (1, 0), 2: (0, 1), 3: (3, 7)}


@pytest.mark.parametrize("axis", range(4))
def test_what_a_unit_does_gets_no_lanes_besides(axis: int) -> None:
    """Other output axes, and loops of the sum: they were taken, and broke the next pass."""
    after = act(of_unit(WORDS, 16, 16, 16), *forced(WORDS, packed=False))
    with pytest.raises(ActionError, match=r"lanes already|columns of a matrix unit"):
        act(after, Action("lanes", axis, 8))


def _values(indices: list[UOp]) -> list[int]:
    from pellucid.ir.simplify import simplify

    return [int(simplify(index).arg) for index in indices]


WORD = dtypes.int16
REFUSED = {
    "names no unit": (Action("unit", 2, 1), of_unit(WORDS), "it names none of the matrix units"),
    "an unknown unit": (
        Action("unit", 2, 1, ("mul",)),
        of_unit(WORDS),
        "it names none of the matrix units",
    ),
    "no rows": (
        Action("unit", 2, 1, ("tdpbssd",)),
        of_unit(WORDS),
        "tdpbssd needs an axis of columns and of rows",
    ),
    "no such axis": (
        Action("unit", 2, 9, ("pmaddwd_256",)),
        of_unit(WORDS),
        "the kernel has 3 axes",
    ),
    "an output": (
        Action("unit", 0, 1, ("pmaddwd_256",)),
        of_unit(WORDS),
        "it is no axis of one reduction",
    ),
    "reduced columns": (
        Action("unit", 2, 2, ("pmaddwd_256",)),
        of_unit(WORDS),
        "columns and rows are no output axes of one nest",
    ),
    "rows as columns": (
        Action("unit", 2, 0, ("vpdpbusd_512",)),
        product(16, 8, 16, dtypes.uint8, dtypes.int8, dtypes.int32),
        "vpdpbusd_512 does not take int8 and uint8",
    ),
    "a wider sum": (
        Action("unit", 2, 1, ("pmaddwd_256",)),
        product(2, 4, 8, WORD, WORD, dtypes.int64),
        "pmaddwd_256 gives a sum of int32",
    ),
    "wider numbers": (
        Action("unit", 2, 1, ("pmaddwd_256",)),
        product(2, 4, 8, dtypes.uint16, WORD, dtypes.int32),
        "pmaddwd_256 does not take uint16 and int16",
    ),
    "no product": (
        Action("unit", 1, 0, ("pmaddwd_256",)),
        squares(8, 4),
        "what is summed is no product of two reads, one along the columns",
    ),
    "uneven columns": (
        Action("unit", 2, 1, ("pmaddwd_256",)),
        product(2, 4, 12, WORD, WORD, dtypes.int32),
        "a size of 12 is no multiple of 8; pad it first",
    ),
    "an uneven sum": (
        Action("unit", 2, 1, ("pmaddwd_256",)),
        product(2, 5, 8, WORD, WORD, dtypes.int32),
        "a size of 5 is no multiple of 2; pad it first",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_unit_is_refused_with_the_reason(case: str) -> None:
    action, sink, reason = REFUSED[case]
    with pytest.raises(ActionError) as caught:
        apply_action(sink, action, TARGET)
    assert reason in str(caught.value)


def test_lanes_exclude_a_unit() -> None:
    sink = act(of_unit(WORDS), Action("lanes", 1, 8))
    with pytest.raises(ActionError, match="it is lanes already"):
        apply_action(sink, Action("unit", 3, 2, (WORDS.name,)), TARGET)


def test_units_that_lose_denormals_need_relaxed_floats() -> None:
    unit = MATRIX_UNITS["vdpbf16ps_512"]
    with Context(relaxed_float=False), pytest.raises(ActionError, match="relaxed_float"):
        apply_action(of_unit(unit), forced(unit)[0], TARGET)


# ---- the meaning, form by form -----------------------------------------------------------------


@pytest.mark.parametrize("unit", DOTS, ids=lambda u: u.name)
def test_every_form_has_the_value_of_the_loops(unit: MatrixUnit) -> None:
    sink = of_unit(unit)
    arrays = buffers_of(sink)
    expected = interpreted(sink, arrays)
    assert np.unique(expected).size > 4
    for name, form, graph in stages(with_actions(sink, *forced(unit))):
        verify(graph, form)
        assert np.array_equal(interpreted(graph, arrays), expected), name


@pytest.mark.parametrize("unit", TILES, ids=lambda u: u.name)
def test_tiles_have_the_value_of_the_loops(unit: MatrixUnit) -> None:
    sink = of_unit(unit, 2, 2, 1)
    arrays = buffers_of(sink)
    forms = {name: graph for name, _, graph in stages(with_actions(sink, *forced(unit)))}
    for name in ("expand_ranges", "add_control_flow"):  # loops over numbers alone take long
        assert np.array_equal(interpreted(forms[name], arrays), interpreted(sink, arrays)), name


def test_each_number_of_the_sum_comes_from_a_row_and_a_column() -> None:
    sink = of_unit(WORDS, 2, 2, 1)
    graph = stages(with_actions(sink, *forced(WORDS)))[-1][2]
    assert value_mapping(graph) == value_mapping(sink)


def test_operands_may_be_read_as_they_lie() -> None:
    sink = of_unit(WORDS)
    arrays = buffers_of(sink)
    graph = stages(with_actions(sink, *forced(WORDS, packed=False)))[-1][2]
    assert np.array_equal(interpreted(graph, arrays), interpreted(sink, arrays))


def test_a_sum_in_levels_keeps_the_unit_inside() -> None:
    sink = of_unit(WORDS, 2, 8, 2)
    arrays = buffers_of(sink)
    actions = [*forced(WORDS, packed=False), Action("cascade", 3, 4)]
    for name, form, graph in stages(with_actions(sink, *actions)):
        verify(graph, form)
        assert np.array_equal(interpreted(graph, arrays), interpreted(sink, arrays)), name


# ---- machine code of this machine --------------------------------------------------------------


@pytest.mark.parametrize("device", ["CPU:C", "CPU:LLVM"])
@pytest.mark.parametrize(
    "name", ["pmaddwd_128", "pmaddwd_256", "vdpbf16ps_512", "vpdpbusd_512", "vpdpbssd_256"]
)
def test_this_machine_agrees_with_the_interpreter(device: str, name: str) -> None:
    unit = MATRIX_UNITS[name]
    sink = of_unit(unit)
    arrays = buffers_of(sink)
    got = compiled(device, with_actions(sink, *forced(unit)), arrays)
    assert np.array_equal(got, interpreted(sink, arrays))


@pytest.mark.parametrize("name", ["tdpbf16ps", "tdpbusd"])
def test_this_machine_spells_tiles_with_plain_ops(name: str) -> None:
    unit = MATRIX_UNITS[name]
    sink = of_unit(unit, 2, 2, 1)
    arrays = buffers_of(sink)
    got = compiled("CPU:LLVM", with_actions(sink, *forced(unit)), arrays)
    assert np.array_equal(got, interpreted(sink, arrays))


def test_extremes_wrap_as_sums_do() -> None:
    sink = product(2, 6, 8, WORD, WORD, dtypes.int32)
    arrays = [np.zeros(16, np.int32), *(np.full(n, -(2**15), np.int16) for n in (12, 48))]
    expected = np.full(16, (6 << 30) - (1 << 32) * 2, np.int64).astype(np.int32)
    assert np.array_equal(interpreted(sink, arrays), expected)
    got = compiled("CPU:LLVM", with_actions(sink, *forced(WORDS)), arrays)
    assert np.array_equal(got, expected)


def test_infinities_and_nans_come_through() -> None:
    unit = MATRIX_UNITS["vdpbf16ps_512"]
    sink = of_unit(unit, 2, 2, 1)
    result, a, b = buffers_of(sink)
    a[:] = to_storage(dtypes.bfloat16, np.float32([1, 2, np.inf, 1, -0.0, 0, 3, 4]))
    b[:] = to_storage(dtypes.bfloat16, np.resize(np.float32([1, -1, 2, np.nan, 3]), b.size))
    expected = interpreted(sink, [result, a, b])
    assert [np.count_nonzero(f(expected)) > 0 for f in (np.isnan, np.isinf, np.isfinite)] == [
        True
    ] * 3
    got = compiled("CPU:LLVM", with_actions(sink, *forced(unit)), [result, a, b])
    assert np.array_equal(got, expected, equal_nan=True)


# ---- code for other machines -------------------------------------------------------------------

INSTRUCTIONS = {
    "tdpbf16ps": ("ldtilecfg", "tilezero", "tileloadd", "tdpbf16ps", "tilestored", "tilerelease"),
    "tdpbssd": ("ldtilecfg", "tilezero", "tileloadd", "tdpbssd", "tilestored", "tilerelease"),
    "tdpbsud": ("ldtilecfg", "tileloadd", "tdpbsud", "tilestored"),
    "tdpbusd": ("ldtilecfg", "tileloadd", "tdpbusd", "tilestored"),
    "tdpbuud": ("ldtilecfg", "tileloadd", "tdpbuud", "tilestored"),
    "vdpbf16ps_512": ("vdpbf16ps",),
    "vpdpbusd_512": ("vpdpbusd",),
    "vpdpbusd_256": ("vpdpbusd",),
    "vpdpbssd_256": ("vpdpbssd",),
    "vpdpbuud_256": ("vpdpbuud",),
    "vpdpwssd_512": ("vpdpwssd",),
    "vpdpwssd_256": ("vpdpwssd",),
    "pmaddwd_512": ("vpmaddwd", "vpaddd"),
    "pmaddwd_256": ("vpmaddwd", "vpaddd"),
    "pmaddwd_128": ("pmaddwd", "paddd"),
    "sdot_128": ("sdot",),
    "udot_128": ("udot",),
}


def code_for(unit: MatrixUnit, sink: UOp) -> list[str]:
    """The instructions of a kernel on a machine that has the unit, by name."""
    arch = "aarch64" if unit.feature == "dotprod" else "x86-64"
    wide = ",avx512bw" if unit.is_tile or unit.columns * unit.group * unit.left.bits == 512 else ""
    target = parse_target(f"{arch}:{unit.feature}{wide}")
    made = render_kernel(with_actions(sink, *forced(unit)), LLVMRenderer(target))
    lines = assembly_of(made.source.arg, made.info.name, target).splitlines()
    words = (line.replace("{vex}", "").split() for line in lines if line.startswith("\t"))
    return [w[0] for w in words if w and not w[0].startswith(".")]


@pytest.mark.parametrize("unit", ALL, ids=lambda u: u.name)
def test_a_machine_with_the_unit_gets_its_instruction(unit: MatrixUnit) -> None:
    code = code_for(unit, of_unit(unit))
    assert set(INSTRUCTIONS[unit.name]) <= set(code)
    # one body of a loop: nothing but the unit multiplies, and each operand is loaded once
    assert code.count(INSTRUCTIONS[unit.name][-1 if not unit.is_tile else -3]) >= 1
    multiplies = [w for w in code if w.startswith(("vmul", "vfma", "vpmull", "imul", "mulps"))]
    assert multiplies == []


def test_four_tiles_stay_in_registers() -> None:
    unit = MATRIX_UNITS["tdpbssd"]
    sink = of_unit(unit, 4, 3, 4)
    copies = [Action("upcast", 2, 2), Action("upcast", 0, 2)]
    first, *packs = forced(unit)
    actions = [first, *copies, *packs]
    target = parse_target("x86-64:amx-int8,avx512bw")
    made = render_kernel(with_actions(sink, *actions), LLVMRenderer(target))
    text = assembly_of(made.source.arg, made.info.name, target)
    assert [text.count(f"\t{word}") for word in ("tdpbssd", "tileloadd", "tilezero")] == [4, 4, 4]
    assert text.count("tilestored") == 4


# ---- random products ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_random_products_with_forced_units(seed: int) -> None:
    chance = random.Random(seed)
    unit = chance.choice(DOTS)
    narrow = [unit.left, unit.right]
    if unit.left is WORD:
        narrow = [chance.choice([dtypes.int8, dtypes.uint8, WORD]) for _ in narrow]
    rows, inner, columns = (chance.randint(2, 5) for _ in range(3))
    sizes = (rows, inner * unit.depth, columns * unit.columns)
    sink = product(*sizes, *narrow, unit.sum)
    arrays = buffers_of(sink, seed)
    actions = forced(unit, packed=chance.random() < 0.7)
    graph = stages(with_actions(sink, *actions))[-1][2]
    expected = interpreted(sink, arrays)
    assert np.array_equal(interpreted(graph, arrays), expected)
    assert np.array_equal(compiled("CPU:LLVM", with_actions(sink, *actions), arrays), expected)


def test_results_of_bfloat16_are_within_the_bound() -> None:
    unit = MATRIX_UNITS["vdpbf16ps_512"]
    sink = of_unit(unit, 3, 40, 1)
    rng = np.random.default_rng(5)
    result, a, b = buffers_of(sink)
    a[:], b[:] = (to_storage(dtypes.bfloat16, rng.standard_normal(x.size)) for x in (a, b))
    got = compiled("CPU:LLVM", with_actions(sink, *forced(unit)), [result, a, b])
    wide = [from_storage(dtypes.bfloat16, x).astype(np.float64) for x in (a, b)]
    left, right = wide[0].reshape(3, 80), wide[1].reshape(80, 16)
    bound = 2 * 2.0**-23 * np.log2(80) * (np.abs(left) @ np.abs(right)).reshape(-1)
    assert (np.abs(got - (left @ right).reshape(-1)) <= bound).all()
