"""Every error that Pellucid raises on purpose, as one tree.

    PellucidError
    ├── ShapeError (ValueError)
    │   ├── AxisError (IndexError)
    │   └── RaggedListError
    ├── DTypeError (TypeError)
    ├── IndexOutOfRangeError (IndexError)
    ├── ArgumentError (ValueError)
    ├── StateError (RuntimeError)
    ├── DeviceError (RuntimeError)
    ├── AllocationError (MemoryError)
    ├── OptionError (ValueError)
    ├── ActionError (ValueError)
    ├── GradientError (RuntimeError)
    ├── JitError (RuntimeError)
    ├── ParseError (ValueError)
    ├── CacheError (RuntimeError)
    ├── ToolchainError (RuntimeError)
    ├── CompilerError (RuntimeError)
    │   ├── CompileError
    │   ├── FormError
    │   ├── RewriteLoopError
    │   └── LawError
    └── ExecutionError (RuntimeError)
        └── InterpretError

A class in parentheses is the builtin that the error also is, so that `except ValueError` keeps
working in code that knows nothing of Pellucid. Everything below CompilerError is a mistake of ours,
not of the user's. A message says what was expected, what came, what to try, and where in the user's
code:

    ShapeError: matmul joins the last axis of left with the second-to-last axis of right
        left   (64, 128)   128
        right  (64, 10)     64
        help:  transpose left, or check which tensor is the weight
        at     train.py:41  h = x @ w

The first paragraph of a class's docstring says what it is; it becomes, with "Cause" and "Fix", the
row of the class in the docs.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType
from typing import Any, Final, NamedTuple

_PACKAGE_FOLDER: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_INDENT: Final = "    "

Row = tuple[object, ...]
"""A line of facts in a message: a label, then one or more columns."""


class UserLine(NamedTuple):
    """A line of the user's code: where a value was made, or a mistake.

    >>> print(UserLine("train.py", 41))
    train.py:41
    """

    filename: str
    line: int

    @property
    def text(self) -> str:
        """The source text of the line, or nothing where it cannot be read."""
        return linecache.getline(self.filename, self.line).strip()

    def __str__(self) -> str:
        place = f"{_short_path(self.filename)}:{self.line}"
        return f"{place}  {self.text}" if self.text else place


def user_location() -> UserLine | None:
    """Find the innermost line on the stack that is outside of this package.

    It costs a walk over our own frames and no reading of files, so that a graph builder can call it
    for every node. It is None when all of the stack is ours, as in a thread that we started.

    >>> user_location().text
    'user_location().text'
    """
    frame = sys._getframe(1)
    while _is_ours(frame):
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return UserLine(frame.f_code.co_filename, frame.f_lineno)


def _is_ours(frame: FrameType) -> bool:
    """Tell whether a frame runs our code, written or generated, or the import system."""
    filename = frame.f_code.co_filename
    if filename == "<string>":  # made by exec, as dataclasses do, or given to python -c
        return str(frame.f_globals.get("__name__")).startswith("pellucid.")
    return filename.startswith((_PACKAGE_FOLDER, "<frozen", "<pellucid"))


class PellucidError(Exception):
    """The base of all errors that Pellucid raises on purpose.

    Cause: never raised itself; catch it to catch every error of the library.
    Fix: read the message: it says what was expected, what came, and what to try.

    >>> rows = [("left", (2, 3), 6), ("right", (4,), 4)]
    >>> print(PellucidError("the sizes differ", rows=rows, help="reshape one", at=None))
    the sizes differ
        left   (2, 3)   6
        right  (4,)     4
        help:  reshape one
    """

    def __init__(
        self,
        problem: str,
        *,
        rows: Iterable[Row] = (),
        expected: object = None,
        came: object = None,
        help: str | None = None,
        at: UserLine | str | None = "here",
    ) -> None:
        """State the *problem* in one line, then the facts that show it.

        rows:      lines of (label, column, ...), lined up below each other
        expected, came, help:  the lines of those names; left out when None
        at:        the user's line; "here" looks for it on the stack
        """
        self.problem = problem
        self.rows = tuple(rows)
        self.expected = expected
        self.came = came
        self.help = help
        self.at = user_location() if at == "here" else at
        super().__init__(self._text())

    def _text(self) -> str:
        optional: list[Row] = [
            ("expected", self.expected),
            ("came", self.came),
            ("help:", self.help),
            ("at", self.at),
        ]
        given = [row for row in optional if row[1] is not None]
        return "\n".join([self.problem, *_lined_up([*self.rows, *given])])

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel between processes whole, whatever the constructor of the subclass takes."""
        return _restore, (type(self), self.args, self.__dict__)


class ShapeError(PellucidError, ValueError):
    """Shapes do not fit each other or the operation.

    Cause: operands that do not broadcast, a reshape to another number of elements, a matmul whose
        inner sizes differ.
    Fix: print the shapes that the message names, then reshape, transpose or expand one of them.
    """


class AxisError(ShapeError, IndexError):
    """An axis does not exist in the tensor, or is named twice.

    Cause: an axis outside of -ndim .. ndim-1, often because a dimension was dropped by a reduction.
    Fix: use an axis in the range that the message names, or keepdim=True in the reduction.
    """


class RaggedListError(ShapeError):
    """Nested lists do not have the same length at the same depth.

    Cause: a tensor is a box of numbers, and the lists given describe no box.
    Fix: pad the shorter lists, or make one tensor for each.
    """


class DTypeError(PellucidError, TypeError):
    """A data type does not fit the operation, or a value does not fit the data type.

    Cause: an operation that its dtype lacks (a bit shift of floats), an unknown dtype name, or a
        Python integer too large for its tensor.
    Fix: cast the operand first with `.cast(dtype)`, or choose a wider dtype.
    """


class IndexOutOfRangeError(PellucidError, IndexError):
    """An index is outside of its axis.

    Cause: a constant index, or a value in an index tensor, is below -size or not below size.
    Fix: check the index that the message names; clamp or mask indices that may be invalid.
    """


class ArgumentError(PellucidError, ValueError):
    """A number or a word is not one that the function takes.

    Cause: a probability above 1, a learning rate below 0, the name of a mode that there is not.
    Fix: choose what the message says is expected.
    """


class StateError(PellucidError, RuntimeError):
    """Saved tensors do not belong to the model that they are loaded into.

    Cause: the names differ: the state is that of another model, or the model has changed since.
    Fix: build the model as it was when it was saved, or load with strict=False what is common.
    """


class DeviceError(PellucidError, RuntimeError):
    """A device does not exist, cannot be opened, or two operands live on different devices.

    Cause: a misspelt device, a driver that is not installed, or a forgotten copy.
    Fix: choose one of the devices that the message lists, or move one operand with `.to(device)`.
    """


class AllocationError(PellucidError, MemoryError):
    """A buffer cannot be allocated.

    Cause: the tensor is larger than the memory that is free, often through an accidental broadcast.
    Fix: check the size that the message names; use a smaller batch or a narrower dtype.
    """


class OptionError(PellucidError, ValueError):
    """An option has a value that is not allowed, or no such option exists.

    Cause: a misspelt name or value in a `PELLUCID_*` variable or in `Context(...)`.
    Fix: use one of the values that the message lists; docs/options lists all options.

    >>> print(OptionError("PELLUCID_DEBUG", "lots", "a whole number from 0 to 4", at=None))
    PELLUCID_DEBUG cannot be 'lots'
        expected  a whole number from 0 to 4
        came      'lots'
    """

    def __init__(
        self,
        variable: str,
        value: object,
        allowed: str,
        *,
        problem: str | None = None,
        help: str | None = None,
        at: UserLine | str | None = "here",
    ) -> None:
        """Name the *variable*, its *value*, and what is *allowed*."""
        self.variable, self.value, self.allowed = variable, value, allowed
        problem = problem or f"{variable} cannot be {value!r}"
        super().__init__(problem, expected=allowed, came=repr(value), help=help, at=at)


class ActionError(PellucidError, ValueError):
    """An optimisation action was refused for a kernel.

    Cause: the action is not legal there: the axis does not exist or is of another kind, or the
        result would need more registers or threads than the target has.
    Fix: leave the action out, or choose another axis or amount; the message gives the reason.

    >>> print(ActionError("unroll", "axis 2", "it is a global axis", at=None))
    unroll of axis 2 is refused: it is a global axis
    """

    def __init__(
        self,
        action: object,
        axis: object,
        reason: str,
        *,
        rows: Sequence[tuple[str, object]] = (),
        help: str | None = None,
        at: UserLine | str | None = "here",
    ) -> None:
        """Name the *action*, the *axis* that it asks for, and the *reason* of the refusal."""
        self.action, self.axis, self.reason = action, axis, reason
        problem = f"{action} of {axis} is refused: {reason}"
        super().__init__(problem, rows=rows, help=help, at=at)


class GradientError(PellucidError, RuntimeError):
    """A gradient was asked for that does not exist.

    Cause: the value is not a scalar, depends on no tensor that wants a gradient, or passes through
        an operation without one (a cast to integers, a comparison).
    Fix: reduce to a scalar first, give the gradient of the output, or `detach()` on purpose.
    """


class JitError(PellucidError, RuntimeError):
    """A captured function cannot be replayed with these arguments.

    Cause: an argument differs in shape, dtype, device or Python value from what was captured, or
        the function reads a value back while it is being captured.
    Fix: pass the argument that the message names as captured, or let the function be captured
        again.
    """


class ParseError(PellucidError, ValueError):
    """The text of a graph cannot be read.

    Cause: a typing mistake in a `.uop` file, or a file written by another version.
    Fix: look at the line that the message shows; `pellucid/ir/text.py` describes the grammar.
    """


class CacheError(PellucidError, RuntimeError):
    """The cache on disk cannot be used, though it was asked for explicitly.

    Cause: the folder cannot be made, read or written. A damaged entry is no error: it is ignored.
    Fix: set PELLUCID_CACHE_DIR to a folder that you own, or to nothing for no cache on disk.
    """


class ToolchainError(PellucidError, RuntimeError):
    """A compiler or a library that the device needs is missing, or too old.

    Cause: `cc` is not on the path, or llvmlite is not installed.
    Fix: install what the message names, or choose a device that does not need it.
    """


class CompilerError(PellucidError, RuntimeError):
    """The compiler failed; the user's program may be right.

    Cause: a mistake in Pellucid.
    Fix: `pellucid bisect FILE.py` finds the stage at fault; please report what it prints.
    """


class CompileError(CompilerError):
    """A kernel could not be compiled.

    Cause: a stage of the pipeline failed, or the target's compiler refused the program.
    Fix: `pellucid bisect FILE.py` finds the stage at fault; PELLUCID_OPTIMIZE=0 may avoid it.

    >>> print(CompileError("unknown type", stage="render", kernel="sum_4", source="a\\nb", at=None))
    render failed for kernel sum_4: unknown type
        source
            a
            b
        help:   run `pellucid bisect` on your program, and report what it prints
    """

    def __init__(
        self,
        problem: str,
        *,
        stage: str,
        kernel: str,
        source: str | None = None,
        help: str | None = "run `pellucid bisect` on your program, and report what it prints",
        at: UserLine | str | None = "here",
    ) -> None:
        """Name the *stage* and the *kernel*, with an excerpt of the *source* around the failure."""
        self.stage, self.kernel, self.source = stage, kernel, source
        rows: list[Row] = [] if source is None else [("source", _block(source))]
        problem = f"{stage} failed for kernel {kernel}: {problem}"
        super().__init__(problem, rows=rows, help=help, at=at)


class FormError(CompilerError):
    """A graph does not have the form that its stage promised.

    Cause: a pass or a law built a node that the form does not allow.
    Fix: look at the law that last touched the node; its golden test should have shown this.

    >>> print(FormError("REDUCE without an axis", form="LOOP", stage="split_ranges",
    ...                 law="drop_axis", around="%3 = REDUCE %2", at=None))
    the graph is not in form LOOP: REDUCE without an axis
        stage   split_ranges
        law     drop_axis
        around
            %3 = REDUCE %2
    """

    def __init__(
        self,
        problem: str,
        *,
        form: str,
        stage: str | None = None,
        law: str | None = None,
        around: str | None = None,
        help: str | None = None,
        at: UserLine | str | None = "here",
    ) -> None:
        """Name the broken *form*, the *stage*, the *law* last at work, and the graph *around*."""
        self.form, self.stage, self.law, self.around = form, stage, law, around
        rows: list[Row] = [("stage", stage), ("law", law)]
        if around is not None:
            rows.append(("around", _block(around)))
        rows = [row for row in rows if row[1] is not None]
        problem = f"the graph is not in form {form}: {problem}"
        super().__init__(problem, rows=rows, help=help, at=at)


class RewriteLoopError(CompilerError):
    """Rewriting does not end, because laws undo each other.

    Cause: two or more laws of one rule set form a cycle.
    Fix: make each law of the set shrink the graph in the order that the set declares.

    >>> print(RewriteLoopError(["swap_terms", "sort_terms"], rule_set="simplify_indices", at=None))
    rewriting does not end: swap_terms -> sort_terms -> swap_terms
        rules  simplify_indices
    """

    def __init__(
        self,
        laws: Sequence[str],
        *,
        rule_set: str | None = None,
        around: str | None = None,
        help: str | None = None,
        at: UserLine | str | None = "here",
    ) -> None:
        """Name the *laws* in the cycle, in order, and the graph where they met."""
        self.laws, self.rule_set, self.around = tuple(laws), rule_set, around
        rows: list[Row] = []
        if rule_set is not None:
            rows.append(("rules", rule_set))
        if around is not None:
            rows.append(("around", _block(around)))
        cycle = " -> ".join([*laws, *laws[:1]])
        super().__init__(f"rewriting does not end: {cycle}", rows=rows, help=help, at=at)


class LawError(CompilerError):
    """A law is false or badly written.

    Cause: sampling or the solver found values for which both sides differ, or the law cannot be
        read.
    Fix: the message shows the values; restrict the types of the law's variables, or add a
        condition.
    """


class ExecutionError(PellucidError, RuntimeError):
    """A compiled program could not be run.

    Cause: a buffer is missing, a variable has no value, or the device reported a failure.
    Fix: give a value for the variable that the message names, or run with PELLUCID_VERIFY=1.
    """


class InterpretError(ExecutionError):
    """The reference interpreter stopped a program that does something undefined.

    Cause: an access out of bounds, a read of memory that nobody wrote, or a race between items.
    Fix: `pellucid bisect FILE.py` finds the first stage after which the program does this.

    >>> print(InterpretError("out of bounds", "index 9 of 8", node="%4 = LOAD %2 %3", at=None))
    out of bounds: index 9 of 8
        node  %4 = LOAD %2 %3
    """

    OUT_OF_BOUNDS: Final = "out of bounds"
    UNINITIALISED: Final = "uninitialised"
    RACE: Final = "race"

    def __init__(
        self,
        kind: str,
        problem: str,
        *,
        node: object = None,
        help: str | None = None,
        at: UserLine | str | None = "here",
    ) -> None:
        """Name the *kind* of the mistake, what happened, and the *node* that did it."""
        self.kind, self.node = kind, node
        rows: list[Row] = [] if node is None else [("node", node)]
        super().__init__(f"{kind}: {problem}", rows=rows, help=help, at=at)


def error_classes() -> list[type[PellucidError]]:
    """List every class of the tree, parents before children, in the order of the drawing."""
    return [error for error, _ in _walk(PellucidError, 0)]


def error_tree() -> str:
    """Draw the tree as it stands at the top of this module; a test compares the two."""
    return "\n".join(_tree_lines(PellucidError, "", ""))


def error_table() -> str:
    """Write the table of the docs: one row for each error, with its cause and its fix."""
    rows = ["| error | also a | what it means | cause | fix |", "|---|---|---|---|---|"]
    for error in error_classes():
        meaning, cause, fix = explanation(error)
        builtin = ", ".join(f"`{base.__name__}`" for base in _builtin_bases(error))
        rows.append(f"| `{error.__name__}` | {builtin} | {meaning} | {cause} | {fix} |")
    return "\n".join(rows) + "\n"


def explanation(error: type[PellucidError]) -> tuple[str, str, str]:
    """Read meaning, cause and fix from the docstring of an error class.

    >>> explanation(RaggedListError)[0]
    'Nested lists do not have the same length at the same depth.'
    """
    text = " ".join((error.__doc__ or "").split(">>>")[0].split())
    meaning, _, rest = text.partition(" Cause: ")
    cause, _, fix = rest.partition(" Fix: ")
    return meaning, cause, fix


def _builtin_bases(error: type[PellucidError]) -> list[type]:
    return [base for base in error.__bases__ if not issubclass(base, PellucidError)]


def _walk(error: type[PellucidError], depth: int) -> Iterator[tuple[type[PellucidError], int]]:
    yield error, depth
    for child in error.__subclasses__():
        if child.__module__ == __name__:
            yield from _walk(child, depth + 1)


def _tree_lines(error: type[PellucidError], branch: str, stem: str) -> Iterator[str]:
    builtin = ", ".join(base.__name__ for base in _builtin_bases(error))
    is_root = error is PellucidError
    yield branch + error.__name__ + (f" ({builtin})" if builtin and not is_root else "")
    children = [child for child in error.__subclasses__() if child.__module__ == __name__]
    for child in children:
        is_last = child is children[-1]
        child_branch = stem + ("└── " if is_last else "├── ")
        yield from _tree_lines(child, child_branch, stem + ("    " if is_last else "│   "))


class _block(str):  # noqa: N801 - reads as a function where it is used
    """Text of several lines, which stands below its label instead of beside it."""

    __slots__ = ()


def _lined_up(rows: Sequence[Row]) -> list[str]:
    """Indent rows below the problem: labels and first columns to the left, others to the right."""
    label_width = max((len(str(row[0])) for row in rows), default=0)
    widths: list[int] = []
    for row in rows:
        columns = row[1:] if len(row) > 2 else ()
        widths += [0] * (len(columns) - len(widths))
        for i, column in enumerate(columns):
            widths[i] = max(widths[i], len(str(column)))
    return [_line(row, label_width, widths) for row in rows]


def _line(row: Row, label_width: int, widths: Sequence[int]) -> str:
    label, *columns = row
    if len(columns) == 1 and isinstance(columns[0], _block):
        lines = str(columns[0]).rstrip("\n").split("\n")
        return "\n".join([f"{_INDENT}{label}", *(f"{_INDENT}{_INDENT}{line}" for line in lines)])
    texts = [str(column) for column in columns]
    if len(texts) > 1:
        first, *others = texts
        texts = [first.ljust(widths[0])]
        texts += [text.rjust(width) for text, width in zip(others, widths[1:], strict=False)]
    return f"{_INDENT}{str(label).ljust(label_width)}  {'   '.join(texts)}".rstrip()


def _short_path(filename: str) -> str:
    """Show a file below the working folder by its relative path, any other in full."""
    if not os.path.isabs(filename):
        return filename
    try:
        relative = os.path.relpath(filename)
    except (ValueError, OSError):  # another drive, or the working folder is gone
        return filename
    return filename if relative.startswith(os.pardir) else relative


def _restore(
    error: type[PellucidError], args: tuple[object, ...], state: dict[str, object]
) -> PellucidError:
    restored = BaseException.__new__(error, *args)
    restored.__dict__.update(state)
    return restored
