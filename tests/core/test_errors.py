"""The tree of errors: what it looks like, what it prints, where it points."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from pellucid.core import errors
from pellucid.core.errors import (
    ActionError,
    AxisError,
    CompileError,
    DTypeError,
    FormError,
    InterpretError,
    OptionError,
    PellucidError,
    RewriteLoopError,
    ShapeError,
    UserLine,
    error_classes,
    error_table,
    error_tree,
    explanation,
    user_location,
)
from pellucid.core.options import Options


def dedent(text: str) -> str:
    return textwrap.dedent(text).strip("\n")


def test_message_lines_up_facts_help_and_place(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("import pellucid\n\nh = x @ w\n")
    error = ShapeError(
        "matmul joins the last axis of left with the second-to-last axis of right",
        rows=[("left", (64, 128), 128), ("right", (64, 10), 64)],
        help="transpose left, or check which tensor is the weight",
        at=UserLine(str(program), 3),
    )
    assert str(error) == dedent(f"""
        matmul joins the last axis of left with the second-to-last axis of right
            left   (64, 128)   128
            right  (64, 10)     64
            help:  transpose left, or check which tensor is the weight
            at     {program}:3  h = x @ w
    """)


def test_expected_and_came_have_their_lines() -> None:
    error = DTypeError("cannot shift", expected="integers", came="float32", at=None)
    assert str(error) == dedent("""
        cannot shift
            expected  integers
            came      float32
    """)


def test_a_problem_alone_is_one_line() -> None:
    assert str(ShapeError("no shape", at=None)) == "no shape"


def test_paths_below_the_working_folder_are_shown_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(UserLine(str(tmp_path / "sub" / "missing.py"), 7)) == "sub/missing.py:7"
    assert str(UserLine("/elsewhere/missing.py", 7)) == "/elsewhere/missing.py:7"


def test_the_place_is_the_line_that_called_the_library() -> None:
    place = user_location()
    assert place is not None
    assert place.filename == __file__
    assert place.text == "place = user_location()"
    error = PellucidError("x")  # found through a frame of the package itself
    assert isinstance(error.at, UserLine)
    assert error.at.text.startswith('error = PellucidError("x")')


def test_generated_code_of_the_package_is_not_the_users() -> None:
    with pytest.raises(OptionError) as caught:
        Options(beam=-1)  # the constructor is code that dataclasses generated
    assert isinstance(caught.value.at, UserLine)
    assert caught.value.at.text.startswith("Options(beam=-1)")


def test_code_given_to_python_c_is_the_users() -> None:
    code = "from pellucid.core.errors import user_location\n\nprint(user_location())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "<string>:3\n"


def test_a_stack_that_is_all_ours_has_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_PACKAGE_FOLDER", "")  # now every file is "ours"
    found: list[UserLine | None] = []
    thread = threading.Thread(target=lambda: found.append(user_location()))
    thread.start()
    thread.join()
    assert found == [None]


def test_texts_of_the_special_errors() -> None:
    texts = {
        str(OptionError("PELLUCID_BEAM", "x", "a whole number from 0 up", at=None)): """
            PELLUCID_BEAM cannot be 'x'
                expected  a whole number from 0 up
                came      'x'
        """,
        str(ActionError("vectorise", "axis 1", "it is a reduction", help="pick 0", at=None)): """
            vectorise of axis 1 is refused: it is a reduction
                help:  pick 0
        """,
        str(CompileError("boom", stage="render", kernel="k", source="a\nb\n", at=None)): """
            render failed for kernel k: boom
                source
                    a
                    b
                help:   run `pellucid bisect` on your program, and report what it prints
        """,
        str(FormError("bad", form="LOOP", stage="s", law="l", around="%1 = X", at=None)): """
            the graph is not in form LOOP: bad
                stage   s
                law     l
                around
                    %1 = X
        """,
        str(FormError("bad", form="LOOP", at=None)): "the graph is not in form LOOP: bad",
        str(RewriteLoopError(["a", "b"], rule_set="r", at=None)): """
            rewriting does not end: a -> b -> a
                rules  r
        """,
        str(InterpretError(InterpretError.RACE, "two writers", node="%3", at=None)): """
            race: two writers
                node  %3
        """,
    }
    for text, expected in texts.items():
        assert text == dedent(expected)


def test_fields_of_the_special_errors_can_be_read() -> None:
    loop = RewriteLoopError(["a", "b"], rule_set="r")
    assert loop.laws == ("a", "b")
    refused = ActionError("unroll", 2, "too long")
    assert (refused.action, refused.axis, refused.reason) == ("unroll", 2, "too long")
    compile_error = CompileError("p", stage="render", kernel="k")
    assert (compile_error.stage, compile_error.kernel) == ("render", "k")


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        ("ShapeError", ValueError),
        ("AxisError", IndexError),
        ("RaggedListError", ValueError),
        ("DTypeError", TypeError),
        ("IndexOutOfRangeError", IndexError),
        ("AllocationError", MemoryError),
        ("OptionError", ValueError),
        ("CompileError", RuntimeError),
        ("InterpretError", RuntimeError),
    ],
)
def test_errors_are_also_the_builtin_that_fits(error: str, builtin: type[Exception]) -> None:
    assert issubclass(getattr(errors, error), builtin)
    assert issubclass(getattr(errors, error), PellucidError)


def test_an_axis_error_is_caught_as_a_shape_error() -> None:
    with pytest.raises(ShapeError):
        raise AxisError("axis 3 of a tensor with 2 axes")


def example(error: type[PellucidError]) -> PellucidError:
    """Make an instance, giving each argument that the class requires a word."""
    parameters = inspect.signature(error).parameters.values()
    required = {p.name: p.name for p in parameters if p.default is p.empty}
    return error(**required)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", error_classes())
def test_errors_travel_between_processes(error: type[PellucidError]) -> None:
    original = example(error)
    copy = pickle.loads(pickle.dumps(original))
    assert type(copy) is error
    assert str(copy) == str(original)
    assert copy.__dict__ == original.__dict__


@pytest.mark.parametrize("error", error_classes())
def test_every_class_explains_cause_and_fix(error: type[PellucidError]) -> None:
    meaning, cause, fix = explanation(error)
    assert meaning.endswith(".")
    assert cause.endswith(".")
    assert fix.endswith(".")


def test_the_tree_drawn_at_the_top_is_true() -> None:
    drawing = textwrap.indent(error_tree(), "    ")
    assert f"\n\n{drawing}\n\n" in (errors.__doc__ or "")


def test_the_table_has_a_row_for_every_class() -> None:
    lines = error_table().splitlines()
    assert len(lines) == len(error_classes()) + 2
    assert lines[0] == "| error | also a | what it means | cause | fix |"
    assert any(line.startswith("| `AxisError` | `IndexError` | An axis does not") for line in lines)
    assert all(line.count("|") == 6 for line in lines)
