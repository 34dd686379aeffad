"""Give the ranges that were chosen as indices of the launch to the launch.

VECTOR form -> VECTOR form without THREAD, GLOBAL and LOCAL ranges.

    before    END(STORE(y[i], …), i THREAD over 10)                        2 threads
    after     END(STORE(y[t * 5 + j], …), j over 5)                        t = SPECIAL("thread")

    before    … over 10                                                    4 threads
    after     END(STORE(y[t * 3 + j], …), j over MIN(3, 10 + t * -3))

    before    END(STORE(y[i * 4 + j], …), i GLOBAL over 8, j LOCAL over 4)
    after     STORE(y[SPECIAL("group0") * 4 + SPECIAL("local0")], …)

Each thread gets one block of the range; the last blocks may be shorter, or empty. An effect that
has no THREAD range, beside one that has, belongs to thread 0: it stands in a loop that runs once
there and never elsewhere. STOREs side by side stay together in it, as one may overwrite what
another one reads; and what is read of memory that they write is read inside of that loop, too.

Each turn of a GLOBAL range is a work-group, each turn of a LOCAL one an item of it: as many
dimensions as the nest with most of them has, each as large as its largest range. Where a nest has
less, it is done by the first groups and items alone, by the same kind of loop.
"""

from __future__ import annotations

from dataclasses import field

from pellucid.core.dtype import dtypes
from pellucid.core.records import dataclass
from pellucid.core.target import Target
from pellucid.ir.arg import AxisKind, RangeArg, SpecialArg
from pellucid.ir.bounds import bounds
from pellucid.ir.op import Ops
from pellucid.ir.transform import next_range_id
from pellucid.ir.uop import UOp


def assign_grid(sink: UOp, target: Target) -> UOp:
    """Replace THREAD ranges by blocks, GLOBAL and LOCAL ones by indices that the launch gives."""
    ranges = [n for n in sink.toposort() if n.op is Ops.RANGE]
    threads = [r for r in ranges if r.arg.kind is AxisKind.THREAD]
    if threads:
        count = max(_threads_for(axis, target.cores) for axis in threads)
        launch = _Launch(count, next_range_id(sink))
        sink = sink.with_sources(tuple(launch.share(effect) for effect in sink.src))
    if any(r.arg.kind in _NAMES for r in ranges):
        grid = _Grid(next_range_id(sink))
        for effect in sink.src:
            grid.measure(effect)
        sink = sink.with_sources(tuple(grid.place(effect) for effect in sink.src))
    return sink


def _threads_for(axis: UOp, cores: int) -> int:
    size = bounds(axis).max + 1
    block = -(-size // max(1, cores))
    return -(-size // block)


@dataclass
class _Launch:
    """The launch of a kernel: how many threads, and the next free number of a RANGE."""

    count: int
    number: int

    @property
    def thread(self) -> UOp:
        size = UOp.const(dtypes.index, self.count)
        return UOp.make(Ops.SPECIAL, size, arg=SpecialArg("thread"))

    def fresh(self, size: UOp) -> UOp:
        """A new loop."""
        self.number += 1
        return UOp.range(size, self.number - 1)

    def share(self, effect: UOp) -> UOp:
        """*effect*, as one thread does it."""
        if _has_loops(effect):
            return UOp.make(Ops.GROUP, *(self.share(part) for part in _parts(effect)))
        ranges = effect.src[1:] if effect.op is Ops.END else ()
        axis = next((r for r in ranges if r.arg.kind is AxisKind.THREAD), None)
        if axis is not None:
            return self._share_axis(effect, axis)
        if self.count == 1:
            return effect
        once = self.fresh((self.thread < 1).where(UOp.const(dtypes.index, 1), 0))
        return _inside(effect.src[0] if ranges else effect, once).end(once, *ranges)

    def _share_axis(self, end: UOp, axis: UOp) -> UOp:
        size = bounds(axis).max + 1
        block = -(-size // self.count)
        start = self.thread * block if self.count > 1 else axis.const_like(0)
        if block * self.count == size and axis.src[0].is_const:
            if block == 1:
                others = tuple(r for r in end.src[1:] if r is not axis)
                return end.src[0].substitute({axis: self.thread}).end(*others)
            part, place = self._part(axis, axis.const_like(block), start)
        else:
            part, place = self._part(axis, (axis.src[0] - start).minimum(block), start)
            if (self.count - 1) * block > size - 1 or not axis.src[0].is_const:
                # a thread without a block must not compute addresses outside of the storage
                place = place.minimum(axis.src[0] - 1)
        ranges = tuple(part if r is axis else r for r in end.src[1:])
        # of one turn at most, the loop is in no address: what it reads must stay inside of it
        body = end.src[0].substitute({axis: place})
        return (_inside(body, part) if block == 1 else body).end(*ranges)

    def _part(self, axis: UOp, size: UOp, start: UOp) -> tuple[UOp, UOp]:
        part = self.fresh(size)
        part = part.replace(arg=RangeArg(part.arg.id, AxisKind.LOOP))
        return part, start + part


def _has_loops(effect: UOp) -> bool:
    """True for a GROUP of loops, which are placed one by one."""
    return effect.op is Ops.GROUP and any(p.op in (Ops.END, Ops.GROUP) for p in effect.src)


def _parts(group: UOp) -> list[UOp]:
    """The loops of a GROUP, and all of its STOREs as one."""
    loops = [part for part in group.src if part.op in (Ops.END, Ops.GROUP)]
    stores = [part for part in group.src if part not in loops]
    together = UOp.make(Ops.GROUP, *stores) if len(stores) > 1 else None
    return [*loops, *([together] if together is not None else stores)]


def _inside(body: UOp, loop: UOp) -> UOp:
    """*body*, which reads inside of *loop* what it also writes."""
    written: set[UOp] = set()
    read: set[UOp] = set()
    for node in body.toposort():
        is_store = node.op is Ops.STORE
        written |= {s.src[0] for s in node.src[:1] if is_store}
        read |= {s.src[0] for s in node.src[1 if is_store else 0 :] if s.op is Ops.INDEX}
    both = {p: p.after(loop) for p in written & read if p.op is Ops.PARAM}
    return body.substitute(both) if both else body


_NAMES = {AxisKind.GLOBAL: "group", AxisKind.LOCAL: "local"}


@dataclass
class _Grid:
    """A launch as a grid: the size of each dimension, and the next free number of a RANGE."""

    number: int
    sizes: dict[str, int] = field(default_factory=dict)

    def measure(self, effect: UOp) -> None:
        """Make the grid large enough for *effect*."""
        for part in effect.src if effect.op is Ops.GROUP else ():
            self.measure(part)
        for name, axis in _named(effect).items():
            size = bounds(axis).max + 1
            self.sizes[name] = max(size, self.sizes.get(name, 1))

    def place(self, effect: UOp) -> UOp:
        """*effect*, as one item of one group does it."""
        if _has_loops(effect):
            return UOp.make(Ops.GROUP, *(self.place(part) for part in _parts(effect)))
        named = _named(effect)
        places: dict[UOp, UOp] = {}
        guard: UOp | None = None
        for name, count in sorted(self.sizes.items()):
            index = UOp.make(Ops.SPECIAL, UOp.const(dtypes.index, count), arg=SpecialArg(name))
            axis = named.get(name)
            size = index.const_like(1) if axis is None else axis.src[0]
            is_whole = size.is_const and size.arg == count
            if axis is not None:
                # an item outside must not compute addresses outside of the storage
                places[axis] = index if is_whole else index.minimum(size - 1)
            if not is_whole:
                guard = index < size if guard is None else guard & (index < size)
        kept = [r for r in effect.src[1:] if r not in places] if effect.op is Ops.END else []
        if guard is not None:
            kept.insert(0, self._once(guard))
        body = effect.src[0] if effect.op is Ops.END else effect
        body = body.substitute(places)
        return (body if guard is None else _inside(body, kept[0])).end(*kept)

    def _once(self, guard: UOp) -> UOp:
        """A loop that runs once where *guard* holds, and never elsewhere."""
        self.number += 1
        return UOp.range(guard.where(UOp.const(dtypes.index, 1), 0), self.number - 1)


def _named(effect: UOp) -> dict[str, UOp]:
    """The ranges of an effect that the launch gives, by the names of their indices."""
    found: dict[str, UOp] = {}
    for kind, word in _NAMES.items():
        ranges = effect.src[1:] if effect.op is Ops.END else ()
        axes = [r for r in ranges if r.arg.kind is kind]
        found |= {f"{word}{place}": axis for place, axis in enumerate(axes)}
    return found
