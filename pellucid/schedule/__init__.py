"""From a graph of whole tensors to an ordered list of kernels (architecture.md, section 3)."""

from pellucid.schedule.api import Scheduled, schedule
from pellucid.schedule.cache import schedule_cache

__all__ = ["Scheduled", "schedule", "schedule_cache"]
