"""Show the examples of docstrings as code: mkdocstrings would take `>>>` for quotations.

    Read an axis.                       Read an axis.

    >>> axis(-1, 3, "sum")      ->      ```pycon
    2                                   >>> axis(-1, 3, "sum")
                                        2
                                        ```

An extension of griffe, which reads the docstrings for mkdocstrings (mkdocs.yml names it).
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


def fenced(text: str) -> str:
    """Put every example into a block of its own."""
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)


class Examples(griffe.Extension):
    """Rewrite each docstring as it is read."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Fence the examples of one module, class or function."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
