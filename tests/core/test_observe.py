"""Observers hear everything in their own thread, and nobody listening costs nothing."""

from __future__ import annotations

import threading

import pytest

from pellucid.core import observe


def report_everything() -> None:
    observe.stage("expand_vectors", "a", "b", 0.5)
    observe.rewrite("add_zero", "x + 0", "x")
    observe.decline("take_multiples_out", "divisor is zero", "x // 0")
    observe.decision("tile", "axis 1", "fits in the first-level cache")
    observe.compiled("sum_4", 0.25, 128, True)
    observe.progress("compile", 1, 2)


def test_recorder_hears_every_kind_of_event() -> None:
    with observe.record() as seen:
        report_everything()
    assert seen.stages == [("expand_vectors", "a", "b", 0.5)]
    assert seen.rewrites == [("add_zero", "x + 0", "x")]
    assert seen.declines == [("take_multiples_out", "divisor is zero", "x // 0")]
    assert seen.decisions == [("tile", "axis 1", "fits in the first-level cache")]
    assert seen.compiles == [("sum_4", 0.25, 128, True)]
    assert seen.progress == [("compile", 1, 2)]
    assert seen.decisions[0].kind == "tile"


def test_an_observer_may_override_only_what_it_wants_to_hear() -> None:
    heard: list[str] = []

    class Stages(observe.Observer):
        def on_stage(self, name: str, before: object, after: object, seconds: float) -> None:
            heard.append(name)

    with observe.observed_by(Stages()):
        report_everything()
    assert heard == ["expand_vectors"]


def test_watching_counts_observers_also_after_an_exception() -> None:
    assert observe.watching == 0

    def fail_while_observed() -> None:
        with observe.record():
            assert observe.watching == 1
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail_while_observed()
    assert observe.watching == 0
    assert observe.observers() == ()


def test_observers_nest_and_each_hears_everything() -> None:
    with observe.record() as outer:
        report_everything()
        with observe.record() as inner:
            report_everything()
    assert (len(outer.stages), len(inner.stages)) == (2, 1)


def test_another_thread_is_not_observed() -> None:
    with observe.record() as seen:
        thread = threading.Thread(target=report_everything)
        thread.start()
        thread.join()
    assert seen.stages == []


def test_nothing_happens_without_observers() -> None:
    report_everything()
    assert observe.observers() == ()
