"""Optimisers: rules that move parameters down their gradients.

    optimizer.zero_grad(); loss.backward(); optimizer.step()

A step writes to the parameters in place and computes all of them, and the optimiser's own state,
as one schedule. State exists from the start, so that jit can capture a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pellucid.core.errors import ArgumentError, GradientError
from pellucid.frontend.autograd import no_grad
from pellucid.frontend.tensor import Tensor


class Optimizer:
    """What optimisers share: parameters, a learning rate, and the shape of a step."""

    def __init__(self, params: Iterable[Tensor], lr: float) -> None:
        self.params = list({id(p): p for p in params}.values())
        if not self.params:
            raise GradientError(
                "an optimiser needs parameters", help="give it get_parameters(model)"
            )
        for p in self.params:
            if not p.dtype.is_float:
                raise GradientError(
                    "only floats can be optimised", rows=[("parameter", p.shape, p.dtype)]
                )
            p.requires_grad_()
        if not lr >= 0:
            raise ArgumentError("a learning rate is not negative", came=lr)
        self.lr = lr
        self.state: list[Tensor] = []

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters."""
        for p in self.params:
            p.grad = None

    def step(self) -> None:
        """Move every parameter that has a gradient."""
        with no_grad():
            self.before_step()
            grads = [p.grad for p in self.params]
            for index, (p, grad) in enumerate(zip(self.params, grads, strict=True)):
                if grad is not None:
                    self.update(index, p, grad)
            # gradients too: as lazy values they would hold on to the parameters before the step
            known = [grad for grad in grads if grad is not None]
            self.params[0].realize(*self.params[1:], *self.state, *known)

    def before_step(self) -> None:
        """What happens once in a step."""

    def update(self, index: int, p: Tensor, grad: Tensor) -> None:
        """Move one parameter; each optimiser has its own rule."""
        raise NotImplementedError

    def _zeros(self) -> list[Tensor]:
        """State of the shape of each parameter."""
        made = [
            Tensor.zeros(p.shape, dtype=p.dtype, device=p.device, requires_grad=False)
            for p in self.params
        ]
        self.state += made
        return made


class SGD(Optimizer):
    """p -= lr * v with v = momentum * v + g: gradient descent, with a memory if asked for.

    Source: Sutskever et al., "On the importance of initialization and momentum in deep
    learning", 2013, for Nesterov's variant, in PyTorch's arrangement.

    >>> p = Tensor([3.0], requires_grad=True)
    >>> _ = (p * p).sum().backward()
    >>> SGD([p], lr=0.25).step()
    >>> p.tolist()
    [1.5]
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(params, lr)
        self.momentum, self.dampening = momentum, dampening
        self.weight_decay, self.nesterov = weight_decay, nesterov
        self.velocity = self._zeros() if momentum else []
        self.started = Tensor(0.0, requires_grad=False)
        if momentum and dampening:
            self.state.append(self.started)

    def update(self, index: int, p: Tensor, grad: Tensor) -> None:
        """Move one parameter."""
        if self.weight_decay:
            grad = grad + p * self.weight_decay
        if self.momentum:
            velocity = self.velocity[index]
            velocity.assign(velocity * self.momentum + grad * self._share())
            grad = grad + velocity * self.momentum if self.nesterov else velocity
        p.assign(p - grad * self.lr)

    def _share(self) -> Tensor | float:
        """How much of a gradient enters the velocity: all of the first, then 1 - dampening."""
        return 1.0 - self.started * self.dampening if self.dampening else 1.0

    def step(self) -> None:
        """Move every parameter that has a gradient."""
        super().step()
        if self.momentum and self.dampening:
            with no_grad():
                self.started.assign(1.0)
                self.started.realize()


class Adam(Optimizer):
    """p -= lr * m / (sqrt(v) + eps), with running averages m of g and v of g^2, corrected for
    their start.

    Source: Kingma and Ba, "Adam: a method for stochastic optimization", 2015, algorithm 1.

    >>> p = Tensor([3.0], requires_grad=True)
    >>> _ = (p * p).sum().backward()
    >>> Adam([p], lr=0.5).step()  # the first step is as long as lr
    >>> [round(x, 3) for x in p.tolist()]
    [2.5]
    """

    decoupled = False

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr)
        self.beta1, self.beta2 = betas
        self.eps, self.weight_decay = eps, weight_decay
        self.m, self.v = self._zeros(), self._zeros()
        self.power1 = Tensor(1.0, requires_grad=False)
        self.power2 = Tensor(1.0, requires_grad=False)
        self.state += [self.power1, self.power2]

    def before_step(self) -> None:
        """Count the step: the powers of beta."""
        self.power1.assign(self.power1 * self.beta1)
        self.power2.assign(self.power2 * self.beta2)

    def update(self, index: int, p: Tensor, grad: Tensor) -> None:
        """Move one parameter."""
        if self.weight_decay and not self.decoupled:
            grad = grad + p * self.weight_decay
        m, v = self.m[index], self.v[index]
        m.assign(m * self.beta1 + grad * (1 - self.beta1))
        v.assign(v * self.beta2 + grad * grad * (1 - self.beta2))
        step = (m / (1.0 - self.power1)) / ((v / (1.0 - self.power2)).sqrt() + self.eps)
        if self.weight_decay and self.decoupled:
            step = step + p * self.weight_decay
        p.assign(p - step * self.lr)


class AdamW(Adam):
    """Adam whose weight decay does not pass through the averages.

    Source: Loshchilov and Hutter, "Decoupled weight decay regularization", 2019, algorithm 2.
    """

    decoupled = True

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)
