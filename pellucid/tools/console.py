"""Where tools print: a rich console, wide enough for graphs when nobody watches.

pellucid laws            fits the terminal
pellucid laws | less     120 columns, no colours
"""

from __future__ import annotations

import sys

from rich.console import Console


def console() -> Console:
    """Return a console on the standard output stream of now."""
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=120, soft_wrap=False)
