"""What users hold: `Tensor`, built up chapter by chapter.

    Value -> Movement -> Elementwise -> Reduce -> Creation -> Random -> Indexing -> Linear
          -> Convolution -> Sorting -> Autograd -> Tensor

Each class adds one family of methods and uses only those before it.
"""

from pellucid.frontend.tensor import Tensor

__all__ = ["Tensor"]
