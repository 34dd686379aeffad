"""Reverse-mode differentiation of TENSOR graphs: one rule an op.

    y = sum_i x_i * w_i        gradient(y, seed, [w])  ->  [EXPAND(seed) * x]

Given dL/dy for a node y, the rule of its op gives dL/dx for each source x; a node that is used
several times adds up what comes from its users. Sources first is the order of the graph, so users
first is the order of the walk: each node is visited once (Griewank and Walther, "Evaluating
Derivatives", 2008, section 3.2). The result is more graph: it can be differentiated again, fused
and looked at.

Choices: ties in a maximum share equally; comparisons, integers, rounding and bits give no gradient;
DETACH ends the walk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pellucid.core.dtype import dtypes
from pellucid.core.errors import GradientError
from pellucid.ir.arg import ReduceArg
from pellucid.ir.op import Op, Ops, Shape
from pellucid.ir.uop import UOp

Gradients = tuple[UOp | None, ...]
Rule = Callable[[UOp, UOp], Gradients]

GRADIENTS: Final[dict[Op, Rule]] = {}
WholeRule = Callable[[UOp, UOp], "dict[UOp, UOp] | None"]
WHOLE: Final[dict[Op, list[WholeRule]]] = {}
"""Rules for several nodes at once: the gradients by nodes further below; None where none fits."""
NO_GRADIENT: Final = (
    *(Ops.FLOOR, Ops.CEIL, Ops.TRUNC, Ops.ROUND, Ops.DETACH, Ops.BITCAST, Ops.THREEFRY, Ops.PAIR),
    *(Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE, Ops.FLOORDIV, Ops.FLOORMOD),
    *(Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR),
)
"""Ops whose results do not change, or jump, when a float source changes a little."""


def gradient(root: UOp, seed: UOp, targets: Sequence[UOp]) -> list[UOp | None]:
    """The gradients of sum(root * seed) with respect to *targets*; None where none flows.

    Errors: GradientError for an op that has no rule.

    >>> x = UOp.const(dtypes.float32, 3.0)
    >>> gradient(x * x, UOp.const(dtypes.float32, 1.0), [x])[0].op
    Ops.ADD
    """
    order = root.toposort(lambda n: n.op is not Ops.DETACH)
    wanted = _above(order, targets)
    grads: dict[UOp, UOp] = {root: seed}
    for node in reversed(order):
        grad = grads.get(node)
        if grad is None or not any(s in wanted for s in node.src) or node.op in NO_GRADIENT:
            continue
        whole = _as_a_whole(node, grad)
        parts = zip(node.src, _rule(node)(node, grad), strict=True) if whole is None else whole
        for source, part in parts:
            if part is not None and source in wanted:
                known = grads.get(source)
                grads[source] = part if known is None else known + part
    return [grads.get(target) if target in wanted else None for target in targets]


def _above(order: Sequence[UOp], targets: Sequence[UOp]) -> set[UOp]:
    """The float nodes that depend on a target through nodes that carry a gradient."""
    wanted = set(targets)
    for node in order:
        if node.op in NO_GRADIENT or not node.dtype.is_float:
            continue
        if any(s in wanted for s in node.src):
            wanted.add(node)
    return wanted & set(order)


def _rule(node: UOp) -> Rule:
    try:
        return GRADIENTS[node.op]
    except KeyError:
        raise GradientError(
            f"{node.op.name} has no gradient", help="detach() the value first, if that is meant"
        ) from None


def _as_a_whole(node: UOp, grad: UOp) -> Iterable[tuple[UOp, UOp]] | None:
    for rule in WHOLE.get(node.op, ()):
        found = rule(node, grad)
        if found is not None:
            return found.items()
    return None


def differentiates_whole(op: Op) -> Callable[[WholeRule], WholeRule]:
    """Enter a rule for what ends in an *op* and is made of several."""

    def enter(rule: WholeRule) -> WholeRule:
        WHOLE.setdefault(op, []).append(rule)
        return rule

    return enter


def differentiates(*ops: Op) -> Callable[[Rule], Rule]:
    """Enter a rule into the table."""

    def enter(rule: Rule) -> Rule:
        GRADIENTS.update(dict.fromkeys(ops, rule))
        return rule

    return enter


# ---- arithmetic ---------------------------------------------------------------------------------


@differentiates(Ops.ADD)
def add(node: UOp, grad: UOp) -> Gradients:
    """d(a + b) = da + db."""
    return grad, grad


@differentiates(Ops.MUL)
def multiply(node: UOp, grad: UOp) -> Gradients:
    """d(a b) = b da + a db."""
    left, right = node.src
    return grad * right, grad * left


@differentiates(Ops.FDIV)
def divide(node: UOp, grad: UOp) -> Gradients:
    """d(a / b) = da / b - (a / b) / b db."""
    divisor = node.src[1]
    return grad / divisor, -(grad * (node / divisor))


@differentiates(Ops.MAX, Ops.MIN)
def larger(node: UOp, grad: UOp) -> Gradients:
    """d max(a, b) = da where a wins, db where b wins, half of each where they are equal."""
    zero = grad.const_like(0)
    left, right = node.src
    tie = left.eq(right)

    def share(mine: UOp) -> UOp:
        wins = mine.eq(node) | mine.ne(mine)
        return tie.where(grad * 0.5, wins.where(grad, zero))

    return share(left), share(right)


@differentiates(Ops.SQRT)
def square_root(node: UOp, grad: UOp) -> Gradients:
    """d sqrt(x) = dx / (2 sqrt(x))."""
    return (grad / (node * 2.0),)


# ---- functions ----------------------------------------------------------------------------------


@differentiates(Ops.EXP)
def exponential(node: UOp, grad: UOp) -> Gradients:
    """d e^x = e^x dx."""
    return (grad * node,)


@differentiates(Ops.EXP2)
def exponential_2(node: UOp, grad: UOp) -> Gradients:
    """d 2^x = ln(2) 2^x dx."""
    return (grad * node * math.log(2.0),)


@differentiates(Ops.LOG)
def logarithm(node: UOp, grad: UOp) -> Gradients:
    """d ln(x) = dx / x."""
    return (grad / node.src[0],)


@differentiates(Ops.LOG2)
def logarithm_2(node: UOp, grad: UOp) -> Gradients:
    """d log2(x) = dx / (x ln 2)."""
    return (grad / (node.src[0] * math.log(2.0)),)


@differentiates(Ops.SIN)
def sine(node: UOp, grad: UOp) -> Gradients:
    """d sin(x) = cos(x) dx."""
    return (grad * node.src[0].alu(Ops.COS),)


@differentiates(Ops.COS)
def cosine(node: UOp, grad: UOp) -> Gradients:
    """d cos(x) = -sin(x) dx."""
    return (-(grad * node.src[0].alu(Ops.SIN)),)


@differentiates(Ops.TANH)
def hyperbolic_tangent(node: UOp, grad: UOp) -> Gradients:
    """d tanh(x) = (1 - tanh(x)^2) dx."""
    return (grad * (1.0 - node * node),)


@differentiates(Ops.ERF)
def error_function(node: UOp, grad: UOp) -> Gradients:
    """d erf(x) = 2 / sqrt(pi) e^(-x^2) dx."""
    x = node.src[0]
    return (grad * ((-(x * x)).alu(Ops.EXP) * (2.0 / math.sqrt(math.pi))),)


@differentiates(Ops.POW)
def power(node: UOp, grad: UOp) -> Gradients:
    """d a^b = b a^(b-1) da + a^b ln(a) db; no da where b = 0, no db where a = 0 <= b."""
    base, exponent = node.src
    zero = grad.const_like(0)
    by_base = exponent.eq(0.0).where(zero, grad * exponent * base.alu(Ops.POW, exponent - 1.0))
    is_flat = base.eq(0.0) & (exponent >= 0.0)
    by_exponent = is_flat.where(zero, grad * node * base.alu(Ops.LOG))
    return by_base, by_exponent


# ---- selection and types ------------------------------------------------------------------------


@differentiates(Ops.WHERE)
def select(node: UOp, grad: UOp) -> Gradients:
    """The chosen branch gets the gradient, the other one zero."""
    condition = node.src[0]
    return None, condition.where(grad, 0.0), condition.where(grad.const_like(0), grad)


@differentiates(Ops.CAST)
def cast(node: UOp, grad: UOp) -> Gradients:
    """The gradient, in the type of the source."""
    return (grad.cast(node.src[0].dtype),)


@differentiates(Ops.CONTIGUOUS, Ops.LEAF, Ops.STAGE)
def identity(node: UOp, grad: UOp) -> Gradients:
    """The gradient itself."""
    return (grad, *(None for _ in node.src[1:]))


@differentiates(Ops.CHECK)
def check(node: UOp, grad: UOp) -> Gradients:
    """The gradient itself; a flag has none."""
    return grad, None


@differentiates(Ops.COPY)
def copy(node: UOp, grad: UOp) -> Gradients:
    """The gradient, copied back."""
    device = _device_of(node.src[0])
    return (grad if device is None else UOp(Ops.COPY, grad.dtype, (grad,), device),)


def _device_of(node: UOp) -> str | None:
    for below in node.toposort():
        if below.op is Ops.BUFFER:
            return str(below.arg.device)
    return None


# ---- movement -----------------------------------------------------------------------------------


@differentiates(Ops.RESHAPE)
def reshape(node: UOp, grad: UOp) -> Gradients:
    """The same elements in the old shape."""
    return (grad.reshape(node.src[0].known_shape),)


@differentiates(Ops.PERMUTE)
def permute(node: UOp, grad: UOp) -> Gradients:
    """The axes in the old order."""
    return (grad.permute(tuple(sorted(range(len(node.arg)), key=node.arg.__getitem__))),)


@differentiates(Ops.EXPAND)
def expand(node: UOp, grad: UOp) -> Gradients:
    """The sum over all copies of an element."""
    shape = node.src[0].known_shape
    added = len(node.arg) - len(shape)
    repeated = [added + i for i, n in enumerate(shape) if n != node.arg[added + i]]
    return (_factored_sum(grad, (*range(added), *repeated)).reshape(shape),)


@differentiates(Ops.PAD)
def pad(node: UOp, grad: UOp) -> Gradients:
    """The inner part for x; the sum of the rest for the fill."""
    x, fill = node.src
    box = tuple((low, low + n) for (low, _), n in zip(node.arg, x.known_shape, strict=True))
    inside = UOp.const(dtypes.bool, True).expand(x.known_shape).pad(node.arg, False)
    by_fill = None
    if fill.op is not Ops.CONST:
        by_fill = _sum(inside.where(grad.const_like(0), grad), tuple(range(len(box))))
    return grad.shrink(box), by_fill


@differentiates(Ops.SHRINK)
def shrink(node: UOp, grad: UOp) -> Gradients:
    """Zero for what was cut off."""
    sizes = node.src[0].known_shape
    around = tuple((start, n - end) for (start, end), n in zip(node.arg, sizes, strict=True))
    return (grad.pad(around, 0),)


@differentiates(Ops.FLIP)
def flip(node: UOp, grad: UOp) -> Gradients:
    """The same axes reversed again."""
    return (grad.flip(node.arg),)


# ---- whole tensors ------------------------------------------------------------------------------


@differentiates(Ops.REDUCE)
def reduce(node: UOp, grad: UOp) -> Gradients:
    """A sum gives its gradient to all; a maximum to the winners; a product what the others make."""
    spread = spread_back(grad, node)
    if node.arg.op is Ops.ADD:
        mine = spread
    elif node.arg.op is Ops.MUL:
        mine = _of_product(node, spread)
    else:
        mine = _of_extremum(node, spread)
    return mine, *(None for _ in node.src[1:])


def _of_extremum(node: UOp, spread: UOp) -> UOp:
    """d max(x)_i = 1 / (number of maxima) where x_i is one; NaNs are maxima if there are any."""
    x = node.src[0]
    wins = x.eq(spread_back(node, node)) | x.ne(x)
    one = UOp.const(dtypes.float32 if x.dtype.bits < 32 else x.dtype, 1.0).expand(x.known_shape)
    count = UOp.make(Ops.REDUCE, wins.where(one, 0.0), arg=ReduceArg(Ops.ADD, node.arg.axes))
    share = spread / spread_back(count, node).cast(spread.dtype)
    return wins.where(share, 0.0)


def _of_product(node: UOp, spread: UOp) -> UOp:
    """d prod(x) / dx_i is the product of the others: prod / x_i, or by counting zeros."""
    x, arg = node.src[0], node.arg
    is_zero = x.eq(0.0)
    others = UOp.make(Ops.REDUCE, is_zero.where(x.const_like(1.0), x), arg=arg)
    ones = is_zero.where(x.const_like(1.0), 0.0)
    zeros = UOp.make(Ops.REDUCE, ones, arg=ReduceArg(Ops.ADD, arg.axes))
    product, num_zeros = spread_back(others, node), spread_back(zeros, node)
    with_one = (num_zeros.eq(1.0) & is_zero).where(product, 0.0)
    safe = is_zero.where(x.const_like(1.0), x)
    return spread * num_zeros.eq(0.0).where(product / safe, with_one)


@differentiates(Ops.GATHER)
def gather(node: UOp, grad: UOp) -> Gradients:
    """Each row gets the sum of what came from the places it went to."""
    x, *indices = node.src
    zeros = x.const_like(0)
    return (UOp.make(Ops.SCATTER, zeros, grad, *indices, arg=Ops.ADD), *(None for _ in indices))


@differentiates(Ops.SCATTER)
def scatter(node: UOp, grad: UOp) -> Gradients:
    """The base keeps the gradient where it shows; a value gets that of the row it went to."""
    base, value, *indices = node.src
    nothing = tuple(None for _ in indices)
    back = UOp.make(Ops.GATHER, grad, *indices)
    if node.arg is Ops.ADD:
        return grad, back, *nothing
    if node.arg is None:
        zeros = value.const_like(0)
        kept = UOp.make(Ops.SCATTER, grad, zeros, *indices)
        return kept, _of_last(value, indices, base.known_shape).where(back, 0.0), *nothing
    if node.arg in (Ops.MAX, Ops.MIN):
        return *_of_combined_extremum(node, grad, back), *nothing
    factor = UOp.make(Ops.GATHER, node, *indices) / value
    return grad * (node / base), back * factor, *nothing


def _of_last(value: UOp, indices: Sequence[UOp], base_shape: Shape) -> UOp:
    """True for the elements of *value* that were written last to their row."""
    shape = indices[0].known_shape
    count = math.prod(shape)
    order = UOp(Ops.IOTA, dtypes.int64, (), count).reshape(shape)
    rows = base_shape[: len(indices)]
    nobody = UOp.const(dtypes.int64, -1).expand(rows)
    last = UOp.make(Ops.SCATTER, nobody, order, *indices)
    is_last = UOp.make(Ops.GATHER, last, *indices).eq(order)
    padded = shape + (1,) * (len(value.known_shape) - len(shape))
    return is_last.reshape(padded).expand(value.known_shape)


def _of_combined_extremum(node: UOp, grad: UOp, back: UOp) -> tuple[UOp, UOp]:
    """The winners of each row share its gradient equally."""
    base, value, *indices = node.src
    base_wins = base.eq(node).where(base.const_like(1.0), 0.0)
    value_wins = value.eq(UOp.make(Ops.GATHER, node, *indices)).where(value.const_like(1.0), 0.0)
    count = UOp.make(Ops.SCATTER, base_wins, value_wins, *indices, arg=Ops.ADD)
    shares = UOp.make(Ops.GATHER, count, *indices)
    return base_wins * (grad / count), value_wins * (back / shares)


@differentiates(Ops.WRITE)
def write(node: UOp, grad: UOp) -> Gradients:
    """The base keeps the gradient outside of the window; the value gets the part inside."""
    base, window, value = node.src
    inside = window.substitute({base: grad}) if window is not base else grad
    zeros = value.const_like(0)
    kept = UOp(Ops.WRITE, grad.dtype, (grad, inside, zeros))
    return kept, None, inside


def _sum(x: UOp, axes: tuple[int, ...]) -> UOp:
    """Add up over *axes*, narrow floats in float32 and rounded once."""
    if not axes:
        return x
    wide = x.cast(dtypes.float32) if x.dtype.bits < 32 else x
    return UOp.make(Ops.REDUCE, wide, arg=ReduceArg(Ops.ADD, axes)).cast(x.dtype)


def _factored_sum(x: UOp, axes: tuple[int, ...]) -> UOp:
    """Add up over *axes*; what is the same for all that is added up is multiplied afterwards.

        sum over i of g[i, j] * w[j] * a[i, j]  ->  w[j] * (sum over i of g[i, j] * a[i, j])

    So the gradients by the scales, shifts and statistics of a normalisation are made of two sums.
    """
    factors: list[UOp] = []
    rest = _without_same(x, axes, factors) if axes and x.dtype.bits >= 32 else x
    if rest is None:
        return _sum(x, axes)
    total = _sum(rest, axes)
    for factor in factors:
        total = total * factor
    return total


def _without_same(x: UOp, axes: tuple[int, ...], factors: list[UOp]) -> UOp | None:
    """A product without the factors that are the same along *axes*; None where all of them are."""
    if x.op is Ops.MUL:
        left, right = (_without_same(side, axes, factors) for side in x.src)
        if left is None or right is None:
            return right if left is None else left
        return left * right
    if x.op is not Ops.EXPAND:
        return x
    shape = x.known_shape
    inner = (1,) * (len(shape) - len(x.src[0].known_shape)) + x.src[0].known_shape
    if any(inner[axis] != 1 for axis in axes):
        return x
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    one = x.src[0].reshape(tuple(inner[axis] for axis in kept))
    factors.append(one.expand(tuple(shape[axis] for axis in kept)))
    return None


def spread_back(reduced: UOp, node: UOp) -> UOp:
    """A value of the shape of a REDUCE, for each element that was reduced."""
    shape = node.src[0].known_shape
    kept = tuple(1 if axis in node.arg.axes else n for axis, n in enumerate(shape))
    return reduced.reshape(kept).expand(shape)
