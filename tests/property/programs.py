"""Random tensor programs, as data: hypothesis draws them, and each can be written into a test.

    [("data", "int8", (3, 7), 5), ("flip", 0, (1,)), ("sum", 1, (0,), False)]

A program is a list of steps; a step is a name, the numbers of the values it uses, and what else it
needs. Step k makes value k. `model_of` runs a program in numpy, `tensors_of` with Tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from pellucid import Tensor
from pellucid.core.dtype import DType, parse_dtype
from tests.property import model
from tests.property.model import Known

Step = tuple[Any, ...]
Program = list[Step]
Draw = Callable[[st.SearchStrategy[Any]], Any]

SIZES = (0, 1, 2, 3, 5, 7, 8, 9, 31, 33)
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64"),
)
MOST_ELEMS = 3000
MOST_AXES = 4


# ---- running ----------------------------------------------------------------------------------


def data(dtype: DType, shape: tuple[int, ...], seed: int) -> Known:
    """Values of a leaf: small ones with ties and zeros; sometimes ends of the type and specials."""
    numbers = np.random.default_rng(seed)
    if dtype.is_bool:
        return model.exact(dtype, numbers.integers(0, 2, shape))
    if dtype.is_float:
        values = numbers.integers(-16, 17, shape) / 4
        if seed % 5 == 0:
            special = np.array([math.nan, math.inf, -math.inf, -0.0, 0.5, dtype.finite_max])
            values = np.where(numbers.random(shape) < 0.2, numbers.choice(special, shape), values)
        return model.cast(Known(parse_dtype("float64"), np.asarray(values)), dtype)
    low, high = int(dtype.min), int(dtype.max)
    small = numbers.integers(max(low, -5), 9, shape)
    values = np.asarray(small).astype(model.numpy_type(dtype))
    if seed % 3 == 0:
        ends = np.array([low, high, high - 1, low + 1], model.numpy_type(dtype))
        values = np.where(numbers.random(shape) < 0.2, numbers.choice(ends, shape), values)
    return Known(dtype, np.asarray(values).astype(model.numpy_type(dtype)))


def model_of(program: Program) -> list[Known]:
    """The value of every step, in numpy."""
    values: list[Known] = []
    for step in program:
        values.append(model_step(step, values))
    return values


def model_step(step: Step, values: list[Known]) -> Known:
    name, *rest = step
    with np.errstate(all="ignore"):  # overflow and NaN are values here, not mistakes
        if name == "data":
            return data(parse_dtype(rest[0]), rest[1], rest[2])
        if name == "full":
            return model.exact(parse_dtype(rest[0]), np.full(rest[1], rest[2]))
        if name == "arange":
            return model.exact(parse_dtype(rest[0]), np.arange(rest[1]))
        return OPERATIONS[name].model(values, *rest)


def tensors_of(program: Program, *, is_computed: bool = True) -> list[Tensor]:
    """The tensor of every step; with *is_computed*, leaves are in memory: nothing is folded."""
    made: list[Tensor] = []
    for step in program:
        name, *rest = step
        if name == "data":
            tensor = from_known(data(parse_dtype(rest[0]), rest[1], rest[2]))
        elif name == "full":
            tensor = Tensor.full(rest[1], rest[2], dtype=parse_dtype(rest[0]))
        elif name == "arange":
            tensor = Tensor.arange(rest[1], dtype=parse_dtype(rest[0]))
        else:
            made.append(OPERATIONS[name].tensor(made, *rest))
            continue
        if is_computed:
            tensor = tensor.contiguous()
            tensor.realize()
        made.append(tensor)
    return made


def from_known(x: Known) -> Tensor:
    """A tensor of the model's array."""
    if x.dtype.name == "bfloat16":
        return Tensor(x.value.astype(np.float32)).cast(x.dtype)
    return Tensor(x.value)


def numpy_of(tensor: Tensor) -> model.Array:
    """What a tensor holds, as the model compares it: bfloat16 as float32."""
    if tensor.dtype.name == "bfloat16":
        tensor = tensor.cast("float32")
    return np.asarray(tensor.numpy())


def outputs_of(program: Program) -> list[int]:
    """The values that no step uses: what a program computes."""
    used = {place for step in program for place in sources_of(step)}
    return [place for place in range(len(program)) if place not in used]


def sources_of(step: Step) -> tuple[int, ...]:
    """The numbers of the values that a step uses."""
    if step[0] in ("data", "full", "arange"):
        return ()
    return tuple(step[1 : 1 + OPERATIONS[step[0]].num_sources])


# ---- operations -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operation:
    """How one kind of step is drawn, and what it does to the model and to tensors.

    fits: whether the last value can be its first source.  draw: the rest of the step.
    """

    fits: Callable[[Known], bool]
    draw: Callable[[Draw, int, list[Known]], Step | None]
    model: Callable[..., Known]
    tensor: Callable[..., Tensor]
    num_sources: int = 1


OPERATIONS: dict[str, Operation] = {}


def always(x: Known) -> bool:
    return True


def is_number(x: Known) -> bool:
    return not x.dtype.is_bool


def is_exact_int(x: Known) -> bool:
    return x.dtype.is_int


def is_exact(x: Known) -> bool:
    return x.is_exact


def is_finite_float(x: Known) -> bool:
    """Floats on which a function is far from its singularities, its overflow, and from zero."""
    if not x.dtype.is_float or x.value.size == 0:
        return x.dtype.is_float
    return bool(np.all(np.isfinite(x.value)) and np.all(np.abs(x.value) < 8))


def _add_movements() -> None:
    OPERATIONS["reshape"] = Operation(
        always,
        lambda draw, i, v: ("reshape", i, draw(shapes_of(v[i].value.size))),
        lambda v, i, shape: model.moved(v[i], lambda a: a.reshape(shape)),
        lambda t, i, shape: t[i].reshape(shape),
    )
    OPERATIONS["permute"] = Operation(
        lambda x: len(x.shape) > 1,
        lambda draw, i, v: (
            "permute",
            i,
            tuple(draw(st.permutations(list(range(len(v[i].shape)))))),
        ),
        lambda v, i, order: model.moved(v[i], lambda a: a.transpose(order)),
        lambda t, i, order: t[i].permute(order),
    )
    OPERATIONS["expand"] = Operation(
        lambda x: len(x.shape) < MOST_AXES,
        _draw_expand,
        lambda v, i, shape: model.moved(v[i], lambda a: np.broadcast_to(a, shape)),
        lambda t, i, shape: t[i].expand(shape),
    )
    OPERATIONS["pad"] = Operation(
        lambda x: len(x.shape) > 0,
        _draw_pad,
        lambda v, i, amounts, fill: model.padded(v[i], amounts, fill),
        lambda t, i, amounts, fill: t[i].pad(
            [n for pair in reversed(amounts) for n in pair], value=fill
        ),
    )
    OPERATIONS["slice"] = Operation(
        lambda x: len(x.shape) > 0,
        _draw_slice,
        lambda v, i, box: model.moved(v[i], lambda a: a[slices(box)]),
        lambda t, i, box: t[i][slices(box)],
    )
    OPERATIONS["flip"] = Operation(
        lambda x: len(x.shape) > 0,
        lambda draw, i, v: ("flip", i, draw(some_axes(len(v[i].shape)))),
        lambda v, i, axes: model.moved(v[i], lambda a: np.flip(a, axes)),
        lambda t, i, axes: t[i].flip(axes),
    )
    OPERATIONS["realize"] = Operation(
        always,
        lambda draw, i, v: ("realize", i),
        lambda v, i: v[i],
        lambda t, i: t[i].realize(),
    )
    OPERATIONS["contiguous"] = Operation(
        always,
        lambda draw, i, v: ("contiguous", i),
        lambda v, i: v[i],
        lambda t, i: t[i].contiguous(),
    )


def slices(box: tuple[Any, ...]) -> tuple[Any, ...]:
    """Slices as a program writes them: (start, stop, step), or a number."""
    return tuple(slice(*part) if isinstance(part, tuple) else part for part in box)


def shapes_of(count: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes with *count* elements."""
    if count == 0:
        return st.sampled_from([(0,), (0, 3), (2, 0), (1, 0, 5)])
    pairs = [(a, count // a) for a in range(1, count + 1) if count % a == 0]
    found: list[tuple[int, ...]] = [(count,), *pairs]
    for a, b in pairs[:6]:
        found += [(a, c, b // c) for c in range(1, b + 1) if b % c == 0][:6]
    return st.sampled_from(found)


def some_axes(count: int) -> st.SearchStrategy[tuple[int, ...]]:
    """One or more axes, ascending."""
    whole = st.sets(st.integers(0, count - 1), min_size=1, max_size=count)
    return whole.map(lambda axes: tuple(sorted(axes)))


def _draw_expand(draw: Draw, i: int, v: list[Known]) -> Step | None:
    shape = [draw(st.sampled_from(SIZES)) if n == 1 else n for n in v[i].shape]
    if draw(st.booleans()):
        shape.insert(0, draw(st.sampled_from((1, 2, 3, 5))))
    return ("expand", i, tuple(shape)) if math.prod(shape) <= MOST_ELEMS else None


def _draw_pad(draw: Draw, i: int, v: list[Known]) -> Step | None:
    one = st.sampled_from((0, 0, 1, 2, 3))
    amounts = tuple((draw(one), draw(one)) for _ in v[i].shape)
    shape = [n + a + b for n, (a, b) in zip(v[i].shape, amounts, strict=True)]
    if math.prod(shape) > MOST_ELEMS:
        return None
    if v[i].dtype.is_bool:
        fill: float = draw(st.booleans())
    else:
        fill = draw(st.sampled_from((0, 1, 2) if v[i].dtype.is_unsigned else (0, 1, -3)))
    return ("pad", i, amounts, fill)


def _draw_slice(draw: Draw, i: int, v: list[Known]) -> Step | None:
    box: list[Any] = []
    for size in v[i].shape:
        kind = draw(st.sampled_from(("all", "range", "step", "back", "one")))
        if kind == "one" and size:
            box.append(draw(st.integers(-size, size - 1)))
        elif kind == "range":
            box.append((draw(st.integers(0, size)), draw(st.integers(-1, size)), None))
        elif kind == "step":
            box.append((draw(st.integers(0, 2)), None, draw(st.sampled_from((2, 3)))))
        elif kind == "back":
            box.append((None, None, draw(st.sampled_from((-1, -2, -3)))))
        else:
            box.append((None, None, None))
    return ("slice", i, tuple(box))


def _add_unaries() -> None:
    for name, fits in (
        ("neg", is_number),
        ("abs", is_number),
        ("relu", is_number),
        ("invert", lambda x: not x.dtype.is_float),
        ("floor", lambda x: x.dtype.is_float and x.is_exact),
        ("ceil", lambda x: x.dtype.is_float and x.is_exact),
        ("trunc", lambda x: x.dtype.is_float and x.is_exact),
        ("round", lambda x: x.dtype.is_float and x.is_exact),
        ("sqrt", lambda x: x.dtype.is_float and x.is_exact),
    ):
        OPERATIONS[name] = Operation(
            fits,
            lambda draw, i, v, name=name: (name, i),
            lambda v, i, name=name: model.unary(v[i], name),
            lambda t, i, name=name: _tensor_unary(t[i], name),
        )
    for name in ("exp", "sin", "tanh"):
        OPERATIONS[name] = Operation(
            is_finite_float,
            lambda draw, i, v, name=name: (name, i),
            lambda v, i, name=name: model.function(v[i], name),
            lambda t, i, name=name: getattr(t[i], name)(),
        )
    OPERATIONS["cast"] = Operation(
        always,
        _draw_cast,
        lambda v, i, dtype: model.cast(v[i], parse_dtype(dtype)),
        lambda t, i, dtype: t[i].cast(parse_dtype(dtype)),
    )
    for name in ("shl", "shr"):
        OPERATIONS[name] = Operation(
            is_exact_int,
            lambda draw, i, v, name=name: (
                name,
                i,
                draw(st.sampled_from((0, 1, 3, 7, 8, v[i].dtype.bits - 1, v[i].dtype.bits))),
            ),
            lambda v, i, n, name=name: model.shifted(v[i], n, name == "shl"),
            lambda t, i, n, name=name: t[i] << n if name == "shl" else t[i] >> n,
        )


def _tensor_unary(x: Tensor, name: str) -> Tensor:
    if name == "neg":
        return -x
    if name == "invert":
        return ~x
    made: Tensor = getattr(x, name)()
    return made


def _draw_cast(draw: Draw, i: int, v: list[Known]) -> Step | None:
    allowed = [d for d in DTYPES if v[i].is_exact or d.startswith(("float", "bfloat"))]
    return ("cast", i, draw(st.sampled_from(allowed)))


def _add_binaries() -> None:
    for name in (*model.EXACT_BINARY, "maximum", "minimum"):
        OPERATIONS[name] = Operation(
            lambda x, name=name: _binary_fits(x, name),
            lambda draw, i, v, name=name: _draw_binary(draw, i, v, name),
            lambda v, i, j, name=name: model.binary(*_broadcast(v[i], v[j]), name),
            lambda t, i, j, name=name: _tensor_binary(t[i], t[j], name),
            num_sources=2,
        )
    for name in ("add", "mul", "floordiv", "mod", "lt", "eq", "maximum"):
        OPERATIONS[f"{name}_number"] = Operation(
            lambda x, name=name: _binary_fits(x, name) and is_number(x),
            lambda draw, i, v, name=name: (f"{name}_number", i, draw(_number_for(v[i]))),
            lambda v, i, c, name=name: model.binary(v[i], _filled(v[i], c), name),
            lambda t, i, c, name=name: _tensor_binary(t[i], c, name),
        )
    OPERATIONS["where"] = Operation(
        lambda x: x.dtype.is_bool,
        _draw_where,
        lambda v, i, j, k: model.where(*_broadcast(v[i], v[j], v[k])),
        lambda t, i, j, k: t[j].where(t[i], t[k]),
        num_sources=3,
    )
    OPERATIONS["matmul"] = Operation(
        lambda x: x.dtype.is_float and len(x.shape) == 2,
        _draw_matmul,
        lambda v, i, j: model.matmul(v[i], v[j]),
        lambda t, i, j: t[i] @ t[j],
        num_sources=2,
    )
    OPERATIONS["take"] = Operation(
        lambda x: len(x.shape) > 0 and x.shape[0] > 0,
        _draw_take,
        lambda v, i, j: model.taken(v[i], v[j]),
        lambda t, i, j: t[i][t[j]],
        num_sources=2,
    )


def _binary_fits(x: Known, name: str) -> bool:
    if name in ("and", "or", "xor"):
        return not x.dtype.is_float
    if name in ("floordiv", "mod"):
        return x.dtype.is_int
    if name == "div":
        return x.dtype.is_float and x.is_exact
    if x.dtype.is_bool:
        return name in model.COMPARISONS
    return x.is_exact or name in ("add", "sub", "mul", "maximum")


def _draw_binary(draw: Draw, i: int, v: list[Known], name: str) -> Step | None:
    """A partner of the same type, or of one that promotes to where the operation is defined."""
    partners = []
    for j, other in enumerate(v):
        is_same = other.dtype is v[i].dtype
        is_mixed = other.dtype.is_float == v[i].dtype.is_float and is_number(other)
        is_mixed = is_mixed and is_number(v[i]) and name not in ("floordiv", "mod")
        if (is_same or is_mixed) and _binary_fits(other, name) and _can_broadcast(v[i], other):
            if not _mixes_to_float(v[i].dtype, other.dtype) or name in ("lt", "eq", "add"):
                partners.append(j)
    return (name, i, draw(st.sampled_from(partners))) if partners else None


def _mixes_to_float(left: DType, right: DType) -> bool:
    return left.is_int and right.is_int and model.promote(left, right).is_float


def _can_broadcast(*values: Known) -> bool:
    try:
        shape = np.broadcast_shapes(*(x.shape for x in values))
    except ValueError:
        return False
    return math.prod(shape) <= MOST_ELEMS and len(shape) <= MOST_AXES


def _broadcast(*values: Known) -> list[Known]:
    shape = np.broadcast_shapes(*(x.shape for x in values))
    return [model.moved(x, lambda a: np.broadcast_to(a, shape)) for x in values]


def _number_for(x: Known) -> st.SearchStrategy[float]:
    if x.dtype.is_float:
        return st.sampled_from((0.0, 1.0, -1.0, 0.5, 2.0, -3.0))
    low = 0 if x.dtype.is_unsigned else -7
    return st.sampled_from([n for n in (0, 1, 2, 3, 5, 7, 8, 100, -1, -2, -7) if n >= low])


def _filled(x: Known, number: float) -> Known:
    return model.exact(x.dtype, np.full(x.shape, number))


def _tensor_binary(a: Tensor, b: Any, name: str) -> Tensor:
    if name in ("maximum", "minimum"):
        made: Tensor = getattr(a, name)(b)
        return made
    written: dict[str, Callable[[Any, Any], Any]] = {
        "floordiv": lambda x, y: x // y,
        "mod": lambda x, y: x % y,
        "and": lambda x, y: x & y,
        "or": lambda x, y: x | y,
        "xor": lambda x, y: x ^ y,
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "mul": lambda x, y: x * y,
        "div": lambda x, y: x / y,
        "lt": lambda x, y: x < y,
        "le": lambda x, y: x <= y,
        "eq": lambda x, y: x == y,
        "ne": lambda x, y: x != y,
        "gt": lambda x, y: x > y,
        "ge": lambda x, y: x >= y,
    }
    result: Tensor = written[name](a, b)
    return result


def _draw_where(draw: Draw, i: int, v: list[Known]) -> Step | None:
    chosen = draw(st.sampled_from(range(len(v))))
    partners = [
        k
        for k, other in enumerate(v)
        if other.dtype is v[chosen].dtype and _can_broadcast(v[i], v[chosen], other)
    ]
    return ("where", i, chosen, draw(st.sampled_from(partners))) if partners else None


def _draw_matmul(draw: Draw, i: int, v: list[Known]) -> Step | None:
    partners = [
        j
        for j, other in enumerate(v)
        if other.dtype is v[i].dtype
        and len(other.shape) == 2
        and other.shape[0] == v[i].shape[1]
        and is_finite_float(other)
        and is_finite_float(v[i])
    ]
    return ("matmul", i, draw(st.sampled_from(partners))) if partners else None


def _draw_take(draw: Draw, i: int, v: list[Known]) -> Step | None:
    size, rest = v[i].shape[0], math.prod(v[i].shape[1:])
    partners = [
        j
        for j, other in enumerate(v)
        if other.dtype.is_int
        and not (other.dtype.is_unsigned and other.dtype.bits == 64)
        and other.value.size * rest <= MOST_ELEMS
        and len(other.shape) + len(v[i].shape) - 1 <= MOST_AXES
        and bool(np.all((other.value >= -size) & (other.value < size)))
    ]
    return ("take", i, draw(st.sampled_from(partners))) if partners else None


def _add_reductions() -> None:
    for name in ("sum", "prod", "mean", "max", "min", "any", "all"):
        OPERATIONS[name] = Operation(
            lambda x, name=name: _reduction_fits(x, name),
            lambda draw, i, v, name=name: _draw_reduction(draw, i, v, name),
            lambda v, i, axes, keep, name=name: model.reduced(v[i], name, axes, keep),
            lambda t, i, axes, keep, name=name: getattr(t[i], name)(axes, keepdim=keep),
        )


def _reduction_fits(x: Known, name: str) -> bool:
    if not x.shape:
        return False
    if name in ("any", "all"):
        return x.is_exact
    if name in ("max", "min"):
        return is_number(x)
    if x.dtype.is_float:
        return is_finite_float(x)
    return name != "mean"


def _draw_reduction(draw: Draw, i: int, v: list[Known], name: str) -> Step | None:
    axes = draw(some_axes(len(v[i].shape)))
    if name in ("max", "min", "mean") and any(v[i].shape[axis] == 0 for axis in axes):
        return None
    return (name, i, axes, draw(st.booleans()))


def _add_others() -> None:
    """Operations over positions: joining, counting, searching, and reading bits."""
    OPERATIONS["cat"] = Operation(
        lambda x: len(x.shape) > 0,
        _draw_cat,
        lambda v, i, j, axis: model.joined(v[i], v[j], axis),
        lambda t, i, j, axis: Tensor.cat([t[i], t[j]], axis),
        num_sources=2,
    )
    for name in ("argmax", "argmin"):
        OPERATIONS[name] = Operation(
            lambda x: x.is_exact and is_number(x) and 0 not in x.shape and len(x.shape) > 0,
            lambda draw, i, v, name=name: (
                name,
                i,
                draw(st.integers(0, len(v[i].shape) - 1)),
                draw(st.booleans()),
            ),
            lambda v, i, axis, keep, name=name: model.position(v[i], name, axis, keep),
            lambda t, i, axis, keep, name=name: getattr(t[i], name)(axis, keepdim=keep),
        )
    OPERATIONS["cumsum"] = Operation(
        lambda x: len(x.shape) > 0 and model.sums_exactly(x),
        lambda draw, i, v: ("cumsum", i, draw(st.integers(0, len(v[i].shape) - 1))),
        lambda v, i, axis: model.running_sum(v[i], axis),
        lambda t, i, axis: t[i].cumsum(axis),
    )
    OPERATIONS["bitcast"] = Operation(
        lambda x: x.is_exact and x.dtype.name in model.SAME_WIDTH and not _has_nan(x),
        lambda draw, i, v: ("bitcast", i, draw(st.sampled_from(model.SAME_WIDTH[v[i].dtype.name]))),
        lambda v, i, dtype: model.bits_as(v[i], parse_dtype(dtype)),
        lambda t, i, dtype: t[i].bitcast(parse_dtype(dtype)),
    )
    OPERATIONS["roll"] = Operation(
        lambda x: len(x.shape) > 0,
        lambda draw, i, v: (
            "roll",
            i,
            draw(st.integers(-3, 3)),
            draw(st.integers(0, len(v[i].shape) - 1)),
        ),
        lambda v, i, shift, axis: model.moved(v[i], lambda a: np.roll(a, shift, axis)),
        lambda t, i, shift, axis: t[i].roll(shift, axis),
    )


def _has_nan(x: Known) -> bool:
    return x.dtype.is_float and bool(np.isnan(x.value).any())


def _draw_cat(draw: Draw, i: int, v: list[Known]) -> Step | None:
    axis = draw(st.integers(0, len(v[i].shape) - 1))
    partners = [
        j
        for j, other in enumerate(v)
        if other.dtype is v[i].dtype
        and len(other.shape) == len(v[i].shape)
        and _without(other.shape, axis) == _without(v[i].shape, axis)
        and other.value.size + v[i].value.size <= MOST_ELEMS
    ]
    return ("cat", i, draw(st.sampled_from(partners)), axis) if partners else None


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


_add_movements()
_add_unaries()
_add_binaries()
_add_reductions()
_add_others()


# ---- drawing ----------------------------------------------------------------------------------

MOVEMENTS = ("reshape", "permute", "expand", "pad", "slice", "flip")
REDUCTIONS = ("sum", "prod", "mean", "max", "min", "any", "all")
PAIRS = ("add", "sub", "mul", "div", "floordiv", "mod", "and", "or", "xor", "maximum", "minimum")
SINGLES = ("neg", "abs", "relu", "invert", "floor", "ceil", "trunc", "round", "sqrt", "shl", "shr")
NUMBERS = tuple(name for name in OPERATIONS if name.endswith("_number"))
FUNCTIONS = ("exp", "sin", "tanh")
CHOICES = ("where", "take", "matmul")
FAMILIES = (
    *(MOVEMENTS, MOVEMENTS, MOVEMENTS, REDUCTIONS, REDUCTIONS, PAIRS, PAIRS, NUMBERS, CHOICES),
    *(SINGLES, FUNCTIONS, model.COMPARISONS, ("cast",), ("matmul",)),
    ("cat", "argmax", "argmin", "cumsum", "bitcast", "roll"),
)
"""What a step is drawn from: first a family, then one of it that fits."""


@st.composite
def shapes(draw: Draw) -> tuple[int, ...]:
    """A shape of at most three axes, not too large."""
    shape: list[int] = []
    for _ in range(draw(st.integers(0, 3))):
        size = draw(st.sampled_from(SIZES))
        if math.prod([*shape, size]) > MOST_ELEMS:
            break
        shape.append(size)
    return tuple(shape)


@st.composite
def leaves(draw: Draw) -> Step:
    """A leaf: data, one number everywhere, or a count."""
    kind = draw(st.sampled_from(("data", "data", "data", "full", "arange")))
    dtype = draw(st.sampled_from(DTYPES))
    if kind == "data":
        return ("data", dtype, draw(shapes()), draw(st.integers(0, 99)))
    if kind == "full":
        number = draw(st.sampled_from((0, 1, 2, 7)))
        return ("full", dtype, draw(shapes()), bool(number) if dtype == "bool" else number)
    kinds = [d for d in DTYPES if d not in ("bool", "float16", "bfloat16")]
    return ("arange", draw(st.sampled_from(kinds)), draw(st.sampled_from(SIZES)))


@st.composite
def programs(draw: Draw, most_steps: int = 9) -> Program:
    """A program of a few leaves and some steps, each of which uses the newest values most."""
    program: Program = []
    values: list[Known] = []
    for _ in range(draw(st.integers(1, 2))):
        program.append(draw(leaves()))
        values.append(model_step(program[-1], values))
    for _ in range(draw(st.integers(2, most_steps))):
        step = draw_step(draw, values)
        if step is not None:
            program.append(step)
            values.append(model_step(step, values))
    return program


def draw_step(draw: Draw, values: list[Known]) -> Step | None:
    """One more step, or None where what was drawn does not fit."""
    newest = len(values) - 1
    i = draw(st.integers(0, newest)) if draw(st.integers(0, 3)) == 3 else newest
    if draw(st.integers(0, 5)) == 5:
        x = values[i]  # a partner: same shape and type, other numbers
        return ("data", x.dtype.name, x.shape, draw(st.integers(0, 99)))
    if draw(st.integers(0, 11)) == 11:
        return ("realize" if draw(st.booleans()) else "contiguous", i)
    fitting = [name for name in draw(st.sampled_from(FAMILIES)) if OPERATIONS[name].fits(values[i])]
    if not fitting:
        fitting = [name for name, one in OPERATIONS.items() if one.fits(values[i])]
    return OPERATIONS[draw(st.sampled_from(fitting))].draw(draw, i, values)
