"""Random tensors: uniform, normal, integers.

    Tensor.manual_seed(1); Tensor.rand(3)        the same three numbers, everywhere and always

Each element is computed from its own counter by Threefry-2x32 (engine/generator.py). A uniform
float32 takes the upper 24 of 32 random bits; a normal number takes both halves of one block through
the transform of Box and Muller, "A note on the generation of random normal deviates", 1958.
"""

from __future__ import annotations

import math
from typing import Any, Self

from pellucid.core.dtype import DType, dtypes
from pellucid.core.errors import ArgumentError, DTypeError, ShapeError
from pellucid.engine.generator import Generator, default_generator
from pellucid.frontend import arguments
from pellucid.frontend.arguments import DTypeLike, default_float, default_int
from pellucid.frontend.creation import Creation, device_of
from pellucid.ir.op import Ops, Shape
from pellucid.ir.uop import UOp


class Random(Creation):
    """Methods of the class that draw random numbers."""

    __slots__ = ()

    @staticmethod
    def manual_seed(seed: int) -> Generator:
        """Start the random numbers again from *seed*.

        >>> first = Tensor.manual_seed(3) and Tensor.rand(2).tolist()
        >>> first == (Tensor.manual_seed(3) and Tensor.rand(2).tolist())
        True
        """
        return default_generator.manual_seed(seed)

    @classmethod
    def rand(cls, *shape: Any, generator: Generator | None = None, **options: Any) -> Self:
        """Uniform numbers in [0, 1). Options: dtype, device, requires_grad.

        >>> 0 <= Tensor.rand(1).item() < 1
        True
        """
        size = arguments.shape(shape, "rand")
        dtype, device, requires_grad = _float_options(options, "rand")
        return cls._leaf(uniform_node(size, dtype, device, generator), device, requires_grad)

    @classmethod
    def randn(cls, *shape: Any, generator: Generator | None = None, **options: Any) -> Self:
        """Normal numbers, mean 0 and deviation 1. Options: dtype, device, requires_grad.

        >>> Tensor.randn(2, 3).shape
        (2, 3)
        """
        size = arguments.shape(shape, "randn")
        dtype, device, requires_grad = _float_options(options, "randn")
        return cls._leaf(normal_node(size, dtype, device, generator), device, requires_grad)

    @classmethod
    def uniform(
        cls,
        *shape: Any,
        low: float = 0.0,
        high: float = 1.0,
        generator: Generator | None = None,
        **options: Any,
    ) -> Self:
        """Uniform numbers in [low, high). Options: dtype, device, requires_grad.

        >>> bool((Tensor.uniform(100, low=2.0, high=3.0) >= 2).all())
        True
        """
        size = arguments.shape(shape, "uniform")
        dtype, device, requires_grad = _float_options(options, "uniform")
        node = uniform_node(size, dtype, device, generator) * (high - low) + low
        return cls._leaf(node, device, requires_grad)

    @classmethod
    def normal(
        cls,
        mean: float,
        std: float,
        size: Any,
        *,
        generator: Generator | None = None,
        **options: Any,
    ) -> Self:
        """Normal numbers of a *mean* and deviation *std*. Options: dtype, device, requires_grad.

        >>> Tensor.normal(5.0, 0.0, (2,)).tolist()
        [5.0, 5.0]
        """
        shape = arguments.shape((size,), "normal")
        dtype, device, requires_grad = _float_options(options, "normal")
        node = normal_node(shape, dtype, device, generator) * std + mean
        return cls._leaf(node, device, requires_grad)

    @classmethod
    def randint(
        cls,
        low: int,
        high: int | None = None,
        size: Any = None,
        *,
        generator: Generator | None = None,
        dtype: DTypeLike | None = None,
        device: str | None = None,
    ) -> Self:
        """Integers from *low* (0 if left out) up to, without, *high*.

        >>> 3 <= Tensor.randint(3, 9, (1,)).item() < 9
        True
        """
        if size is None and not isinstance(high, int):
            low, high, size = 0, low, high
        if high is None or size is None:
            raise ShapeError("randint takes (high, size) or (low, high, size)")
        if high <= low:
            raise ShapeError("randint needs low < high", rows=[("low", low), ("high", high)])
        new = default_int() if dtype is None else arguments.dtype(dtype, "randint")
        place = device_of(device)
        bits = random_bits(arguments.shape((size,), "randint"), place, generator)
        node = (bits % (high - low)).cast(dtypes.int64) + low
        return cls._leaf(node.cast(new), place, None)

    @classmethod
    def bernoulli(cls, p: float, size: Any, **options: Any) -> Self:
        """True with probability *p*.

        >>> Tensor.bernoulli(1.0, (3,)).tolist()
        [True, True, True]
        """
        return cls.rand(size, **options) < p

    def rand_like(self, **options: Any) -> Self:
        """Uniform numbers of this shape, and this dtype and device unless given."""
        options.setdefault("dtype", self._dtype)
        return self.rand(self._shape, **{"device": self.device, **options})

    def randn_like(self, **options: Any) -> Self:
        """Normal numbers of this shape, and this dtype and device unless given."""
        options.setdefault("dtype", self._dtype)
        return self.randn(self._shape, **{"device": self.device, **options})

    def dropout(self, p: float = 0.5, training: bool = True) -> Self:
        """Each element 0 with probability *p*, the others divided by 1 - p; as it is when not
        training.

        >>> Tensor([1.0, 2.0]).dropout(0.0).tolist()
        [1.0, 2.0]
        """
        if not 0 <= p <= 1:
            raise ArgumentError("dropout needs a probability from 0 to 1", came=p)
        if not training or p == 0:
            return self
        chance = uniform_node(self._shape, dtypes.float32, self.device, None)
        node = self.uop.cast(self._promoted_float())
        kept = node * (1 / (1 - p)) if p < 1 else node.const_like(0)
        return self._value((chance >= p).where(kept, node.const_like(0)))


def random_bits(shape: Shape, device: str, generator: Generator | None) -> UOp:
    """64 random bits for each element, as uint64."""
    count = math.prod(shape)
    state = (generator or default_generator).draw(count, device)
    start = state.shrink(((0, 1),)).expand((count,)) if count else state.shrink(((0, 0),))
    key = state.shrink(((1, 2),)).expand((count,)) if count else start
    counter = start + UOp(Ops.IOTA, dtypes.uint64, (), count)
    return counter.alu(Ops.THREEFRY, key).reshape(shape)


def uniform_node(shape: Shape, dtype: DType, device: str, generator: Generator | None) -> UOp:
    """Uniform floats in [0, 1): as many random bits as the type has in its significand."""
    precision = dtype.mantissa_bits + 1
    bits = random_bits(shape, device, generator)
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    if dtype is not dtypes.float64:
        bits = (bits & 0xFFFFFFFF).cast(dtypes.uint32)
    whole = (bits >> (bits.dtype.bits - precision)).cast(wide)
    return (whole * 2.0**-precision).cast(dtype)


def normal_node(shape: Shape, dtype: DType, device: str, generator: Generator | None) -> UOp:
    """sqrt(-2 ln(1 - u)) cos(2 pi v) of two uniform numbers u, v."""
    bits = random_bits(shape, device, generator)
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    first = ((bits & 0xFFFFFFFF).cast(dtypes.uint32) >> 8).cast(wide) * 2.0**-24
    second = ((bits >> 32).cast(dtypes.uint32) >> 8).cast(wide) * 2.0**-24
    radius = ((1.0 - first).alu(Ops.LOG) * -2.0).alu(Ops.SQRT)
    return (radius * (second * (2 * math.pi)).alu(Ops.COS)).cast(dtype)


def _float_options(options: dict[str, Any], name: str) -> tuple[DType, str, bool | None]:
    """Read dtype, device and requires_grad."""
    given = options.pop("dtype", None)
    dtype = default_float() if given is None else arguments.dtype(given, name)
    device, requires_grad = (
        device_of(options.pop("device", None)),
        options.pop("requires_grad", None),
    )
    if options:
        raise TypeError(f"{name} has no argument {next(iter(options))!r}")
    if not dtype.is_float:
        raise DTypeError(f"{name} makes floats", came=dtype, help="randint makes integers")
    return dtype, device, requires_grad
