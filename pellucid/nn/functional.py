"""The functions of neural networks under the names of `torch.nn.functional`; each is a method of
Tensor.

relu(x) is x.relu()        cross_entropy(logits, target) is logits.cross_entropy(target)
"""

from __future__ import annotations

from typing import Final

from pellucid.frontend.tensor import Tensor

relu: Final = Tensor.relu
gelu: Final = Tensor.gelu
silu: Final = Tensor.silu
elu: Final = Tensor.elu
leaky_relu: Final = Tensor.leaky_relu
softplus: Final = Tensor.softplus
logsigmoid: Final = Tensor.logsigmoid
sigmoid: Final = Tensor.sigmoid
tanh: Final = Tensor.tanh
softmax: Final = Tensor.softmax
log_softmax: Final = Tensor.log_softmax
linear: Final = Tensor.linear
conv1d: Final = Tensor.conv2d
conv2d: Final = Tensor.conv2d
conv_transpose2d: Final = Tensor.conv_transpose2d
max_pool2d: Final = Tensor.max_pool2d
avg_pool2d: Final = Tensor.avg_pool2d
layer_norm: Final = Tensor.layer_norm
normalize: Final = Tensor.normalize
dropout: Final = Tensor.dropout
pad: Final = Tensor.pad
one_hot: Final = Tensor.one_hot
scaled_dot_product_attention: Final = Tensor.scaled_dot_product_attention
mse_loss: Final = Tensor.mse_loss
l1_loss: Final = Tensor.l1_loss
nll_loss: Final = Tensor.nll_loss
cross_entropy: Final = Tensor.cross_entropy
binary_cross_entropy: Final = Tensor.binary_cross_entropy
binary_cross_entropy_with_logits: Final = Tensor.binary_cross_entropy_with_logits


def embedding(input: Tensor, weight: Tensor) -> Tensor:
    """The rows of *weight* that *input* lists.

    >>> embedding(Tensor([1, 0]), Tensor([[1.0], [2.0]])).tolist()
    [[2.0], [1.0]]
    """
    return weight[input]
