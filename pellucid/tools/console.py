"""Where tools print: a rich console, wide enough for graphs when nobody watches.

pellucid laws            fits the terminal
pellucid laws | less     120 columns, no colours
"""

from __future__ import annotations

import io
import sys

from rich.console import Console


def console() -> Console:
    """Return a console on the standard output stream of now.

    Letters that the stream cannot write, as in `LC_ALL=C`, become question marks.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=120, soft_wrap=False)
