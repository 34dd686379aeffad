"""The whole way from a TENSOR graph to a LINEAR of CALLs, behind a cache.

Form before: TENSOR. After: SCHEDULE.

    normalise       storage becomes parameters; what says nothing about values is dropped
    assign_ranges   consumers first: who computes what at which indices; what is stored, and why
    place_inside    scores of attentions are made by each kernel that uses them
    keep_rows       what a kernel needs of one row only is made there, in local memory
    order_drafts    what must run before what; which writes are in place
    share_kernels   kernels over the same ranges with something in common become one
    cut_kernels     one SINK for each, numbered by structure
    plan_memory     intermediates share storage by lifetime

A schedule is found again by the content of its normalised graph, so a second step of a training
loop costs a normalisation and a look-up. Storage for intermediates and outputs is new each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from pellucid.core import observe
from pellucid.core.dtype import dtypes
from pellucid.core.options import Options, current_options
from pellucid.core.records import dataclass
from pellucid.core.target import Target, host_target
from pellucid.ir import origin
from pellucid.ir.arg import AddrSpace, CheckArg, StageArg
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp, new_buffer
from pellucid.schedule.cache import Template, schedule_cache
from pellucid.schedule.draft import Plan, base_of
from pellucid.schedule.facts import Facts
from pellucid.schedule.inside import place_inside
from pellucid.schedule.keep_rows import keep_rows
from pellucid.schedule.kernels import Cut, Storage, cut_kernels
from pellucid.schedule.memory import plan_memory
from pellucid.schedule.normalise import Normal, hand_lines_on, normalise
from pellucid.schedule.order import hazards, order_drafts
from pellucid.schedule.ranges import assign_ranges
from pellucid.schedule.scores import SCORES, find_scores
from pellucid.schedule.share import share_kernels
from pellucid.schedule.show import as_linear, insert_stages
from pellucid.schedule.views import forget_expressions


@dataclass(frozen=True)
class Scheduled:
    """A schedule.

    linear: the CALLs in order.
    stored: for each output a RESHAPE of the BUFFER that holds its value once *linear* has run. A
        WRITE that was done in place has the BUFFER of its base: from then on that BUFFER means the
        new version. A given BUFFER that no output names keeps its value.
    checks: flags to look at afterwards; -1 means all is well.
    """

    linear: UOp
    stored: dict[UOp, UOp]
    checks: tuple[tuple[UOp, CheckArg], ...]


def schedule(
    outputs: Sequence[UOp],
    *,
    pending: frozenset[UOp] = frozenset(),
    options: Options | None = None,
) -> Scheduled:
    """Cut the graph below *outputs* into kernels, and put them in order.

    *pending* are BUFFERs of which somebody outside of *outputs* still needs the present value: a
    WRITE on one of them goes to new storage.

    Errors: DeviceError where values of several devices meet without a copy.

    >>> x = new_buffer(12, dtypes.float32, "CPU")
    >>> done = schedule([x.reshape((4, 3)) + 1.0])
    >>> [call.arg.reason for call in done.linear.src]
    ['output asked for']
    """
    options = options if options is not None else current_options()
    normal = normalise(outputs)
    devices = tuple(buffer.arg.device for buffer in normal.buffers)
    slots = normal.slots(pending)
    target = host_target()
    machine = (target.cores, target.l2_bytes)
    key = (normal.sink.content, devices, slots, options.device, machine)
    told = origin.recording or bool(observe.watching and observe.observers())
    template = None if told else schedule_cache.get(key)
    if template is None:
        template = make_template(normal.sink, devices, slots, options.device, target, outputs)
        if not told:
            schedule_cache.put(key, template)
    return fill_template(template, normal, outputs)


def make_template(
    sink: UOp,
    devices: Sequence[str],
    pending: frozenset[int],
    default_device: str,
    target: Target,
    outputs: Sequence[UOp] = (),
) -> Template:
    """Schedule a normalised graph, that of *outputs*; report each stage to observers."""
    report = _Report(UOp.sink(*outputs))
    report.stage("normalise", lambda: sink)
    try:
        plan, sink = find_plan(sink, devices, target)
        report.stage("assign_ranges", lambda: insert_stages(sink, plan))
        stored = [base_of(output) for output in sink.src]
        flags = [base_of(node.src[1]) for node in plan.order if node.op is Ops.CHECK]
        kept = {*stored, *flags}
        keep_rows(plan, kept)
        order = order_drafts(plan, pending, kept)
        units = share_kernels(plan, order)
        cut = cut_kernels(plan, order, units, kept, default_device)
        for version in dict.fromkeys((*stored, *flags)):
            if version not in cut.place:  # without elements, so that nothing computes it
                device = plan.facts.device[version] or default_device
                cut.storages.append(Storage(version.dtype, 0, device))
                cut.place[version] = len(cut.storages) - 1
        report.stage("cut_kernels", lambda: as_linear(cut))
        cut = plan_memory(cut, {cut.place[version] for version in kept})
        report.stage("plan_memory", lambda: as_linear(cut))
        report.calls(cut)
        return Template(
            tuple(cut.calls),
            tuple(cut.storages),
            tuple(cut.place[version] for version in stored),
            tuple(cut.place[version] for version in flags),
        )
    finally:
        forget_expressions()


class _Report:
    """Tells observers, if there are any, what each stage has made of the graph."""

    def __init__(self, graph: UOp) -> None:
        self.graph = graph
        self.started = time.perf_counter()

    def stage(self, name: str, made: Callable[[], UOp]) -> None:
        """Stage *name* has just ended."""
        if not observe.watching:
            return
        seconds = time.perf_counter() - self.started
        after = made()
        observe.stage(name, self.graph, after, seconds)
        self.graph, self.started = after, time.perf_counter()

    def calls(self, cut: Cut) -> None:
        """All boundaries of kernels, as decisions."""
        if observe.watching:
            for call in cut.calls:
                observe.decision("kernel", call.callee, call.info.reason)


def find_plan(sink: UOp, devices: Sequence[str], target: Target) -> tuple[Plan, UOp]:
    """Assign ranges; again, where a write would read what it overwrites, with its value stored.

    And again where scores of an attention cannot be made by all that use them.
    """
    with_scores = True
    while True:
        order = sink.toposort()
        asked = {base_of(n.src[1]): "flag of a check" for n in order if n.op is Ops.CHECK}
        asked |= {base_of(output): "output asked for" for output in sink.src}
        facts = Facts(order, devices, target)
        found = find_scores(sink, facts, set(asked)) if with_scores else {}
        plan = assign_ranges(sink, facts, order, {**found, **asked})
        with_scores = place_inside(plan, [n for n in found if found[n] is SCORES])
        if not with_scores:
            continue
        dangerous = hazards(plan)
        if not dangerous:
            return plan, sink
        sink = stage_values(sink, dangerous)


def stage_values(sink: UOp, writes: set[UOp]) -> UOp:
    """Put a STAGE on what *writes* take from elsewhere."""
    why = StageArg(AddrSpace.GLOBAL, "a write overwrites what its value reads")

    def staged(node: UOp) -> UOp:
        done = node.op is Ops.STAGE or node.op is Ops.CONST
        return node if done else UOp(Ops.STAGE, node.dtype, (node,), why)

    exchange: dict[UOp, UOp] = {}
    for node in sink.toposort():
        fresh = node.with_sources(tuple(exchange[s] for s in node.src))
        if node in writes and node.op is Ops.WRITE and fresh.src[2].op is not Ops.SCATTER:
            fresh = fresh.with_sources((*fresh.src[:2], staged(fresh.src[2])))
        elif node.op is Ops.SCATTER and (node in writes or _is_value_of(node, writes)):
            fresh = fresh.with_sources((fresh.src[0], *map(staged, fresh.src[1:])))
        exchange[node] = fresh
        hand_lines_on(node, fresh)
    return exchange[sink]


def _is_value_of(scatter: UOp, writes: set[UOp]) -> bool:
    return any(write.op is Ops.WRITE and write.src[2] is scatter for write in writes)


def fill_template(template: Template, normal: Normal, outputs: Sequence[UOp]) -> Scheduled:
    """Give a template its storage: the given buffers, and new ones."""
    buffers = [
        normal.buffers[storage.slot]
        if storage.slot is not None
        else new_buffer(storage.size, storage.dtype, storage.device)
        for storage in template.storages
    ]
    calls = tuple(
        UOp(Ops.CALL, dtypes.void, (c.callee, *(buffers[n] for n in c.storages)), c.info)
        for c in template.calls
    )
    stored: Mapping[UOp, UOp] = {
        output: buffers[number].reshape(output.known_shape)
        for output, number in zip(outputs, template.outputs, strict=True)
    }
    checks = zip((buffers[n] for n in template.checks), normal.checks, strict=True)
    return Scheduled(UOp(Ops.LINEAR, dtypes.void, calls), dict(stored), tuple(checks))
