"""What each work computes, written once: *f* is a framework, *v* its tensors by name.

    softmax(f, v)      =  f.softmax(v["x"])
    mlp_loss(f, v)     =  three linear layers and the cross-entropy; a step of Adam follows

The sizes come from the tensors. Sources: He et al., "Deep residual learning for image recognition",
2015 (ResNet-18); Radford et al., "Language models are unsupervised multitask learners", 2019
(GPT-2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.frameworks.base import Framework

Values = Mapping[str, Any]
Function = Callable[[Framework, Values], Any]

# ---- one operation ---------------------------------------------------------------------------


def matmul(f: Framework, v: Values) -> Any:
    """Multiply two matrices, or two stacks of matrices."""
    return f.matmul(v["a"], v["b"])


def matmul_int8(f: Framework, v: Values) -> Any:
    """Multiply two matrices of int8, added up in int32."""
    return f.matmul_int8(v["a"], v["b"])


def matmul_bias_gelu(f: Framework, v: Values) -> Any:
    """Multiply, add a bias, and apply GELU (its tanh form, which all frameworks have)."""
    return f.gelu(f.matmul(v["a"], v["b"]) + v["bias"])


def fused_elementwise(f: Framework, v: Values) -> Any:
    """Compute `(x*3+1).relu()*y + z.exp()`."""
    return f.relu(v["x"] * 3 + 1) * v["y"] + f.exp(v["z"])


def exp(f: Framework, v: Values) -> Any:
    """Raise e to each element."""
    return f.exp(v["x"])


def sum_all(f: Framework, v: Values) -> Any:
    """Add all elements."""
    return f.sum(v["x"], None)


def sum_rows(f: Framework, v: Values) -> Any:
    """Add the elements of each row."""
    return f.sum(v["x"], 1)


def sum_columns(f: Framework, v: Values) -> Any:
    """Add the elements of each column."""
    return f.sum(v["x"], 0)


def transpose(f: Framework, v: Values) -> Any:
    """Write the transposed matrix to memory."""
    return f.contiguous(f.swap(v["x"], 0, 1))


def argmax_rows(f: Framework, v: Values) -> Any:
    """Find the place of the largest element of each row."""
    return f.argmax(v["x"], 1)


def cumsum_rows(f: Framework, v: Values) -> Any:
    """Add up each row from the left."""
    return f.cumsum(v["x"], 1)


def gather_rows(f: Framework, v: Values) -> Any:
    """Take rows of a table."""
    return f.take_rows(v["table"], v["rows"])


def softmax(f: Framework, v: Values) -> Any:
    """Apply softmax to each row."""
    return f.softmax(v["x"])


def layernorm(f: Framework, v: Values) -> Any:
    """Give each row mean 0 and variance 1."""
    return f.layer_norm(v["x"], None, None)


def convolution(f: Framework, v: Values) -> Any:
    """Convolve with 3 x 3 filters, keeping the picture's size; groups follow from the filters."""
    groups = v["x"].shape[1] // v["w"].shape[1]
    return f.conv2d(v["x"], v["w"], stride=1, padding=1, groups=groups)


def max_pool(f: Framework, v: Values) -> Any:
    """Take the largest of each 2 x 2 square."""
    return f.max_pool(v["x"], size=2, stride=2, padding=0)


def attention(f: Framework, v: Values) -> Any:
    """Attend to the tokens before."""
    return f.attention(v["q"], v["k"], v["v"])


# ---- models ----------------------------------------------------------------------------------


def _linear(f: Framework, v: Values, name: str, x: Any) -> Any:
    return f.linear(x, v[f"{name}.weight"], v[f"{name}.bias"])


def mlp_loss(f: Framework, v: Values) -> Any:
    """Classify a batch with three linear layers; give the mean cross-entropy."""
    x = f.relu(_linear(f, v, "fc1", v["x"]))
    x = f.relu(_linear(f, v, "fc2", x))
    return f.cross_entropy(_linear(f, v, "fc3", x), v["labels"])


def cnn_loss(f: Framework, v: Values) -> Any:
    """Classify a batch with four convolutions, each with batch norm; give the cross-entropy."""
    x = v["x"]
    for i in (1, 2, 3, 4):
        x = f.conv2d(x, v[f"conv{i}.weight"], stride=1, padding=1, groups=1)
        x = f.relu(f.batch_norm_training(x, v[f"bn{i}.weight"], v[f"bn{i}.bias"]))
        if i in (2, 4):
            x = f.max_pool(x, size=2, stride=2, padding=0)
    x = f.reshape(x, (x.shape[0], -1))
    return f.cross_entropy(_linear(f, v, "fc", x), v["labels"])


def _batch_norm(f: Framework, v: Values, name: str, x: Any) -> Any:
    weight, bias, mean, var = (v[f"{name}.{part}"] for part in ("weight", "bias", "mean", "var"))
    return f.batch_norm(x, weight, bias, mean, var)


def _residual_block(f: Framework, v: Values, name: str, x: Any, stride: int) -> Any:
    skip = x
    if f"{name}.down.weight" in v:
        skip = f.conv2d(x, v[f"{name}.down.weight"], stride=stride, padding=0, groups=1)
        skip = _batch_norm(f, v, f"{name}.down_bn", skip)
    x = f.conv2d(x, v[f"{name}.conv1.weight"], stride=stride, padding=1, groups=1)
    x = f.relu(_batch_norm(f, v, f"{name}.bn1", x))
    x = f.conv2d(x, v[f"{name}.conv2.weight"], stride=1, padding=1, groups=1)
    return f.relu(_batch_norm(f, v, f"{name}.bn2", x) + skip)


def resnet18(f: Framework, v: Values) -> Any:
    """Classify a picture.  (batch, 3, height, width) -> (batch, classes)"""
    x = f.conv2d(v["x"], v["conv1.weight"], stride=2, padding=3, groups=1)
    x = f.max_pool(f.relu(_batch_norm(f, v, "bn1", x)), size=3, stride=2, padding=1)
    for layer in (1, 2, 3, 4):
        for block in (0, 1):
            stride = 2 if layer > 1 and block == 0 else 1
            x = _residual_block(f, v, f"layer{layer}.{block}", x, stride)
    return _linear(f, v, "fc", f.mean(x, (2, 3)))


GPT2_HEAD_WIDTH = 64


def _heads(f: Framework, x: Any) -> Any:
    batch, tokens, width = x.shape
    head = min(GPT2_HEAD_WIDTH, width)
    return f.swap(f.reshape(x, (batch, tokens, width // head, head)), 1, 2)


def _transformer_block(f: Framework, v: Values, name: str, x: Any) -> Any:
    width = x.shape[-1]
    normed = f.layer_norm(x, v[f"{name}.ln_1.weight"], v[f"{name}.ln_1.bias"])
    joined = _linear(f, v, f"{name}.attn", normed)
    q, k, w = (_heads(f, joined[:, :, i * width : (i + 1) * width]) for i in range(3))
    mixed = f.reshape(f.swap(f.attention(q, k, w), 1, 2), x.shape)
    x = x + _linear(f, v, f"{name}.proj", mixed)
    normed = f.layer_norm(x, v[f"{name}.ln_2.weight"], v[f"{name}.ln_2.bias"])
    return x + _linear(f, v, f"{name}.fc_proj", f.gelu(_linear(f, v, f"{name}.fc", normed)))


def gpt2(f: Framework, v: Values) -> Any:
    """Give the scores of each next token.  (1, tokens) -> (1, tokens, vocabulary)"""
    x = f.take_rows(v["wte.weight"], v["tokens"]) + v["wpe.weight"]
    layers = sum(1 for name in v if name.endswith(".ln_1.weight"))
    for i in range(layers):
        x = _transformer_block(f, v, f"h{i}", x)
    x = f.layer_norm(x, v["ln_f.weight"], v["ln_f.bias"])
    return f.matmul(x, f.swap(v["wte.weight"], 0, 1))
