"""placeholder"""

from __future__ import annotations

from dataclasses import dataclass

from pellucid.core.target import Target
from pellucid.ir.arg import Action
from pellucid.ir.uop import UOp


@dataclass
class Plan:
    sink: UOp
    actions: tuple[Action, ...] = ()


def choose(sink: UOp, target: Target) -> Plan:
    return Plan(sink)
