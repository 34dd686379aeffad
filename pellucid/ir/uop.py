"""The one node of every graph: immutable, and interned, so that equal structure is the same object.

    UOp(op, dtype, src, arg)          UOp(Ops.ADD, int32, (a, b)) is a + b

Nodes are kept alive by whoever holds them; a weak table finds the one that exists. Facts that
follow from a node's sources (shape, open ranges, content key, bounds) are computed once, on demand,
without recursion: a chain of a million nodes is no deeper than one of two. See `fact`.

    range i over 4, range j over 3        (i * 3 + j).ranges == (i, j)
    END(STORE(...i, j...), j).ranges == (i,)

Arithmetic on nodes builds nodes: `x * 2 + 1`, `x // 4`, `x < y` (comparisons give bool nodes;
`==` stays identity, use `eq`). Python numbers become CONSTs of the other side's type, and shape
where there is one.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import operator
import struct
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar, overload

from pellucid.core.dtype import DType, Scalar, dtypes, to_scalar
from pellucid.ir.arg import AxisKind, BufferArg, RangeArg
from pellucid.ir.op import Op, Ops, Shape

T = TypeVar("T")
_CONST, _RANGE, _END, _REDUCE = Ops.CONST, Ops.RANGE, Ops.END, Ops.REDUCE

_nodes: dict[tuple[Any, ...], _Reference] = {}
_lock = threading.RLock()
_dead: deque[_Reference] = deque()
_died: Callable[[Any], None] = _dead.append
_MOST_DEAD: Final = 128
"""How many dead nodes wait: taken out of the table together, each costs half as much."""
_buffer_ids = itertools.count()
_MISSING: Final = object()
"""In place of a fact that was not asked for yet: an exception would take four times as long."""


class _Reference(weakref.ref["UOp"]):
    """A weak reference that knows its place in the table."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


def clear_dead() -> None:
    """Take dead nodes out of the table, in a loop, as each may let its sources die.

    A node that dies only joins the queue, which is no step of Python's: where one is, an interrupt
    may come, and is lost. Who makes a node when many wait, or needs memory, clears the queue. An
    interrupt may come between any two steps here: what was begun is done again.
    """
    if not _dead:
        return
    with _lock:
        while _dead:
            gone = _dead[0]
            if _nodes.get(gone.key) is gone:  # it was not made anew since then
                del _nodes[gone.key]
            if _dead and _dead[0] is gone:
                _dead.popleft()
            del gone  # its key held its sources, which may die now and join the queue


class fact(Generic[T]):  # noqa: N801  (used as a decorator)
    """A property that follows from the node and the same property of its sources.

    The first use computes it for all nodes below that lack it, sources first, in a loop; the value
    is kept in the slot named `_` + the function's name.
    """

    def __init__(self, compute: Callable[[UOp], T]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__
        self.slot = "_" + compute.__name__

    @overload
    def __get__(self, node: None, owner: type) -> fact[T]: ...
    @overload
    def __get__(self, node: UOp, owner: type) -> T: ...
    def __get__(self, node: UOp | None, owner: type) -> T | fact[T]:
        if node is None:
            return self
        found: Any = getattr(node, self.slot, _MISSING)
        return self.fill(node) if found is _MISSING else found

    def __call__(self, node: UOp) -> T:
        """Use as a function: for facts that other modules define."""
        found: Any = getattr(node, self.slot, _MISSING)
        return self.fill(node) if found is _MISSING else found

    def fill(self, node: UOp) -> T:
        """Compute the fact for *node*, after all sources that lack it."""
        slot, compute, keep = self.slot, self.compute, self.keep
        for source in node.src:
            if not hasattr(source, slot):
                break
        else:  # as for every node that is asked as soon as it is made
            value = compute(node)
            keep(node, value)
            return value
        stack = [node]
        while stack:
            top = stack[-1]
            missing = [source for source in top.src if not hasattr(source, slot)]
            if missing:
                stack += missing
                continue
            stack.pop()
            if not hasattr(top, slot):
                keep(top, compute(top))
        return getattr(node, slot)  # type: ignore[no-any-return]

    @functools.cached_property
    def keep(self) -> Callable[[UOp, T], None]:
        """Sets the slot of a node, which refuses ordinary assignments."""
        return keeper(self.slot)


class _Parts:
    """What a node holds. It is filled as one of these, whose parts can be set; then it is a UOp."""

    __slots__ = (
        "__weakref__",
        "_bounds",
        "_content",
        "_kept",
        "_leaf",
        "_memory",
        "_normal",
        "_order",
        "_past",
        "_ranges",
        "_shape",
        "_stride",
        "arg",
        "dtype",
        "op",
        "src",
    )

    op: Op
    dtype: DType
    src: tuple[UOp, ...]
    arg: Any
    _content: bytes
    _kept: dict[Callable[[UOp], Any], Any]
    _normal: int
    _ranges: tuple[UOp, ...]
    _shape: Shape | None


def node_of(op: Op, dtype: DType, src: tuple[UOp, ...], arg: Any = None) -> UOp:
    """The one node with these parts: what UOp(…) returns, without the cost of calling a class.

    A new entry of the table needs no lock, as `setdefault` is one step and changes no entry; who
    exchanges or takes out the entry of a dead node holds it.
    """
    key = (op, dtype, src, arg if op is not _CONST else _const_key(arg))
    reference = _nodes.get(key)
    if reference is not None:
        found = reference()
        if found is not None:
            return found
    node: Any = _Parts()
    node.op = op
    node.dtype = dtype
    node.src = src
    node.arg = arg
    node._normal = 0
    node.__class__ = UOp
    mine = _Reference(node, _died)
    mine.key = key
    if _nodes.setdefault(key, mine) is not mine:
        with _lock:
            reference = _nodes.setdefault(key, mine)
            found = reference()
            if found is not None:
                return found
            _nodes[key] = mine
    if len(_dead) > _MOST_DEAD:
        clear_dead()
    return node  # type: ignore[no-any-return]


class UOp(_Parts):
    """One operation: `op` (a row of the table), `dtype`, `src` (sources), `arg`."""

    __slots__ = ()

    op: Final[Op]  # type: ignore[misc]
    dtype: Final[DType]  # type: ignore[misc]
    src: Final[tuple[UOp, ...]]  # type: ignore[misc]
    arg: Final[Any]  # type: ignore[misc]

    def __new__(cls, op: Op, dtype: DType, src: tuple[UOp, ...] = (), arg: Any = None) -> UOp:
        """Return the one node with these parts, making it if there is none."""
        return node_of(op, dtype, src, arg)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a UOp cannot be changed (tried to set {name}); make a new one")

    def __copy__(self) -> UOp:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> UOp:
        return self

    def __repr__(self) -> str:
        arg = "" if self.arg is None else f", {self.arg!r}"
        return f"<{self.op.name} {self.dtype}{arg}, {len(self.src)} sources>"

    # ---- building

    @staticmethod
    def const(dtype: DType, value: Scalar | tuple[Scalar, ...]) -> UOp:
        """A literal of *dtype*; the value is cast to it as CAST would."""
        if isinstance(value, tuple):
            # an index is one of Python's own integers, whatever its size
            lanes = value if dtype.is_index else tuple([to_scalar(dtype.scalar, v) for v in value])
            keys = _const_key(lanes)
            same = keys.count(keys[0]) == len(keys)
            return node_of(_CONST, dtype, (), lanes[0] if same else lanes)
        if type(value) is not int or not dtype.is_index:
            value = to_scalar(dtype.scalar, value)
        return node_of(_CONST, dtype, (), value)

    def replace(self, **changes: Any) -> UOp:
        """The node with some of op, dtype, src, arg exchanged."""
        parts = {"op": self.op, "dtype": self.dtype, "src": self.src, "arg": self.arg, **changes}
        return UOp(parts["op"], parts["dtype"], parts["src"], parts["arg"])

    def with_sources(self, src: tuple[UOp, ...]) -> UOp:
        """The node over other sources (itself when they are the same)."""
        return self if src == self.src else node_of(self.op, self.dtype, src, self.arg)

    def over(self, done: Mapping[UOp, UOp]) -> UOp:
        """The node over what *done* has for each of its sources (itself when they are the same).

        Spelled out for one source and for two, as in a loop over a graph that is most of the time.
        """
        src = self.src
        count = len(src)
        if count == 2:
            left, right = src
            new_left, new_right = done[left], done[right]
            if new_left is left and new_right is right:
                return self
            return node_of(self.op, self.dtype, (new_left, new_right), self.arg)
        if count == 1:
            (only,) = src
            new = done[only]
            return self if new is only else node_of(self.op, self.dtype, (new,), self.arg)
        return self.with_sources(tuple([done[source] for source in src])) if count else self

    @staticmethod
    def make(op: Op, *src: UOp, arg: Any = None) -> UOp:
        """A node whose type follows from the row's rule.

        >>> UOp.make(Ops.CMPLT, UOp.const(dtypes.int32, 1), UOp.const(dtypes.int32, 2)).dtype
        dtypes.bool
        """
        if op.result is None:
            raise TypeError(f"{op} needs its type given: UOp({op}, dtype, …)")
        return node_of(op, op.result([s.dtype for s in src]), src, arg)

    def const_like(self, value: Scalar | tuple[Scalar, ...]) -> UOp:
        """A literal of this node's type, broadcast to its shape where it has one."""
        literal = UOp.const(self.dtype, value)
        shape = None if self.dtype.is_index else self.shape  # an index is one number
        return literal.expand(shape) if shape else literal

    def _other(self, value: UOp | Scalar) -> UOp:
        return value if isinstance(value, UOp) else self.const_like(value)

    def alu(self, op: Op, *others: UOp | Scalar) -> UOp:
        """An elementwise op with this node as first source; numbers become literals like it."""
        return UOp.make(op, self, *[self._other(o) for o in others])

    def __add__(self, other: UOp | Scalar) -> UOp:
        return self.alu(Ops.ADD, other)

    def __radd__(self, other: Scalar) -> UOp:
        return self._other(other).alu(Ops.ADD, self)

    def __mul__(self, other: UOp | Scalar) -> UOp:
        return self.alu(Ops.MUL, other)

    def __rmul__(self, other: Scalar) -> UOp:
        return self._other(other).alu(Ops.MUL, self)

    def __neg__(self) -> UOp:
        return self.alu(Ops.MUL, -1)

    def __sub__(self, other: UOp | Scalar) -> UOp:
        return self.alu(Ops.ADD, -self._other(other))

    def __rsub__(self, other: Scalar) -> UOp:
        return self._other(other).alu(Ops.ADD, -self)

    def __truediv__(self, other: UOp | Scalar) -> UOp:
        return self.alu(Ops.FDIV, other)

    def __floordiv__(self, other: UOp | Scalar) -> UOp:
        return self.alu(Ops.FLOORDIV, other)

    def __mod__(self, other: UOp | Scalar) -> UOp:
        return self.alu(Ops.FLOORMOD, other)

    def __and__(self, other: UOp | Scalar) -> UOp:
        return self.alu(Ops.AND, other)

    def __or__(self, other: UOp | Scalar) -> UOp:
        return self.alu(Ops.OR, other)

    def __xor__(self, other: UOp | Scalar) -> UOp:
        return self.alu(Ops.XOR, other)

    def __lshift__(self, other: UOp | Scalar) -> UOp:
        return self.alu(Ops.SHL, other)

    def __rshift__(self, other: UOp | Scalar) -> UOp:
        return self.alu(Ops.SHR, other)

    def __lt__(self, other: UOp | Scalar) -> UOp:
        return self.alu(Ops.CMPLT, other)

    def __le__(self, other: UOp | Scalar) -> UOp:
        return self.alu(Ops.CMPLE, other)

    def __gt__(self, other: UOp | Scalar) -> UOp:
        return self._other(other).alu(Ops.CMPLT, self)

    def __ge__(self, other: UOp | Scalar) -> UOp:
        return self._other(other).alu(Ops.CMPLE, self)

    def eq(self, other: UOp | Scalar) -> UOp:
        """Elementwise equality."""
        return self.alu(Ops.CMPEQ, other)

    def ne(self, other: UOp | Scalar) -> UOp:
        """Elementwise inequality."""
        return self.alu(Ops.CMPNE, other)

    def logical_not(self) -> UOp:
        """The opposite of a bool."""
        return self.alu(Ops.XOR, True)

    def maximum(self, other: UOp | Scalar) -> UOp:
        """Elementwise MAX."""
        return self.alu(Ops.MAX, other)

    def minimum(self, other: UOp | Scalar) -> UOp:
        """Elementwise MIN."""
        return self.alu(Ops.MIN, other)

    def where(self, if_true: UOp | Scalar, if_false: UOp | Scalar) -> UOp:
        """Select by this bool node; at least one branch is a node."""
        like = if_true if isinstance(if_true, UOp) else if_false
        if not isinstance(like, UOp):
            raise TypeError("where needs a node in one of its branches, to know the type")
        return UOp.make(Ops.WHERE, self, like._other(if_true), like._other(if_false))

    def cast(self, dtype: DType) -> UOp:
        """Convert to *dtype* (lanes are kept)."""
        if dtype is self.dtype:
            return self
        dtype = dtype.vec(self.dtype.lanes)
        return self if dtype is self.dtype else UOp(Ops.CAST, dtype, (self,))

    def bitcast(self, dtype: DType) -> UOp:
        """Keep the bits, change the type (lanes are kept)."""
        dtype = dtype.vec(self.dtype.lanes)
        return self if dtype is self.dtype else UOp(Ops.BITCAST, dtype, (self,))

    def reshape(self, shape: Shape) -> UOp:
        """RESHAPE, or the node itself when nothing changes."""
        return self if shape == self.shape else UOp.make(Ops.RESHAPE, self, arg=tuple(shape))

    def permute(self, order: tuple[int, ...]) -> UOp:
        """PERMUTE, or the node itself when nothing changes."""
        same = order == tuple(range(len(order)))
        return self if same else UOp.make(Ops.PERMUTE, self, arg=tuple(order))

    def expand(self, shape: Shape) -> UOp:
        """EXPAND, or the node itself when nothing changes."""
        return self if shape == self.shape else UOp.make(Ops.EXPAND, self, arg=tuple(shape))

    def pad(self, amounts: tuple[tuple[int, int], ...], fill: UOp | Scalar = 0) -> UOp:
        """PAD with *fill*, or the node itself when nothing changes."""
        if not any(low or high for low, high in amounts):
            return self
        scalar = fill if isinstance(fill, UOp) else UOp.const(self.dtype, fill)
        return UOp.make(Ops.PAD, self, scalar, arg=tuple(amounts))

    def shrink(self, box: tuple[tuple[int, int], ...]) -> UOp:
        """SHRINK, or the node itself when nothing changes."""
        same = self.shape == tuple(end for _, end in box) and not any(start for start, _ in box)
        return self if same else UOp.make(Ops.SHRINK, self, arg=tuple(box))

    def flip(self, axes: tuple[int, ...]) -> UOp:
        """FLIP, or the node itself when nothing changes."""
        return UOp.make(Ops.FLIP, self, arg=tuple(sorted(axes))) if axes else self

    @staticmethod
    def range(size: int | UOp, id: int, kind: AxisKind = AxisKind.LOOP) -> UOp:
        """A RANGE over 0 <= i < size."""
        end = size if isinstance(size, UOp) else UOp.const(dtypes.index, size)
        return UOp.make(Ops.RANGE, end, arg=RangeArg(id, kind))

    @staticmethod
    def sink(*effects: UOp, arg: Any = None) -> UOp:
        """A SINK over *effects*."""
        return UOp(Ops.SINK, dtypes.void, effects, arg)

    def index(self, index: UOp, valid: UOp | None = None) -> UOp:
        """The element of this storage at *index* (a vector index gives a vector)."""
        dtype = self.dtype.scalar.vec(index.dtype.lanes)
        return UOp(Ops.INDEX, dtype, (self, index) if valid is None else (self, index, valid))

    def load(self, fallback: UOp | None = None, gate: UOp | None = None) -> UOp:
        """Read this INDEX."""
        gated = () if fallback is None or gate is None else (fallback, gate)
        return UOp(Ops.LOAD, self.dtype, (self, *gated))

    def store(self, value: UOp, gate: UOp | None = None) -> UOp:
        """Write *value* to this INDEX."""
        return UOp.make(Ops.STORE, self, value, *(() if gate is None else (gate,)))

    def after(self, *deps: UOp) -> UOp:
        """This node, once *deps* have happened."""
        return UOp.make(Ops.AFTER, self, *deps) if deps else self

    def end(self, *ranges: UOp) -> UOp:
        """This effect, over all values of *ranges*."""
        return UOp.make(Ops.END, self, *ranges) if ranges else self

    def splat(self, lanes: int) -> UOp:
        """All lanes equal to this scalar; a literal stays a literal."""
        if lanes == 1:
            return self
        if self.op is Ops.CONST:
            return UOp(Ops.CONST, self.dtype.vec(lanes), (), self.arg)
        return UOp(Ops.SPLAT, self.dtype.vec(lanes), (self,))

    def lane(self, which: int | tuple[int, ...]) -> UOp:
        """One lane as a scalar (int), or several as a vector (tuple)."""
        count = 1 if isinstance(which, int) else len(which)
        return UOp(Ops.LANE, self.dtype.scalar.vec(count), (self,), which)

    # ---- questions

    @property
    def is_const(self) -> bool:
        """True for a literal with one value for all lanes."""
        return self.op is _CONST and type(self.arg) is not tuple

    @fact
    def shape(self) -> Shape | None:
        """Shape of a whole-tensor node; None for what has none (memory and control)."""
        rule = self.op.shape
        if rule is None:
            return None
        shapes = [s._shape for s in self.src]
        if None in shapes:
            return None if self.op.group is not _ELEMENTWISE else ()
        return rule(shapes, self.arg)  # type: ignore[arg-type]

    @property
    def known_shape(self) -> Shape:
        """The shape, where the caller knows that there is one."""
        shape: Shape | None = getattr(self, "_shape", None)
        if shape is None:
            shape = self.shape
        if shape is None:
            raise TypeError(f"{self!r} has no shape")
        return shape

    @property
    def num_elems(self) -> int:
        """Number of elements of a whole-tensor node."""
        count = 1
        for size in self.known_shape:
            count *= size
        return count

    @fact
    def ranges(self) -> tuple[UOp, ...]:
        """RANGEs that this node depends on and that no END or REDUCE below it has closed, by id."""
        op, src = self.op, self.src
        if op is _RANGE:
            return (self,)
        if not src:
            return ()
        found = src[0]._ranges
        if op is _END or op is _REDUCE:
            closed = src[1:]
            return tuple([r for r in found if r not in closed])
        for source in src[1:]:
            others = source._ranges
            if others and others is not found and others != found:
                found = _merged(found, others) if found else others
        return found

    @fact
    def content(self) -> bytes:
        """Content key: 16 bytes that follow from structure alone, equal in every process."""
        own = f"{self.op.name} {self.dtype} {'None' if self.arg is None else arg_text(self.arg)}"
        parts = [own.encode(), *[s._content for s in self.src]]
        return hashlib.blake2b(b"".join(parts), digest_size=16).digest()

    @property
    def key(self) -> str:
        """The content key as text."""
        return self.content.hex()

    def toposort(
        self, enter: Callable[[UOp], bool] | None = None, seen: set[UOp] | None = None
    ) -> list[UOp]:
        """All nodes below and this one, sources first, each once.

        *enter* may stop the walk: where it is false, the node is listed and its sources are not
        visited. What is in *seen* is left out, with all that is below; what is listed is added. The
        order below a SINK or LINEAR is kept, as every pass over it asks for it.
        """
        is_kept = enter is None and seen is None and (self.op is Ops.SINK or self.op is Ops.LINEAR)
        if is_kept and hasattr(self, "_order"):
            return [*self._order, self]
        if seen is None:
            seen = {self}
        elif self in seen:
            return []
        note, done = seen.add, []
        note(self)
        opened: list[tuple[UOp, Iterator[UOp]]] = []
        node, sources = self, iter(self.src if enter is None or enter(self) else ())
        while True:
            for source in sources:
                if source not in seen:
                    note(source)
                    if source.src and (enter is None or enter(source)):
                        opened.append((node, sources))
                        node, sources = source, iter(source.src)
                        break
                    done.append(source)
            else:
                done.append(node)
                if not opened:
                    break
                node, sources = opened.pop()
        if is_kept:
            _keep_order(self, tuple(done[:-1]))  # without itself: no cycle
        return done

    def substitute(self, mapping: dict[UOp, UOp]) -> UOp:
        """The graph with each key of *mapping* exchanged for its value, in one step."""
        if not mapping:
            return self
        done: dict[UOp, UOp] = dict(mapping)
        is_whole = self.op is Ops.SINK  # whose order is kept
        for node in self.toposort(None if is_whole else lambda n: n not in mapping):
            if node not in done:
                done[node] = node.over(done)
        return done[self]


def keeper(slot: str) -> Callable[[UOp, Any], None]:
    """What sets a slot of nodes, which refuse ordinary assignments."""
    setter: Callable[[UOp, Any], None] = _Parts.__dict__[slot].__set__
    return setter


def _merged(some: tuple[UOp, ...], others: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """RANGEs of both, by id; one of them where it has all."""
    both = {*some, *others}
    if len(both) == len(some):
        return some
    if len(both) == len(others):
        return others
    return tuple(sorted(both, key=_number_of))


_number_of = operator.attrgetter("arg.id", "arg.kind._value_")
_set_shape, _keep_kept, _keep_order = map(keeper, ("_shape", "_kept", "_order"))
_ELEMENTWISE = Ops.ADD.group
ConstArg = Scalar | tuple[Scalar, ...]


def _const_key(arg: ConstArg) -> Any:
    """Tell apart what Python's == does not: 0.0 and -0.0, 0 and False; a NaN equals itself."""
    if type(arg) is float:
        return struct.pack("<d", arg) if arg == arg else "nan"
    if type(arg) is bool:
        return "true" if arg else "false"
    if type(arg) is tuple and not {float, bool}.isdisjoint(map(type, arg)):
        return tuple(map(_const_key, arg))
    return arg


def arg_text(arg: Any) -> str:
    """Text of an arg that is equal exactly when the args mean the same, in every process."""
    kind = type(arg)
    if kind is float:
        return "nan" if arg != arg else arg.hex()
    if kind is tuple:
        return f"({','.join(map(arg_text, arg))})"
    if kind is bytes:
        return hashlib.blake2b(arg, digest_size=16).hexdigest()
    key_text = getattr(arg, "key_text", None)
    return key_text if isinstance(key_text, str) else repr(arg)


def kept(function: Callable[[UOp], T]) -> Callable[[UOp], T]:
    """A function of one node that is asked again and again: its result is kept on the node.

    Results hold no node that is not below the node itself, or nothing would ever die.
    """

    @functools.wraps(function)
    def find(node: UOp) -> T:
        try:
            known = node._kept
        except AttributeError:
            known = {}
            _keep_kept(node, known)
        if function not in known:
            known[function] = function(node)
        return known[function]  # type: ignore[no-any-return]

    return find


def all_nodes(roots: Iterable[UOp]) -> list[UOp]:
    """Toposort below several roots, each node once."""
    return UOp.sink(*roots).toposort()[:-1]


def new_buffer(size: int, dtype: DType, device: str) -> UOp:
    """A BUFFER that no other node names: storage for *size* elements on *device*."""
    node = UOp(Ops.BUFFER, dtype, (), BufferArg(next(_buffer_ids), size, device))
    _set_shape(node, (size,))
    return node


def num_live_nodes() -> int:
    """How many nodes exist now: for tests that nothing leaks."""
    clear_dead()
    return len(_nodes)
