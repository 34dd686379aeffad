"""Drivers: how the rules of a set are led over a graph.

    rewrite           sources first, each node until no rule applies, results too
    rewrite_once      sources first, one rule per node at most, results are not looked at again
    rewrite_top_down  a node before its sources

All three are loops, not recursion, and remember what they have done: a graph of n nodes costs O(n)
steps, however deep it is and however much is shared.

    x * 1 + 0   --rewrite-->   x

A set whose rules undo each other is found out: a node whose rewriting needs its own result, or far
more rewrites than nodes, raise RewriteLoopError naming the laws.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from pellucid.core.errors import RewriteLoopError
from pellucid.ir import origin
from pellucid.ir.law import RuleSet, Statistics, last_fired
from pellucid.ir.uop import UOp, keeper

FREE_REWRITES = 2000
REWRITES_PER_NODE = 100
_keep_normal: Callable[[UOp, int], None] = keeper("_normal")
_SOURCES, _RESULT = object(), object()


def rewrite(root: UOp, rules: RuleSet, ctx: Any = None) -> UOp:
    """Apply *rules* below *root*, sources first, until none applies anywhere.

    >>> from pellucid.ir.simplify import simplify
    >>> i = UOp.range(4, 0)
    >>> simplify(i * 1 + 0) is i
    True
    """
    return _Fixpoint(root, rules, ctx).run()


class _Fixpoint:
    """One run: `done` maps nodes to their results, `next_step` to what they became first."""

    def __init__(self, root: UOp, rules: RuleSet, ctx: Any) -> None:
        self.root, self.rules, self.ctx = root, rules, ctx
        self.done: dict[UOp, UOp] = {}
        self.next_step: dict[UOp, UOp] = {}
        self.laws: list[str] = []
        self.limit = FREE_REWRITES

    def run(self) -> UOp:
        """The result for the root.

        On the stack, a node is to be visited; _SOURCES and _RESULT say that the sources, or the
        result, of the node that was opened last are done.
        """
        done, next_step = self.done, self.next_step
        matchers, ctx, bit = self.rules.matchers, self.ctx, self.rules.bit
        made = tried = 0
        stack: list[UOp | object] = [self.root]
        opened: list[UOp] = []
        while stack:
            node: Any = stack.pop()
            if node is _RESULT:
                node = opened.pop()
                done[node] = done[next_step[node]]
                continue
            if node is _SOURCES:
                node = opened.pop()
            elif node in done:
                continue
            elif node._normal & bit:
                done[node] = node
                continue
            elif node in next_step:  # it is being rewritten, so it waits for itself
                raise self._loop()
            elif node.src:
                opened.append(node)
                stack.append(_SOURCES)
                stack += node.src[::-1]
                continue
            new = node.over(done)
            if new is not node:
                made += 1
                if origin.recording:
                    origin.inherit(node, new)
                if new in done:
                    done[node] = done[new]
                    continue
                if new in next_step:
                    raise self._loop()
                if new._normal & bit:
                    done[node] = done[new] = new
                    continue
            tried += 1
            try:
                matcher = matchers[new.op]
            except KeyError:
                matcher = self.rules.matcher(new.op)
            result = None if matcher is None else matcher(new, ctx)
            if result is None:
                done[node] = done[new] = new
                if bit:
                    _keep_normal(new, new._normal | bit)
                continue
            self._log_rewrite()
            if origin.recording:
                origin.inherit(new, result)
            if result in done:
                done[node] = done[new] = done[result]
                continue
            if result in next_step or result is node:
                raise self._loop()
            for before in {node, new}:
                next_step[before] = result
                opened.append(before)
                stack.append(_RESULT)
            stack.append(result)
        Statistics.tried += tried
        Statistics.made += made
        return done[self.root]

    def _log_rewrite(self) -> None:
        """Write down which law has fired; raise when far too many have."""
        if last_fired.rule is not None:
            self.laws.append(last_fired.rule.name)
        if len(self.laws) > self.limit:
            self.limit = FREE_REWRITES + REWRITES_PER_NODE * len(self.root.toposort())
            if len(self.laws) > self.limit:
                raise self._loop()

    def _loop(self) -> RewriteLoopError:
        """The error, naming the laws of the shortest period at the end of the log."""
        return RewriteLoopError(_period(self.laws), rule_set=self.rules.name)


def _period(laws: list[str]) -> list[str]:
    tail = laws[-200:]
    for length in range(1, len(tail) // 2 + 1):
        if tail[-length:] == tail[-2 * length : -length]:
            return tail[-length:]
    return [name for name, _ in Counter(tail).most_common(8)] if len(tail) > 8 else tail


def rewrite_once(root: UOp, rules: RuleSet, ctx: Any = None) -> UOp:
    """Apply *rules* below *root*, sources first, at most one per node; results stay as they are."""
    done: dict[UOp, UOp] = {}
    order = root.toposort()
    for node in order:
        new = node.over(done)
        matcher = rules.matcher(new.op)
        result = None if matcher is None else matcher(new, ctx)
        done[node] = new if result is None else result
        if origin.recording:
            origin.inherit(node, new)
            origin.inherit(node, done[node])
    Statistics.tried += len(order)
    return done[root]


def rewrite_top_down(root: UOp, rules: RuleSet, ctx: Any = None) -> UOp:
    """Apply *rules* to each node before its sources, until none applies to it; then go below."""
    first: dict[UOp, UOp] = {}
    done: dict[UOp, UOp] = {}
    stack = [root]
    fired: list[str] = []
    limit = FREE_REWRITES
    while stack:
        node = stack.pop()
        if node in done:
            continue
        if node not in first:
            new = node
            while (result := rules.match(new, ctx)) is not None:
                if origin.recording:
                    origin.inherit(new, result)
                new = result
                fired.append(last_fired.rule.name if last_fired.rule is not None else "?")
                if len(fired) > limit:
                    limit = FREE_REWRITES + REWRITES_PER_NODE * len(root.toposort())
                    if len(fired) > limit:
                        raise RewriteLoopError(_period(fired), rule_set=rules.name)
            first[node] = new
        new = first[node]
        waiting = [s for s in new.src if s not in done]
        if waiting:
            if any(s in first for s in waiting):  # open, so it waits for itself
                raise RewriteLoopError(_period(fired), rule_set=rules.name)
            stack.append(node)
            stack.extend(reversed(waiting))
            continue
        made = new.over(done)
        if origin.recording:
            origin.inherit(node, made)
        done[node] = made
    return done[root]
