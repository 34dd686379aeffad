"""What observers are shown of a schedule: stages as graphs, boundaries as decisions."""

from __future__ import annotations

from pellucid.core.observe import Observer, observed_by
from pellucid.ir.form import SCHEDULE, TENSOR
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.ir.verify import verify
from pellucid.schedule import schedule, schedule_cache
from tests.schedule.graphs import reduce, spread, tensor


class Listener(Observer):
    def __init__(self) -> None:
        self.stages: list[tuple[str, UOp, UOp]] = []
        self.reasons: list[str] = []

    def on_stage(self, name: str, before: object, after: object, seconds: float) -> None:
        assert isinstance(before, UOp)
        assert isinstance(after, UOp)
        self.stages.append((name, before, after))

    def on_decision(self, kind: str, what: object, reason: str) -> None:
        assert kind == "kernel"
        self.reasons.append(reason)


def test_stages_and_reasons_are_reported() -> None:
    x = tensor((1 << 17,))
    output = x - spread(reduce(x, 0), (1 << 17,))
    listener = Listener()
    with observed_by(listener):
        schedule([output])
    names = [name for name, *_ in listener.stages]
    assert names == ["normalise", "assign_ranges", "cut_kernels", "plan_memory"]
    _, staged, cut, planned = (after for *_, after in listener.stages)
    reasons = [n.arg.reason for n in staged.toposort() if n.op is Ops.STAGE]
    assert reasons == listener.reasons
    assert reasons == ["too few rows to share out among the cores", "output asked for"]
    verify(staged, TENSOR)
    verify(cut, SCHEDULE)
    verify(planned, SCHEDULE)


def test_an_observer_hears_of_a_schedule_that_is_known() -> None:
    x = tensor((8,))
    schedule([x + 5.0])
    hits = schedule_cache.counts.hits
    listener = Listener()
    with observed_by(listener):
        schedule([x + 5.0])
    assert listener.reasons == ["output asked for"]
    assert schedule_cache.counts.hits == hits
