"""What layers have in common: parameters by name, training mode, and loading.

    class Net(Module):
        def __init__(self): self.first = Linear(4, 2)
        def forward(self, x): return self.first(x).relu()

Any object with tensors in its attributes works as a layer: `get_state_dict` looks into attributes,
lists, tuples and dicts. `Module` only adds `model(x)`, `parameters()`, `train()` and `eval()`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

from pellucid.core.errors import ShapeError, StateError
from pellucid.frontend.autograd import no_grad
from pellucid.frontend.tensor import Tensor


class Module:
    """A layer, or a model made of layers."""

    training: bool = True

    def forward(self, *args: Any) -> Any:
        """Compute the layer's output; each layer has its own."""
        raise NotImplementedError(f"{type(self).__name__} has no forward(): define one")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def parameters(self) -> list[Tensor]:
        """The tensors that are trained."""
        return get_parameters(self)

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors that are trained, with their names."""
        return ((n, t) for n, t in get_state_dict(self).items() if is_parameter(t))

    def state_dict(self) -> dict[str, Tensor]:
        """All tensors, by name."""
        return get_state_dict(self)

    def load_state_dict(self, state: Mapping[str, Tensor], strict: bool = True) -> Self:
        """Write the tensors of *state* to those of the same names."""
        load_state_dict(self, state, strict)
        return self

    def train(self, mode: bool = True) -> Self:
        """Behave as in training (dropout, batch statistics), this layer and all in it."""
        for module in _modules(self):
            module.training = mode
        return self

    def eval(self) -> Self:
        """Behave as in use."""
        return self.train(False)

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters."""
        for parameter in self.parameters():
            parameter.grad = None

    def __repr__(self) -> str:
        shapes = ", ".join(f"{n} {tuple(t.shape)}" for n, t in get_state_dict(self).items())
        return f"{type(self).__name__}({shapes})"


class Sequential(Module):
    """Layers and functions, one after the other.

    >>> Sequential(lambda x: x + 1, lambda x: x * 2)(3)
    8
    >>> from pellucid.nn import Linear, ReLU
    >>> Sequential(Linear(4, 2), ReLU())
    Sequential(
      0: Linear(weight (2, 4), bias (2,))
      1: ReLU()
    )
    """

    def __init__(self, *layers: Any) -> None:
        self.layers = list(layers)

    def forward(self, *args: Any) -> Any:
        """Feed each layer with the output of the one before."""
        (x,) = args
        for layer in self.layers:
            x = layer(x)
        return x

    def __repr__(self) -> str:
        layers = (repr(layer).replace("\n", "\n  ") for layer in self.layers)
        rows = (f"\n  {number}: {layer}" for number, layer in enumerate(layers))
        return f"{type(self).__name__}({''.join(rows)}\n)"

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, index: int) -> Any:
        return self.layers[index]


def get_state_dict(model: Any, prefix: str = "") -> dict[str, Tensor]:
    """All tensors in a model, by the path of attributes that leads to them.

    >>> list(get_state_dict({"a": Tensor([1.0]), "b": [Tensor([2.0])]}))
    ['a', 'b.0']
    """
    return dict(_tensors(model, prefix, set()))


def get_parameters(model: Any) -> list[Tensor]:
    """The float tensors of a model that were not made with requires_grad=False, each once."""
    found = {id(t): t for t in get_state_dict(model).values() if is_parameter(t)}
    return list(found.values())


def is_parameter(tensor: Tensor) -> bool:
    """Tell whether a tensor is to be trained."""
    return tensor.is_leaf and tensor.requires_grad


def load_state_dict(model: Any, state: Mapping[str, Tensor], strict: bool = True) -> None:
    """Write the tensors of *state* to those of the same names in a model.

    Errors: StateError for missing or unknown names (unless not strict), ShapeError for another
    shape; nothing is written then.
    """
    mine = get_state_dict(model)
    if strict and set(mine) != set(state):
        raise StateError(
            "the state has other names than the model",
            rows=[
                ("missing", _listed(set(mine) - set(state))),
                ("unknown", _listed(set(state) - set(mine))),
            ],
            help="build the model as it was saved, or pass strict=False",
        )
    common = {name: (tensor, state[name]) for name, tensor in mine.items() if name in state}
    for name, (tensor, new) in common.items():
        if new.shape != tensor.shape:
            raise ShapeError(f"{name} has another shape", expected=tensor.shape, came=new.shape)
    with no_grad():
        for tensor, new in common.values():
            tensor.assign(new.detach().to(tensor.device).cast(tensor.dtype))


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _tensors(value: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield path, value
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    for name, inner in _parts(value):
        yield from _tensors(inner, f"{path}.{name}" if path else str(name), seen)


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list | tuple):
        yield from enumerate(value)
    elif isinstance(value, Sequential):
        yield from enumerate(value.layers)
    elif (
        hasattr(value, "__dict__")
        and not isinstance(value, type)
        and not callable(getattr(value, "__code__", None))
    ):
        yield from vars(value).items()


def _modules(value: Any, seen: set[int] | None = None) -> Iterator[Module]:
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, Tensor):
        return
    seen.add(id(value))
    if isinstance(value, Module):
        yield value
    for _, inner in _parts(value):
        yield from _modules(inner, seen)
