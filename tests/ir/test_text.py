"""Graph text: exact round trips of random graphs, exact messages for text that cannot be read."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.core.dtype import INTEGERS, DType, dtypes
from pellucid.core.errors import ParseError
from pellucid.ir import arg as records
from pellucid.ir.arg import AddrSpace, AxisKind
from pellucid.ir.op import Ops
from pellucid.ir.text import changes, expression, from_text, literal_text, to_text
from pellucid.ir.uop import UOp

f32, index = dtypes.float32, dtypes.index

# ---- random graphs -----------------------------------------------------------------------------

WORDS = st.text(max_size=8)
COUNTS = st.integers(0, 1 << 40)
OPS = st.sampled_from(list(Ops.all()))
DTYPES = st.sampled_from([*INTEGERS, dtypes.bool, dtypes.bfloat16, f32, index, dtypes.void])
LITERALS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.binary(max_size=6) | OPS,
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)
ACTIONS = st.builds(records.Action, WORDS, COUNTS, COUNTS, st.tuples(WORDS))
RECORDS: st.SearchStrategy[Any] = st.one_of(
    st.builds(records.BufferArg, COUNTS, COUNTS, WORDS),
    st.builds(records.ParamArg, COUNTS, COUNTS),
    st.builds(records.RangeArg, COUNTS, st.sampled_from(AxisKind)),
    st.builds(records.DefineArg, st.sampled_from(AddrSpace), COUNTS, COUNTS),
    st.builds(records.ReduceArg, OPS, st.tuples(COUNTS)),
    st.builds(records.StageArg, st.sampled_from(AddrSpace), WORDS),
    st.builds(
        records.KernelInfo, WORDS, st.none() | st.tuples(ACTIONS), st.tuples(ACTIONS), st.booleans()
    ),
    st.builds(records.CallInfo, WORDS, st.tuples(WORDS)),
    st.builds(
        records.ProgramInfo,
        WORDS,
        COUNTS,
        variables=st.tuples(st.builds(records.VariableArg, WORDS, COUNTS, COUNTS)),
    ),
)


@st.composite
def graphs(draw: st.DrawFn) -> UOp:
    """Graphs with no meaning, so that text does not depend on it."""
    nodes: list[UOp] = []
    for _ in range(draw(st.integers(1, 8))):
        sources = draw(st.lists(st.sampled_from(nodes), max_size=3)) if nodes else []
        dtype: DType = draw(DTYPES)
        arg = draw(LITERALS | RECORDS)
        nodes.append(UOp(draw(OPS), dtype, tuple(sources), arg))
    return UOp(Ops.SINK, dtypes.void, tuple(nodes))


@given(graphs())
def test_random_graphs_come_back_as_the_same_nodes(graph: UOp) -> None:
    text = to_text(graph)
    assert from_text(text) is graph
    assert to_text(from_text(text)) == text
    assert len(text.split("\n")) == len(graph.toposort())


@given(st.floats())
def test_floats_are_exact(value: float) -> None:
    node = UOp(Ops.CONST, dtypes.float64, (), value)
    assert from_text(to_text(node)) is node


@pytest.mark.parametrize("value", [0.0, -0.0, math.inf, -math.inf, math.nan, 0.1, 5e-324])
def test_special_floats_alone_and_in_lanes(value: float) -> None:
    for node in (UOp.const(dtypes.float64, value), UOp.const(f32.vec(2), (value, 1.0))):
        assert from_text(to_text(node)) is node


def test_every_op_and_type_has_a_spelling() -> None:
    for op in Ops.all():
        for dtype in (dtypes.void, f32, dtypes.bfloat16.vec(4), dtypes.float8_e4m3):
            node = UOp(op, dtype)
            assert from_text(to_text(node)) is node


def test_shared_nodes_are_written_once() -> None:
    node = UOp.range(3, 0)
    for _ in range(200):
        node = node + node
    text = to_text(node)
    assert text.count("\n") == 201
    assert from_text(text) is node


def test_a_long_chain_is_no_deeper_than_a_short_one() -> None:
    node = UOp.range(3, 0)
    for k in range(10_000):
        node = node + k
    assert from_text(to_text(node)) is node


def test_comments_blank_lines_and_spaces() -> None:
    lines = [
        "# a graph",
        "",
        "  %0 = CONST index 4   # four",
        "%7 = RANGE index %0 RangeArg(0, AxisKind.LOOP)",
        "%1 = STORE %7 %7  # effect",
        "",
    ]
    node = from_text("\n".join(lines))
    assert node.op is Ops.STORE
    assert node.src[0] is UOp.range(4, 0)


def test_args_may_name_their_fields() -> None:
    text = (
        "%0 = SINK KernelInfo('add', actions=(Action('split', axis=1, amount=16),), ordered=True)"
    )
    info = from_text(text).arg
    assert info == records.KernelInfo("add", (records.Action("split", 1, 16),), ordered=True)
    assert from_text("%0 = SINK dtypes.float32.vec(4)").arg is f32.vec(4)


# ---- text that cannot be read ------------------------------------------------------------------

BROKEN = {
    "": "line 1, column 1: there is no node",
    "hello": "line 1, column 1: this is not a node",
    "%0 = FOO index 4": "line 1, column 6: no operation is named FOO",
    "%0 = CONST index 4\n%0 = CONST index 5": "line 2, column 1: %0 has been defined before",
    "%0 = CONST index 4\n%1 = ADD index %0 %2": "line 2, column 19: %2 has not been defined yet",
    "%0 = CONST index 4 4": "line 1, column 18: the arg is not an expression",
    "%0 = CONST float33 4": "line 1, column 12: the arg is not an expression",
    "%0 = CONST index (1": "line 1, column 18: the arg is not an expression",
    "%0 = CONST index four": "line 1, column 18: four cannot be an arg",
    "%0 = CONST index [1]": "line 1, column 18: [1] cannot be an arg",
    "%0 = CONST index 1 + 1": "line 1, column 18: 1 + 1 cannot be an arg",
    "%0 = CONST index (1, 2j)": "line 1, column 22: 2j cannot be an arg",
    "%0 = CONST index -'a'": "line 1, column 18: -'a' cannot be an arg",
    "%0 = CONST index ...": "line 1, column 18: ... cannot be an arg",
    "%0 = RANGE index RangeArg(0, AxisKind.WIDE)": (
        "line 1, column 30: nothing is named AxisKind.WIDE"
    ),
    "%0 = SINK os.system('true')": "line 1, column 11: os.system is not a record",
    "%0 = SINK __import__('os')": "line 1, column 11: __import__ is not a record",
    "%0 = SINK (lambda: 1)()": "line 1, column 11: lambda: 1 is not a record",
    "%0 = PARAM index ParamArg(0)": (
        "line 1, column 18: ParamArg missing 1 required positional argument: 'size'"
    ),
    "%0 = PARAM index ParamArg(0, 1, colour=2)": (
        "line 1, column 18: ParamArg got an unexpected keyword argument 'colour'"
    ),
}


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: text.split("\n")[-1] or "empty")
def test_mistakes_have_a_line_and_a_column(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        from_text(text)
    assert caught.value.problem == BROKEN[text]


def test_the_message_shows_the_line_with_a_mark() -> None:
    with pytest.raises(ParseError) as caught:
        from_text("%0 = CONST index four")
    assert str(caught.value).split("\n")[:3] == [
        "line 1, column 18: four cannot be an arg",
        "    line  %0 = CONST index four",
        "                           ^",
    ]


def test_args_without_a_spelling_are_refused() -> None:
    with pytest.raises(TypeError, match="graph text has no spelling for complex: 1j"):
        to_text(UOp(Ops.SINK, dtypes.void, (), (1, 1j)))


# ---- for people --------------------------------------------------------------------------------


def test_the_short_form_writes_leaves_where_they_are_used() -> None:
    i = UOp.range(4, 0)
    y, x = (UOp(Ops.PARAM, f32, (), records.ParamArg(k, 4)) for k in (0, 1))
    store = y.index(i).store(x.index(i * 2) + 1.0)
    sink = UOp.sink(store.end(i), arg=records.KernelInfo("add"))
    assert to_text(sink, names=True).split("\n") == [
        "i0 = RANGE 4",
        "%0 = INDEX float32 p0:float32 i0",
        "%1 = MUL index i0 2",
        "%2 = INDEX float32 p1:float32 %1",
        "%3 = ADD float32 %2 1.0:float32",
        "%4 = STORE %0 %3",
        "%5 = END %4 i0",
        "%6 = SINK %5 KernelInfo(name='add')",
    ]


def test_expressions_stop_at_their_depth() -> None:
    i = UOp.range(4, 0)
    assert expression(i * 2 + 1) == "ADD(MUL(i0, 2), 1)"
    assert expression((i * 2 + 1) * 3, 1) == "MUL(…, 3)"


def test_changes_leave_out_nodes_that_only_got_other_sources() -> None:
    i, j = UOp.range(4, 0), UOp.range(5, 1)
    before = ((i + 0) * 4 + 3) // 2
    after = (i * 4 + 3) // 2
    found = changes(before, after)
    assert [expression(n) for n in found.removed] == ["0", "ADD(i0, 0)"]
    assert found.added == ()
    assert str(changes(i * 4, j * 4)).split("\n") == ["- 4", "- i0", "+ 5", "+ i1"][1:]
    rewired = changes((i + j) * j, (i + i) * j)
    assert str(rewired).split("\n") == ["- ADD(i0, i1)", "+ ADD(i0, i0)"]
    assert changes(i, i).removed == ()


def test_default_fields_are_left_out() -> None:
    assert literal_text(records.ReduceArg(Ops.ADD)) == "ReduceArg(Ops.ADD)"
    assert literal_text(records.KernelInfo()) == "KernelInfo()"
