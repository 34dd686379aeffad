"""Find the scores of attentions: products larger than what they are made of, that no kernel stores.

Form before: TENSOR, of all outputs. After: the same, and a reason for each node that gets a draft
of its own: a value of scores, or a statistic of their rows.

    s = q @ k^T                  (b, h, i, j)  from (b, h, i, d) and (b, h, j, d): scores
    m = max of s over j          (b, h, i)     a statistic
    e = exp(s - m)               (b, h, i, j)  scores
    l = sum of e over j          (b, h, i)     a statistic
    (e / l) @ v                  (b, h, i, d)  uses scores; so do the gradients of q, k and v

Nothing here looks for an attention: scores are a product of matrices with more elements than either
matrix, and what is computed from it element by element; there must be a statistic of their rows or
columns, and all else that uses them must be products again. Where that holds, every kernel that
uses scores makes the ones that it needs anew, a row or a column at a time (inside.py), as products
of few terms cost less than a store and a load. Statistics are few, so they are stored. Queries that
are scaled first are scaled where a kernel copies them, if nothing else needs them scaled.

Sources: M. Rabe, C. Staats, "Self-attention does not need O(n^2) memory", 2021; T. Dao et al.,
"FlashAttention: fast and memory-efficient exact attention with IO-awareness", 2022, section 3.1
(statistics of rows are kept, scores are computed again for the gradient).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.ir.walk import users as users_of
from pellucid.ir.weighing import VIEWS, places_of
from pellucid.schedule.draft import base_of
from pellucid.schedule.facts import Facts, reduced_elems

MAX_TERMS = 256
"""A product of more terms is dearer than a store and a load of its sum."""

LEAST_ROW = 16
"""Shorter rows are no work for tiles."""

SCORES = "scores that each kernel makes for itself"
STATISTIC = "a statistic of rows of scores"
OF_ROWS = "a sum that whole rows of scores need"


def find_scores(sink: UOp, facts: Facts, kept: set[UOp]) -> dict[UOp, str]:
    """The nodes that are scores or statistics of them, with the reason for their draft.

    Writes down in *facts* which scaled factors of scores need no draft.
    """
    order = sink.toposort()
    if not any(_is_product_of_scores(node, facts) for node in order):
        return {}
    families = _Families(order, facts, kept, users_of(sink))
    found = families.asked()
    facts.scaled_factors = frozenset(families.scaled_factors(found))
    return found


def _is_product_of_scores(node: UOp, facts: Facts) -> bool:
    """True for a sum of few products with more elements than either of the matrices."""
    if node.op is not Ops.REDUCE or node.arg.op is not Ops.ADD or not node.dtype.is_float:
        return False
    source = _below_casts(node.src[0])
    if source.op is not Ops.MUL or not facts.rows[node].contracts:
        return False
    shape = node.known_shape
    if len(shape) < 2 or min(shape[-2:]) < LEAST_ROW or reduced_elems(node) > MAX_TERMS:
        return False
    return all(facts.distinct(side) <= node.num_elems for side in source.src)


def _below_casts(node: UOp) -> UOp:
    while node.op is Ops.CAST:
        node = node.src[0]
    return node


def _spread_sum(node: UOp) -> UOp | None:
    """The reduction that is spread out over rows or columns, element by element in between."""
    value = node
    while value.op in (Ops.EXPAND, Ops.RESHAPE, Ops.CAST) or _is_scaled(value):
        value = value.src[0]
    return value if value.op is Ops.REDUCE and value.num_elems < node.num_elems else None


def _is_scaled(node: UOp) -> bool:
    """True for a value times a literal."""
    return node.op is Ops.MUL and _below_views(node.src[1]).op is Ops.CONST


def _below_views(node: UOp) -> UOp:
    while node.op in (Ops.EXPAND, Ops.RESHAPE):
        node = node.src[0]
    return node


class _Families:
    """Scores that are computed from each other, and what uses them."""

    def __init__(
        self, order: Sequence[UOp], facts: Facts, kept: set[UOp], users: dict[UOp, list[UOp]]
    ) -> None:
        self.facts, self.kept, self.users = facts, kept, users
        self.family: dict[UOp, UOp] = {}  # scores -> a node that stands for all of the family
        for node in order:
            if _is_product_of_scores(node, facts):
                self.family[node] = node
            elif node.op.is_elementwise or self._is_same(node):
                self._join(node)

    def _is_same(self, node: UOp) -> bool:
        """True for RESHAPEs of scores that end in the shape of the scores."""
        base = base_of(node)
        return base is not node and base in self.family and base.known_shape == node.known_shape

    def _join(self, node: UOp) -> None:
        """A node is of the family of its sources, which thereby become one."""
        sources = [base_of(node)] if node.op is Ops.RESHAPE else node.src
        found = [self._head(source) for source in sources if source in self.family]
        if found:
            for other in found[1:]:
                self.family[other] = found[0]
            self.family[node] = found[0]

    def _head(self, node: UOp) -> UOp:
        while self.family[node] is not node:
            node = self.family[node]
        return node

    def asked(self) -> dict[UOp, str]:
        """What gets a draft, of the families of which nothing needs to be stored."""
        num_uses: Counter[UOp] = Counter()
        spoilt: set[UOp] = set()
        with_statistics: set[UOp] = set()
        with_products: set[UOp] = set()
        reasons: dict[UOp, str] = {}
        owner: dict[UOp, UOp] = {}
        for node in self.family:
            head, value = self._head(node), base_of(node)
            for user in self.users[node]:
                num_uses[value] += 1
                if user in self.family:
                    num_uses[value] -= user.op is Ops.RESHAPE
                elif self._is_statistic(user):
                    with_statistics.add(head)
                    reasons[user], owner[user] = STATISTIC, head
                elif self._is_used_by_products(user):
                    num_uses[value] += 2  # a product reads it as it lies in memory
                    with_products.add(head)
                elif not self._leads_to_same(user):
                    spoilt.add(head)
            if node in self.kept:
                spoilt.add(head)
            owner[value] = head
            for source in node.src:
                if source not in self.family and (few := _spread_sum(source)) is not None:
                    reasons[few], owner[few] = OF_ROWS, head
        reasons |= {node: SCORES for node, count in num_uses.items() if count > 1}
        good = (with_statistics & with_products) - spoilt
        return {node: reason for node, reason in reasons.items() if owner[node] in good}

    def scaled_factors(self, asked: Mapping[UOp, str]) -> Iterator[UOp]:
        """Factors times a literal that are the same all along a row, and that nothing else uses.

        Kernels copy such a factor for many rows at once (opt/actions/blocks.py), and scale it then.
        """
        for node in self.family:
            rows = self._axis_of_rows(self._head(node), asked)
            if rows is None or not _is_product_of_scores(node, self.facts):
                continue
            product = node.src[0]
            kept = [a for a in range(len(product.known_shape)) if a not in node.arg.axes]
            for side in _below_casts(product).src:
                is_same = not self.facts.varies_along(side, kept[rows])
                if is_same and (factor := self._only_scaled_below(side, node)) is not None:
                    yield factor

    def _axis_of_rows(self, head: UOp, asked: Mapping[UOp, str]) -> int | None:
        """The axis, counted from the end, that all who reduce scores of a family reduce."""
        found: set[int | None] = set()
        for node in self.family:
            last = len(node.known_shape)
            for user in self.users[node] if self._head(node) is head else ():
                if user in asked and asked[user] is STATISTIC:
                    found.add(user.arg.axes[0] - last)
                elif user not in self.family and user.op.is_movement:
                    found |= {axis and axis - last for axis in self._axes_of_products(user, node)}
        return found.pop() if len(found) == 1 else None

    def _axes_of_products(self, view: UOp, scores: UOp) -> set[int | None]:
        """The axes of scores along which products sum what a view shows; None: unknown."""
        found: set[int | None] = set()
        for user in self.users[view]:
            if user.op in VIEWS:
                found |= self._axes_of_products(user, scores)
                continue
            places = places_of(view, scores) or {}
            sums = (u for u in self.users[user] if u.op is Ops.REDUCE) if user.op is Ops.MUL else ()
            axes = [axis for u in sums for axis, place in places.items() if (place,) == u.arg.axes]
            found |= set(axes) or {None}
        return found

    def _only_scaled_below(self, side: UOp, product: UOp) -> UOp | None:
        """What a side of a product shows, if that is a scaled value that nothing else wants."""
        while side.op in VIEWS and len(self.users[side]) == 1:
            side = side.src[0]
        is_own = _is_scaled(side) and len(self.users[side]) == 1 and side not in self.kept
        return side if is_own and self.facts.cost[side].ops <= 1 else None

    def _leads_to_same(self, user: UOp) -> bool:
        """True for a RESHAPE of scores that only others in the shape of the scores use."""
        return user.op is Ops.RESHAPE and all(u in self.family for u in self.users[user])

    def _is_statistic(self, user: UOp) -> bool:
        """True for a reduction of rows or of columns of scores."""
        if user.op is not Ops.REDUCE or len(user.arg.axes) != 1 or user in self.kept:
            return False
        return int(user.arg.axes[0]) >= len(user.src[0].known_shape) - 2

    def _is_used_by_products(self, user: UOp) -> bool:
        """True where all that comes of moved scores is summed as part of products."""
        stack, is_moved = [user], False
        while stack:
            node = stack.pop()
            if node in self.kept:
                return False
            if node.op is Ops.MUL and is_moved:
                users = self.users[node]
                if not all(self._is_product(u) for u in users):
                    return False
            elif node.op in (Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.CAST):
                is_moved = is_moved or node.op is not Ops.CAST
                stack += self.users[node]
            else:
                return False
        return is_moved

    def _is_product(self, node: UOp) -> bool:
        while node.op is Ops.CAST and len(self.users[node]) == 1:
            (node,) = self.users[node]
        is_sum = node.op is Ops.REDUCE and node.arg.op is Ops.ADD
        return is_sum and self.facts.rows[node].contracts and len(node.arg.axes) == 1
