"""Products of matrices, and what is built on them: matmul, einsum, linear, attention, losses,
normalisation.

    x @ w     (…, n, k) @ (…, k, m) -> (…, n, m)     multiply with an axis added, then sum over k

The graph has no matmul: it is a product and a sum, which the compiler sees as one loop nest.
Narrow floats are multiplied and added in float32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from pellucid.core.dtype import DType, dtypes, promote
from pellucid.core.errors import ArgumentError, ShapeError
from pellucid.frontend import arguments
from pellucid.frontend.arguments import DTypeLike, default_float
from pellucid.frontend.indexing import Indexing
from pellucid.frontend.reduce import accumulated_dtype
from pellucid.ir import weighing  # noqa: F401  its rules are those of an attention's gradient
from pellucid.ir.arg import ReduceArg
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp


class Linear(Indexing):
    """Methods of linear algebra and of neural networks."""

    __slots__ = ()

    # ---- products -------------------------------------------------------------------------------

    def matmul(self, other: Self, dtype: DTypeLike | None = None) -> Self:
        """The matrix product; vectors count as one row or one column, leading axes broadcast.

        >>> Tensor([[1, 2], [3, 4]]).matmul(Tensor([1, 1])).tolist()
        [3, 7]
        """
        right = self._lift(other, "matmul")
        if self.ndim == 0 or right.ndim == 0:
            raise ShapeError(
                "matmul needs at least one axis in each tensor",
                rows=[("left", self._shape), ("right", right._shape)],
                help="use * for numbers",
            )
        a = self.unsqueeze(0) if self.ndim == 1 else self
        b = right.unsqueeze(1) if right.ndim == 1 else right
        if a._shape[-1] != b._shape[-2]:
            raise ShapeError(
                "matmul joins the last axis of left with the second-to-last axis of right",
                rows=[("left", self._shape, a._shape[-1]), ("right", right._shape, b._shape[-2])],
                help="transpose left, or check which tensor is the weight",
            )
        product = a._product(b, dtype)
        if right.ndim == 1:
            product = product.squeeze(-1)
        return product.squeeze(-1 if right.ndim == 1 else -2) if self.ndim == 1 else product

    def _product(self, other: Self, dtype: DTypeLike | None) -> Self:
        result = promote(self._dtype, other._dtype, default_float=default_float())
        result = result if dtype is None else arguments.dtype(dtype, "matmul")
        wide = product_dtype(result)
        lead = arguments.broadcast(self._shape[:-2], other._shape[:-2], name="matmul")
        n, k, m = self._shape[-2], self._shape[-1], other._shape[-1]
        left = self.uop.cast(wide).reshape((*self._shape[:-1], 1, k))
        turned = other.mT.uop.cast(wide)
        right = turned.reshape((*other._shape[:-2], 1, m, k))
        shape = (*lead, n, m, k)
        both = left.expand(shape) * right.expand(shape)
        total = sum_along(both, len(shape) - 1)
        return self._value(total.cast(result))

    def __matmul__(self, other: Self) -> Self:
        return self.matmul(other)

    def __rmatmul__(self, other: Any) -> Self:
        return self._lift(other, "matmul").matmul(self)

    def dot(self, other: Self) -> Self:
        """The same as `matmul`."""
        return self.matmul(other)

    mm = bmm = mv = dot

    def outer(self, other: Self) -> Self:
        """All products of the elements of two vectors.

        >>> Tensor([1, 2]).outer(Tensor([3, 4])).tolist()
        [[3, 4], [6, 8]]
        """
        if self.ndim != 1 or other.ndim != 1:
            raise ShapeError(
                "outer takes two vectors", rows=[("left", self._shape), ("right", other._shape)]
            )
        return self.unsqueeze(1) * other.unsqueeze(0)

    def linear(self, weight: Self, bias: Self | None = None) -> Self:
        """self @ weight.T + bias, with a weight of shape (out, in), as
        `torch.nn.functional.linear`.

        >>> Tensor([1, 2]).linear(Tensor([[1, 1], [0, 3]])).tolist()
        [3, 6]
        """
        product = self.matmul(weight.T if weight.ndim == 2 else weight)
        return product if bias is None else product + bias

    @classmethod
    def einsum(cls, formula: str, *operands: Self) -> Self:
        """A sum of products, as Einstein wrote it: "ij,jk->ik".

        >>> Tensor.einsum("ij,j->i", Tensor([[1, 2], [3, 4]]), Tensor([1, 1])).tolist()
        [3, 7]
        """
        inputs, _, output = formula.replace(" ", "").partition("->")
        terms = inputs.split(",")
        if "." in formula or len(terms) != len(operands) or not operands:
            raise ShapeError(
                "einsum takes one term of letters for each tensor",
                rows=[("formula", formula), ("tensors", len(operands))],
            )
        if "->" not in formula:
            output = "".join(sorted(c for c in set(inputs) - {","} if inputs.count(c) == 1))
        result: Self = _einsum(terms, output, operands, formula)
        return result

    # ---- normalisation --------------------------------------------------------------------------

    def layernorm(self, axis: int | Sequence[int] = -1, eps: float = 1e-5) -> Self:
        """Mean 0 and variance 1 along *axis*: (x - mean) / sqrt(var + eps).

        >>> Tensor([[1.0, 3.0]]).layernorm(eps=0.0).tolist()
        [[-1.0, 1.0]]
        """
        chosen = arguments.axes(axis, self.ndim, "layernorm")
        x = self.cast(_wide_float(self._promoted_float()))
        away = x - x.mean(chosen, keepdim=True)
        scale = ((away * away).mean(chosen, keepdim=True) + eps).rsqrt()
        return (away * scale).cast(self._promoted_float())

    def layer_norm(
        self,
        normalized_shape: int | Sequence[int],
        weight: Self | None = None,
        bias: Self | None = None,
        eps: float = 1e-5,
    ) -> Self:
        """`layernorm` over the last axes, scaled and moved, as in `torch.nn.functional`."""
        shape = arguments.shape((normalized_shape,), "layer_norm")
        if self._shape[self.ndim - len(shape) :] != shape or not shape:
            raise ShapeError(
                "layer_norm works on the last axes", rows=[("tensor", self._shape), ("axes", shape)]
            )
        result = self.layernorm(tuple(range(-len(shape), 0)), eps)
        result = result if weight is None else result * weight
        return result if bias is None else result + bias

    def rms_norm(
        self, axis: int | Sequence[int] = -1, weight: Self | None = None, eps: float = 1e-6
    ) -> Self:
        """x / sqrt(mean(x^2) + eps).

        Source: Zhang and Sennrich, "Root mean square layer normalization", 2019, equation 4.

        >>> Tensor([[3.0, 3.0]]).rms_norm(eps=0.0).tolist()
        [[1.0, 1.0]]
        """
        chosen = arguments.axes(axis, self.ndim, "rms_norm")
        x = self.cast(_wide_float(self._promoted_float()))
        scale = ((x * x).mean(chosen, keepdim=True) + eps).rsqrt()
        result = (x * scale).cast(self._promoted_float())
        return result if weight is None else result * weight

    def batchnorm(
        self, weight: Self | None, bias: Self | None, mean: Self, invstd: Self, axis: int = 1
    ) -> Self:
        """(x - mean) * invstd * weight + bias, one number of each for every index of *axis*."""
        place = arguments.axis(axis, self.ndim, "batchnorm")
        shape = tuple(n if i == place else 1 for i, n in enumerate(self._shape))
        result = (self - mean.reshape(shape)) * invstd.reshape(shape)
        result = result if weight is None else result * weight.reshape(shape)
        return result if bias is None else result + bias.reshape(shape)

    def normalize(self, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Self:
        """Divided by the p-norm along an axis (at least *eps*).

        >>> [round(x, 3) for x in Tensor([[3.0, 4.0]]).normalize().reshape(-1).tolist()]
        [0.6, 0.8]
        """
        return self / self.norm(p, dim, keepdim=True).maximum(eps)

    # ---- attention ------------------------------------------------------------------------------

    def scaled_dot_product_attention(
        self,
        key: Self,
        value: Self,
        attn_mask: Self | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
    ) -> Self:
        """softmax(query key^T / sqrt(width) + mask) value, with self as the query.

        Source: Vaswani et al., "Attention is all you need", 2017, equation 1.

        >>> q, k, v = Tensor.zeros(1, 2), Tensor.ones(2, 2), Tensor([[1.0], [3.0]])
        >>> q.scaled_dot_product_attention(k, v).tolist()
        [[2.0]]
        """
        width = self._shape[-1]
        factor = 1 / math.sqrt(width) if scale is None else scale
        scores = (self * factor) @ key.mT
        if is_causal:
            if attn_mask is not None:
                raise ShapeError("attention takes attn_mask or is_causal, not both")
            attn_mask = self.ones(self._shape[-2], key._shape[-2], dtype=dtypes.bool).tril()
        if attn_mask is not None and attn_mask._dtype.is_bool:
            scores = scores.where(attn_mask, -math.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        weights = scores.softmax(-1)
        return (weights.dropout(dropout_p) if dropout_p else weights) @ value

    # ---- losses ---------------------------------------------------------------------------------

    def _combined(self, reduction: str, name: str) -> Self:
        if reduction not in ("mean", "sum", "none"):
            raise ArgumentError(
                f"{name} has no reduction {reduction!r}", expected="'mean', 'sum' or 'none'"
            )
        return self.mean() if reduction == "mean" else self.sum() if reduction == "sum" else self

    def mse_loss(self, target: Self, reduction: str = "mean") -> Self:
        """The squared distance to *target*.

        >>> Tensor([1.0, 2.0]).mse_loss(Tensor([1.0, 5.0])).item()
        4.5
        """
        return (self - target).square()._combined(reduction, "mse_loss")

    def l1_loss(self, target: Self, reduction: str = "mean") -> Self:
        """The distance to *target*.

        >>> Tensor([1.0, 2.0]).l1_loss(Tensor([1.0, 5.0])).item()
        1.5
        """
        return (self - target).abs()._combined(reduction, "l1_loss")

    def binary_cross_entropy(self, target: Self, reduction: str = "mean") -> Self:
        """-(t log p + (1 - t) log(1 - p)) for p = self; logarithms are no less than -100.

        >>> Tensor([0.0]).binary_cross_entropy(Tensor([1.0])).item()
        100.0
        """
        yes, no = self.log().maximum(-100), (1 - self).log().maximum(-100)
        return (-(target * yes + (1 - target) * no))._combined(reduction, "binary_cross_entropy")

    def binary_cross_entropy_with_logits(self, target: Self, reduction: str = "mean") -> Self:
        """`binary_cross_entropy` of sigmoid(self), without overflow."""
        loss = self.relu() - target * self + (-self.abs()).exp().log1p()
        return loss._combined(reduction, "binary_cross_entropy_with_logits")

    def nll_loss(
        self,
        target: Self,
        weight: Self | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> Self:
        """Minus the log probability of each target class; classes are axis 1 (0 of a vector).

        >>> round(Tensor([[0.5, 0.5]]).log().nll_loss(Tensor([1])).exp().item(), 3)
        2.0
        """
        place = 1 if self.ndim > 1 else 0
        expected = self._shape[:place] + self._shape[place + 1 :]
        if not target._dtype.is_int or target._shape != expected:
            raise ShapeError(
                "nll_loss takes one class index for each sample",
                rows=[("log probabilities", self._shape), ("target", target._shape, target._dtype)],
                expected=f"integers of shape {expected}",
            )
        counts = target.ne(ignore_index)
        safe = self._select(counts, target, 0)
        picked = -self._of_classes(place, safe)
        share = (
            counts.cast(self._dtype) if weight is None else self._select(counts, weight[safe], 0)
        )
        losses = self._select(counts, picked * share, 0)
        if reduction == "mean":
            return losses.sum() / share.sum()
        return losses._combined(reduction, "nll_loss")

    def cross_entropy(
        self,
        target: Self,
        weight: Self | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> Self:
        """`nll_loss` of log_softmax; targets are class indices, or probabilities of every class.

        >>> round(Tensor([[0.0, 0.0]]).cross_entropy(Tensor([1])).item(), 4)
        0.6931
        """
        place = 1 if self.ndim > 1 else 0
        logs = self.log_softmax(place)
        if target._dtype.is_float:
            if target._shape != self._shape:
                raise ShapeError(
                    "probabilities have the shape of the logits",
                    rows=[("logits", self._shape), ("target", target._shape)],
                )
            target = target * (1 - label_smoothing) + label_smoothing / self._shape[place]
            losses = -(logs * target).sum(place)
            samples = max(1, losses.numel())
            return (
                losses.sum() / samples
                if reduction == "mean"
                else losses._combined(reduction, "cross_entropy")
            )
        plain = logs.nll_loss(target, weight, ignore_index, reduction)
        if not label_smoothing:
            return plain
        counts = target.ne(ignore_index)
        even = self._select(counts, -logs.mean(place), 0)
        smooth = (
            even.sum() / counts.sum()
            if reduction == "mean"
            else even._combined(reduction, "cross_entropy")
        )
        return plain * (1 - label_smoothing) + smooth * label_smoothing

    def sparse_categorical_crossentropy(self, target: Self, ignore_index: int = -1) -> Self:
        """Cross entropy with class indices."""
        return self.cross_entropy(target, ignore_index=ignore_index)


def _wide_float(dtype: DType) -> DType:
    return dtypes.float32 if dtype.bits < 32 else dtype


def product_dtype(result: DType) -> DType:
    """The type in which products of *result* are multiplied and added."""
    return _wide_float(result) if result.is_float else result


def sum_along(node: UOp, place: int) -> UOp:
    """Add up along one axis."""
    return UOp.make(Ops.REDUCE, node, arg=ReduceArg(Ops.ADD, (place,)))


def _einsum(terms: list[str], output: str, operands: Sequence[Any], formula: str) -> Any:
    letters = sorted(set("".join(terms)))
    sizes: dict[str, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        if len(term) != operand.ndim or not set(output) <= set(letters):
            raise ShapeError(
                "einsum: the formula does not fit the tensors", rows=[("term", term, operand.shape)]
            )
        for letter, size in zip(term, operand.shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise ShapeError(
                    f"einsum: axis {letter} has two sizes",
                    rows=[("formula", formula), ("sizes", sizes[letter], size)],
                )
    product: Any = None
    for term, operand in zip(terms, operands, strict=True):
        x = operand
        for letter in sorted(set(term)):
            while term.count(letter) > 1:
                first, second = term.index(letter), term.rindex(letter)
                x = x.diagonal(0, first, second)
                term = term[:first] + term[first + 1 : second] + term[second + 1 :] + letter
        order = sorted(range(len(term)), key=term.__getitem__)
        shape = [sizes[c] if c in term else 1 for c in letters]
        x = x.permute(order).reshape(shape)
        product = x if product is None else product * x
    dtype = product.dtype
    kept = product.expand([sizes[c] for c in letters])
    summed = kept.sum(
        [i for i, c in enumerate(letters) if c not in output],
        dtype=dtype if dtype.is_float else accumulated_dtype(dtype),
    )
    left = [c for c in letters if c in output]
    return summed.cast(dtype).permute([left.index(c) for c in output])
