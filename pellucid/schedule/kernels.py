"""Cut units into kernels, each a SINK in LOOP form over its own PARAMs.

Form before: units of drafts (share.py) and their expressions over handles (values.py). After:
SCHEDULE form, as a list of `Call`s, each of a kernel on numbered storages.

    unit {relu at (i, j)}
        ->  SINK(END(STORE(INDEX(PARAM 0, i*3 + j), MAX(INDEX(PARAM 1, i*3 + j), 0)), i, j))

Parameters and ranges are numbered in order of appearance, outputs first, and nothing else names
them: two kernels that do the same are the same UOp, and compile once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field

from pellucid.core.dtype import DType, dtypes
from pellucid.core.records import dataclass
from pellucid.ir import origin
from pellucid.ir.arg import (
    AddrSpace,
    AxisKind,
    CallInfo,
    DefineArg,
    KernelInfo,
    ParamArg,
    RangeArg,
)
from pellucid.ir.op import Ops
from pellucid.ir.transform import substitute_free
from pellucid.ir.uop import UOp
from pellucid.schedule.draft import Draft, Inside, Plan, moved_to
from pellucid.schedule.order import Order
from pellucid.schedule.share import Unit
from pellucid.schedule.values import Values

_FIRST_INNER_ID = 1 << 20


@dataclass(frozen=True)
class Storage:
    """Memory of a schedule: that of a given buffer (slot), or new memory."""

    dtype: DType
    size: int
    device: str
    slot: int | None = None


@dataclass(frozen=True)
class Call:
    """One step: what runs, on which storages (their numbers), and why."""

    callee: UOp
    storages: tuple[int, ...]
    info: CallInfo


@dataclass
class Cut:
    """Kernels in order, the storages they work on, and where each stored version is."""

    calls: list[Call] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    place: dict[UOp, int] = field(default_factory=dict)  # version (PARAM or stored node) -> storage


def cut_kernels(
    plan: Plan,
    order: Order,
    units: list[Unit],
    kept: set[UOp],
    default_device: str,
) -> Cut:
    """Make one call, or a copy and a call, of each unit."""
    return _Cutter(plan, order, kept, default_device).run(units)


class _Cutter:
    def __init__(
        self,
        plan: Plan,
        order: Order,
        kept: set[UOp],
        default_device: str,
    ) -> None:
        self.plan, self.order, self.kept = plan, order, kept
        self.next_range = _FIRST_INNER_ID
        self.default_device = default_device
        params = [n for n in plan.order if n.op is Ops.PARAM]
        self.num_slots = 1 + max((p.arg.slot for p in params), default=-1)
        self.values = Values(plan, self.num_slots)
        self.cut = Cut()
        self.unit_of: dict[Draft, Unit] = {}
        self.handles: dict[UOp, UOp] = {}  # handle -> version
        for param in sorted(params, key=lambda p: int(p.arg.slot)):
            device = plan.facts.device[param]
            self.new_storage(
                param, Storage(param.dtype, param.arg.size, str(device), param.arg.slot)
            )
            self.handles[param] = param

    def run(self, units: list[Unit]) -> Cut:
        for unit in units:
            self.unit_of.update(dict.fromkeys(unit.drafts, unit))
        outside = self.read_outside()
        for unit in units:
            for draft in unit.drafts:
                self.handles[self.values.handle(draft.root)] = draft.root
            if unit.drafts[0].is_copy:
                self.call_copy(unit.drafts[0])
            else:
                self.call_kernel(unit, outside)
        return self.cut

    def read_outside(self) -> set[UOp]:
        """Versions that another kernel than the one that makes them reads, or that are kept."""
        needed = set(self.kept)
        for draft, unit in self.unit_of.items():
            for version in (*draft.reads, draft.base):
                made_by = None if version is None else self.plan.stored.get(version)
                if (
                    version is not None
                    and made_by is not None
                    and self.unit_of[made_by] is not unit
                ):
                    needed.add(version)
        return needed

    # ---- storage ---------------------------------------------------------------------------------

    def new_storage(self, version: UOp, storage: Storage) -> int:
        self.cut.storages.append(storage)
        self.cut.place[version] = len(self.cut.storages) - 1
        return self.cut.place[version]

    def storage_for(self, draft: Draft) -> int:
        """The storage that *draft* writes: its base's, if in place."""
        root = draft.root
        if root in self.order.in_place and draft.base is not None:
            self.cut.place[root] = self.cut.place[draft.base]
            return self.cut.place[root]
        device = draft.device or self.default_device
        return self.new_storage(root, Storage(root.dtype, root.num_elems, device))

    # ---- calls -----------------------------------------------------------------------------------

    def call_copy(self, draft: Draft) -> None:
        target = self.storage_for(draft)
        (source,) = draft.reads
        marker = UOp(Ops.COPY, dtypes.void, (), draft.root.arg)
        self.add(marker, (target, self.cut.place[source]), draft.reason, [draft])

    def call_kernel(self, unit: Unit, outside: set[UOp]) -> None:
        registers: dict[UOp, UOp] = {}
        self.rows: dict[UOp, UOp] = {}  # what is made here -> local memory that holds a row
        self.memory: dict[Draft, UOp] = {}
        stores: list[tuple[Draft, UOp]] = []
        reasons: list[str] = []
        for draft in unit.drafts:
            for version, made in draft.inside.items():
                if version not in self.rows:
                    self.rows[version] = self.filled(made, draft, registers)
            known = {**registers, **self.rows_of_results(draft, unit, registers)}
            value = self.values.settle(self.values.stored_value(draft)).substitute(known)
            value = value.substitute(self.rows_read_by(draft, draft, {}))
            handle = self.values.handle(draft.root)
            registers[handle.index(draft.store_index)] = value
            if draft.root not in outside and draft.base is None:
                self.cut.place.pop(draft.root, None)
                continue
            self.storage_for(draft)
            if draft.root in self.order.copies_base:
                self.copy_base(draft)
            place = self.values.settle(draft.store_index)
            valid = None
            if draft.store_valid is not None:
                valid = self.values.settle(draft.store_valid)
            stores.append((draft, handle.index(place, valid).store(value)))
            reasons.append(draft.reason)
        if stores:
            self.add_kernel(unit, stores, reasons)

    def rows_of_results(
        self, draft: Draft, unit: Unit, registers: dict[UOp, UOp]
    ) -> dict[UOp, UOp]:
        """What each read of a row of what others of the unit make becomes: the value there."""
        found: dict[UOp, UOp] = {}
        for other in unit.drafts:
            value = registers.get(self.values.handle(other.root).index(other.store_index))
            for use in draft.reads.get(other.root, {}) if value is not None else ():
                read = self.values.read(other.root, use)
                if read not in registers:
                    assert value is not None, "a read is replaced by a value that is there"
                    places = moved_to(other, use[0])
                    moved = {own: at for own, at in places.items() if at is not own}
                    found[read] = substitute_free(value, moved, self.fresh)
        return found

    # ---- rows that are made inside of a kernel ---------------------------------------------------

    def rows_read_by(self, reader: Draft, home: Draft, moved: dict[UOp, UOp]) -> dict[UOp, UOp]:
        """What each read of what *home* makes becomes: a read of a row in local memory.

        *moved*: for RANGEs of the reader, those of its place in the home.
        """
        exchange: dict[UOp, UOp] = {}
        reads = {**reader.reads, **reader.row_reads}
        for version, made in home.inside.items():
            for use in reads.get(version, {}):
                read = self.values.read(version, use).substitute(moved)
                valid = read.src[2] if len(read.src) > 2 else None
                place = made.position(use[0]).substitute(moved)
                exchange[read] = self.rows[version].index(place, valid)
        return exchange

    def filled(self, made: Inside, home: Draft, registers: dict[UOp, UOp]) -> UOp:
        """Local memory, after a row of a value has been computed there."""
        draft = made.draft
        arg = DefineArg(AddrSpace.LOCAL, len(self.memory), made.size)
        new = UOp(Ops.DEFINE, draft.root.dtype, (), arg)
        row = self.memory.setdefault(made.memory or draft, new)
        along = {axis: self.fresh(axis) for axis in made.inner}
        moved = {**made.bound, **along}
        value = self.values.settle(self.values.stored_value(draft))
        value = value.substitute(moved).substitute(registers)
        value = value.substitute(self.rows_read_by(draft, home, moved))
        place = made.position(draft.value_use[0]).substitute(moved)
        loops = tuple(along.values()) or (self.fresh(UOp.range(1, 0)),)
        return row.after(row.index(place).store(value).end(*loops))

    def fresh(self, axis: UOp) -> UOp:
        """A RANGE as *axis*, for the loop along a row."""
        self.next_range += 1
        return axis.replace(arg=RangeArg(self.next_range, axis.arg.kind))

    def copy_base(self, draft: Draft) -> None:
        """Fill new storage with what the write does not replace."""
        base = draft.base
        assert base is not None, "only a write copies its base"
        where = UOp.range(base.num_elems, 0)
        value = self.values.handle(base).index(where)
        store = self.values.handle(draft.root).index(where).store(value)
        reason = f"the old value is still needed, so {draft.reason} goes to a copy"
        self.add_body(store.end(where), reason, [draft], ordered=False)

    def add_kernel(self, unit: Unit, stores: list[tuple[Draft, UOp]], reasons: list[str]) -> None:
        first = unit.drafts[0]
        reason = "; ".join(dict.fromkeys(reasons))
        body = nested(stores, 0)
        depth = max(len(draft.outer) for draft in unit.drafts)
        if depth:  # the loops that rows are filled in stand by themselves
            body = body.src[0].end(*body.src[1 + depth :]).end(*body.src[1 : 1 + depth])
        self.add_body(body, reason, unit.drafts, first.ordered)

    def add_body(self, body: UOp, reason: str, drafts: list[Draft], ordered: bool) -> None:
        sink, storages = renumber(body, self.storage_of_handle, ordered)
        self.add(sink, storages, reason, drafts)

    def storage_of_handle(self, handle: UOp) -> int:
        return self.cut.place[self.handles[handle]]

    def add(self, callee: UOp, storages: tuple[int, ...], reason: str, drafts: list[Draft]) -> None:
        lines = self.lines(drafts) if origin.recording else ()
        self.cut.calls.append(Call(callee, storages, CallInfo(reason, lines)))

    def lines(self, drafts: list[Draft]) -> tuple[str, ...]:
        """The user's lines that the values in these drafts came from."""
        found: dict[str, None] = {}
        for draft in drafts:
            found.update(dict.fromkeys(origin.of(draft.root)))
            stack, seen = [(draft.value, draft.value_use)], set()
            while stack:
                key = stack.pop()
                if key in seen or (key[0] in self.plan.stored and key[0] is not draft.value):
                    continue
                seen.add(key)
                found.update(dict.fromkeys(origin.of(key[0])))
                stack.extend(self.plan.steps.get(key, ()))
        return tuple(sorted(found, key=_place_of))


def nested(stores: Sequence[tuple[Draft, UOp]], depth: int) -> UOp:
    """All stores in their loops, of which *depth* are open; those over fewer ranges stand outside.

    m over (i), y over (i, j)  ->  END(GROUP(STORE m, END(STORE y, j)), i)
    """
    ranges = min((draft.ranges for draft, _ in stores), key=len)
    here = [store for draft, store in stores if len(draft.ranges) == len(ranges)]
    inside = [pair for pair in stores if len(pair[0].ranges) > len(ranges)]
    parts = [*here, nested(inside, len(ranges))] if inside else here
    body = parts[0] if len(parts) == 1 else UOp.make(Ops.GROUP, *parts)
    return body.end(*ranges[depth:])


def _place_of(line: str) -> tuple[str, int]:
    """File and number of a line such as `train.py:41  h = x @ w`, to put lines in order.

    >>> sorted(["b.py:10  y", "b.py:9  x"], key=_place_of)
    ['b.py:9  x', 'b.py:10  y']
    """
    file, _, number = line.partition("  ")[0].rpartition(":")
    return file, int(number) if number.isdecimal() else 0


def renumber(
    body: UOp, storage_of: Callable[[UOp], int], ordered: bool = False
) -> tuple[UOp, tuple[int, ...]]:
    """The kernel of *body*, with PARAMs and RANGEs numbered in order of appearance, outputs first.

    Also gives the storage of each PARAM.
    """
    order = body.toposort()
    handles = dict.fromkeys((*_written(body), *(n for n in order if n.op is Ops.PARAM)))
    slots: dict[int, int] = {}
    exchange: dict[UOp, UOp] = {}
    for handle in handles:
        slot = slots.setdefault(storage_of(handle), len(slots))
        exchange[handle] = handle.replace(arg=ParamArg(slot, handle.arg.size))
    ranges = dict.fromkeys((*_outer_ranges(body), *(n for n in order if n.op is Ops.RANGE)))
    for number, each in enumerate(ranges):
        exchange[each] = UOp.range(each.src[0], number, each.arg.kind)
    renamed = body.substitute(exchange)
    info = KernelInfo(name=kernel_name(ranges, ordered), ordered=ordered)
    return UOp.sink(renamed, arg=info), tuple(slots)


def _written(effect: UOp) -> Iterator[UOp]:
    if effect.op is Ops.STORE:
        yield effect.src[0].src[0]
    else:
        for part in effect.src if effect.op is Ops.GROUP else effect.src[:1]:
            yield from _written(part)


def _outer_ranges(body: UOp) -> tuple[UOp, ...]:
    return body.src[1:] if body.op is Ops.END else ()


def kernel_name(ranges: Iterable[UOp], ordered: bool = False) -> str:
    """A name that says what kind of kernel it is, and its sizes.

    >>> kernel_name([UOp.range(4, 0), UOp.range(3, 1, AxisKind.REDUCE)])
    'reduce_4_r3'
    """
    outer = [str(r.src[0].arg) for r in ranges if r.arg.kind is AxisKind.LOOP]
    inner = [f"r{r.src[0].arg}" for r in ranges if r.arg.kind is AxisKind.REDUCE]
    kind = "scatter" if ordered else "reduce" if inner else "map"
    return "_".join([kind, *(outer or ["1"]), *inner])
