"""Run a user's file as `python FILE.py` would, and show its errors as Python would.

    run_file("train.py", ["--steps", "3"])   ->  0, or the status that the program ended with

The program sees its own `sys.argv`, its folder first on `sys.path`, and `__name__ == "__main__"`. A
traceback starts at its own first line: frames of the tool that ran it are left out.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from types import ModuleType, TracebackType


class UsageError(Exception):
    """What the command line names cannot be used; the text says why."""


def read_file(path: str) -> str:
    """Return the text of *path*. Errors: UsageError, which names the path and the reason."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        raise UsageError(f"there is no file {path!r}") from None
    except IsADirectoryError:
        raise UsageError(f"{path!r} is a folder, not a program") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path!r} is not a text file in UTF-8") from None
    except OSError as error:
        raise UsageError(f"{path!r} cannot be read: {error.strerror}") from None


def run_file(path: str, arguments: Sequence[str] = ()) -> int:
    """Run a program in this process; return the status that it ends with.

    An exception is printed to the standard error stream, and the status is 1.
    Errors: UsageError when the file cannot be read.
    """
    text = read_file(path)
    with _as_main(path, arguments) as module:
        try:
            exec(compile(text, path, "exec"), module.__dict__)
        except SystemExit as leaving:
            return _status(leaving)
        except Exception as error:  # noqa: BLE001 - whatever the program raises is shown
            _show(error, path, text)
            return 1
    return 0


@contextlib.contextmanager
def _as_main(path: str, arguments: Sequence[str]) -> Iterator[ModuleType]:
    """Let a fresh module be `__main__`, with the arguments and the search path of a program."""
    module = ModuleType("__main__")
    module.__file__ = path
    before = sys.argv, sys.path[:], sys.modules.get("__main__")
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    sys.modules["__main__"] = module
    try:
        yield module
    finally:
        sys.argv, sys.path[:] = before[0], before[1]
        if before[2] is not None:
            sys.modules["__main__"] = before[2]


def _status(leaving: SystemExit) -> int:
    if leaving.code is None or isinstance(leaving.code, int):
        return leaving.code or 0
    print(leaving.code, file=sys.stderr)
    return 1


def _show(error: Exception, path: str, text: str) -> None:
    """Print the traceback from the program's own first line on."""
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    traceback.print_exception(type(error), error, _from_file(error.__traceback__, path))


def _from_file(trace: TracebackType | None, path: str) -> TracebackType | None:
    """The part of a traceback that starts in *path* (all below it for a syntax error: nothing)."""
    start = trace
    while start is not None and start.tb_frame.f_code.co_filename != path:
        start = start.tb_next
    return start
