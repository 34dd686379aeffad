"""Layers, losses and optimisers, in the shape that PyTorch has made known.

model = Sequential(Linear(64, 32), ReLU(), Linear(32, 10))
optimizer = Adam(get_parameters(model), lr=1e-3)
loss = model(x).cross_entropy(y)
optimizer.zero_grad(); loss.backward(); optimizer.step()
"""

from pellucid.nn import functional, init, optim
from pellucid.nn.layers import (
    ELU,
    GELU,
    AvgPool2d,
    BatchNorm1d,
    BatchNorm2d,
    Conv1d,
    Conv2d,
    ConvTranspose2d,
    CrossEntropyLoss,
    Dropout,
    Embedding,
    Flatten,
    GroupNorm,
    Identity,
    LayerNorm,
    LeakyReLU,
    Linear,
    LogSoftmax,
    MaxPool2d,
    MSELoss,
    ReLU,
    RMSNorm,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
)
from pellucid.nn.module import (
    Module,
    Sequential,
    get_parameters,
    get_state_dict,
    load_state_dict,
)

__all__ = [
    "ELU",
    "GELU",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv1d",
    "Conv2d",
    "ConvTranspose2d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "GroupNorm",
    "Identity",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSoftmax",
    "MSELoss",
    "MaxPool2d",
    "Module",
    "RMSNorm",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "functional",
    "get_parameters",
    "get_state_dict",
    "init",
    "load_state_dict",
    "optim",
]
