"""From a graph of whole tensors to an ordered list of kernels (architecture.md, section 3)."""

from pellucid.schedule.api import Scheduled, schedule, schedule_cache

__all__ = ["Scheduled", "schedule", "schedule_cache"]
