"""Plan memory: intermediates whose lifetimes do not overlap use the same storage.

Form before: calls on numbered storages. After: the same calls, on fewer storages.

    call 0 writes 1;  call 1 reads 1, writes 2;  call 2 reads 2, writes 3
        ->  3 may live where 1 was: after call 1 nobody reads it

An intermediate lives from its first to its last call. In order of calls each takes the smallest
free storage of its dtype and device that is large enough; else the largest free one grows; else
there is a new one (best fit, as in Pisarchyk and Lee, "Efficient memory management for deep neural
net inference", 2020, there in another order). Given buffers, outputs and flags are left alone.
"""

from __future__ import annotations

from dataclasses import replace

from pellucid.schedule.kernels import Call, Cut, Storage


def plan_memory(cut: Cut, kept: set[int]) -> Cut:
    """Let storages that are never alive at once become one; those in *kept* stay as they are."""
    first, last = _lifetimes(cut, kept)
    bins: list[Storage] = []
    bin_of: dict[int, int] = {}
    free: dict[tuple[object, ...], list[int]] = {}
    for position, call in enumerate(cut.calls):
        for number in dict.fromkeys(call.storages):
            if first.get(number) == position:
                bin_of[number] = _take(bins, free, cut.storages[number])
        for number in dict.fromkeys(call.storages):
            if last.get(number) == position:
                free.setdefault(_kind(cut.storages[number]), []).append(bin_of[number])
    return _with_bins(cut, bins, bin_of)


def _lifetimes(cut: Cut, kept: set[int]) -> tuple[dict[int, int], dict[int, int]]:
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, call in enumerate(cut.calls):
        for number in call.storages:
            if number not in kept and cut.storages[number].slot is None:
                first.setdefault(number, position)
                last[number] = position
    return first, last


def _kind(storage: Storage) -> tuple[object, ...]:
    return (storage.dtype, storage.device)


def _take(bins: list[Storage], free: dict[tuple[object, ...], list[int]], need: Storage) -> int:
    found = free.get(_kind(need), [])
    if not found:
        bins.append(need)
        return len(bins) - 1
    enough = [b for b in found if bins[b].size >= need.size]
    best = (
        min(enough, key=lambda b: bins[b].size)
        if enough
        else max(found, key=lambda b: bins[b].size)
    )
    found.remove(best)
    bins[best] = replace(bins[best], size=max(bins[best].size, need.size))
    return best


def _with_bins(cut: Cut, bins: list[Storage], bin_of: dict[int, int]) -> Cut:
    """Renumber: storages that stay keep their order, bins follow."""
    stay = [n for n in range(len(cut.storages)) if n not in bin_of]
    number = {old: new for new, old in enumerate(stay)}
    number.update({old: len(stay) + b for old, b in bin_of.items()})
    calls = [Call(c.callee, tuple(number[s] for s in c.storages), c.info) for c in cut.calls]
    place = {version: number[s] for version, s in cut.place.items()}
    return Cut(calls, [cut.storages[s] for s in stay] + bins, place)
