"""Options: reading the environment, refusing what is wrong, staying in their thread."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from pellucid.core import options
from pellucid.core.errors import OptionError
from pellucid.core.options import (
    Context,
    Options,
    code_key,
    current_options,
    default_cache_dir,
    options_from_environment,
    options_table,
    using,
)


def test_defaults() -> None:
    default = options_from_environment({})
    assert default == Options()
    assert (default.device, default.threads, default.debug, default.beam) == ("CPU", 0, 0, 0)
    assert (default.verify, default.relaxed_float, default.trace) == (False, False, False)
    assert (default.optimize, default.progress) == (True, "auto")
    assert (default.default_float, default.default_int) == ("float32", "int64")


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("DEVICE", "cpu:llvm", "CPU:LLVM"),
        ("DEVICE", " NULL ", "NULL"),
        ("THREADS", "4", 4),
        ("CACHE_DIR", "", ""),
        ("CACHE_DIR", "/tmp/x", "/tmp/x"),
        ("DEBUG", "4", 4),
        ("DEBUG", "", 0),
        ("VERIFY", "1", True),
        ("VERIFY", "Off", False),
        ("VERIFY", "yes", True),
        ("RELAXED_FLOAT", "true", True),
        ("BEAM", "8", 8),
        ("OPTIMIZE", "0", False),
        ("DEFAULT_FLOAT", "bfloat16", "bfloat16"),
        ("DEFAULT_INT", "int32", "int32"),
        ("PROGRESS", "on", "on"),
    ],
)
def test_variables_are_read(variable: str, text: str, value: object) -> None:
    found = getattr(options_from_environment({f"PELLUCID_{variable}": text}), variable.lower())
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("variable", "text", "allowed"),
    [
        ("PELLUCID_DEBUG", "lots", "a whole number from 0 to 4"),
        ("PELLUCID_DEBUG", "5", "a whole number from 0 to 4"),
        ("PELLUCID_THREADS", "-1", "a whole number from 0 up"),
        ("PELLUCID_VERIFY", "perhaps", "1 (on) or 0 (off)"),
        ("PELLUCID_DEVICE", "CPU:", "a device such as CPU, CPU:LLVM, CPU:C or NULL"),
        ("PELLUCID_DEFAULT_FLOAT", "float8", "one of float16, bfloat16, float32, float64"),
        ("PELLUCID_PROGRESS", "sometimes", "one of auto, on, off"),
    ],
)
def test_wrong_variables_are_refused_with_a_full_text(
    variable: str, text: str, allowed: str
) -> None:
    with pytest.raises(OptionError) as caught:
        options_from_environment({variable: text})
    assert str(caught.value) == (
        f"{variable} cannot be {text!r}\n    expected  {allowed}\n    came      {text!r}"
    )


def test_an_unknown_variable_is_a_warning_with_a_hint() -> None:
    with pytest.warns(UserWarning, match="PELLUCID_DEBGU is no option.*PELLUCID_DEBUG"):
        assert options_from_environment({"PELLUCID_DEBGU": "1"}) == Options()
    options_from_environment({"PELLUCID_TARGET": "x86-64", "OTHER": "1"})  # no warning


@pytest.mark.parametrize(
    "changes", [{"debug": True}, {"verify": 2}, {"threads": 1.0}, {"cache_dir": 3}, {"device": 0}]
)
def test_values_of_the_wrong_type_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        Context(**changes)
    with pytest.raises(OptionError):
        Options(**changes)  # type: ignore[arg-type]


def test_an_unknown_option_is_refused_with_a_hint() -> None:
    with pytest.raises(OptionError, match="there is no option 'debgu'") as caught:
        Context(debgu=1)
    assert caught.value.help == "did you mean debug?"
    with pytest.raises(OptionError, match="there is no option 'nonsense'"):
        Options().with_changes(nonsense=1)


def test_values_have_one_spelling() -> None:
    assert Options(verify=1) == Options(verify=True)  # type: ignore[arg-type]
    assert Options(verify=1).verify is True  # type: ignore[arg-type]
    dtype = SimpleNamespace(name="float64")
    assert Options(default_float=dtype).default_float == "float64"  # type: ignore[arg-type]
    assert Options(cache_dir=Path("/tmp/x")).cache_dir == "/tmp/x"  # type: ignore[arg-type]
    assert Options(cache_dir="~/x").cache_dir == os.path.expanduser("~/x")


def test_options_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Options().debug = 1  # type: ignore[misc]
    assert hash(Options(debug=1)) == hash(Options(debug=1))


def test_context_nests_and_ends() -> None:
    outside = current_options()
    with Context(debug=1) as first:
        assert first is current_options()
        with Context(beam=2):
            assert (current_options().debug, current_options().beam) == (1, 2)
        assert current_options().beam == 0
    assert current_options() is outside


def test_context_ends_with_an_exception() -> None:
    with pytest.raises(ZeroDivisionError), Context(debug=1):
        _ = 1 // 0
    assert current_options().debug == 0


def test_one_context_may_be_entered_again() -> None:
    context = Context(debug=1)
    with context, context:
        assert current_options().debug == 1
    assert current_options().debug == 0


def test_context_decorates_a_function_that_calls_itself() -> None:
    @Context(debug=2)
    def depth(n: int) -> int:
        """Count down."""
        assert current_options().debug == 2
        return n if n == 0 else depth(n - 1)

    assert depth(3) == 0
    assert depth.__doc__ == "Count down."
    assert current_options().debug == 0


def test_a_decorated_function_may_run_in_several_threads_at_once() -> None:
    meet = threading.Barrier(4, timeout=10)

    @Context(debug=3)
    def seen() -> int:
        meet.wait()
        debug = current_options().debug
        meet.wait()
        return debug

    with ThreadPoolExecutor(4) as pool:
        assert [f.result() for f in [pool.submit(seen) for _ in range(4)]] == [3, 3, 3, 3]
        assert pool.submit(current_options).result().debug == 0


def test_a_context_stays_in_its_thread() -> None:
    with Context(debug=4), ThreadPoolExecutor(1) as pool:
        assert pool.submit(current_options).result().debug == 0
        with using(current_options()):
            assert current_options().debug == 4


def test_using_puts_all_options_in_force() -> None:
    mine = Options(beam=5, debug=1)
    with Context(verify=True), using(mine):
        assert current_options() is mine
    assert current_options().beam == 0


def test_the_environment_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(current_options).result().debug == 0
        monkeypatch.setenv("PELLUCID_DEBUG", "2")
        assert pool.submit(current_options).result().debug == 0
        options.forget_environment()
        assert pool.submit(current_options).result().debug == 2


def test_another_process_reads_the_variables() -> None:
    code = "from pellucid.core.options import current_options as c; print(c().beam, c().cache_dir)"
    environ = {**os.environ, "PELLUCID_BEAM": "7", "PELLUCID_CACHE_DIR": ""}
    run = [sys.executable, "-c", code]
    assert subprocess.run(run, env=environ, capture_output=True, text=True).stdout == "7 \n"


@pytest.mark.parametrize(
    ("change", "is_in_key"),
    [
        ({"threads": 2}, True),
        ({"relaxed_float": True}, True),
        ({"beam": 1}, True),
        ({"optimize": False}, True),
        ({"actions": "kernel 00ff"}, True),
        ({"debug": 4}, False),
        ({"verify": True}, False),
        ({"trace": True}, False),
        ({"cache_dir": ""}, False),
        ({"device": "NULL"}, False),
        ({"default_float": "float64"}, False),
        ({"default_int": "int32"}, False),
        ({"progress": "off"}, False),
    ],
)
def test_the_key_has_exactly_what_affects_code(change: dict[str, object], is_in_key: bool) -> None:
    changed = Options().with_changes(**change)
    assert (code_key(changed) != code_key(Options())) == is_in_key


def test_the_key_test_above_covers_every_option() -> None:
    mark = test_the_key_has_exactly_what_affects_code.pytestmark[0]  # type: ignore[attr-defined]
    covered = {name for change, _ in mark.args[1] for name in change}
    assert covered == {field.name for field in dataclasses.fields(Options)}


def test_a_file_of_actions_that_is_not_there_is_named() -> None:
    with pytest.raises(OptionError) as caught:
        options_from_environment({"PELLUCID_ACTIONS": "/nowhere/plans.txt"})
    assert str(caught.value).endswith("help:     No such file or directory: /nowhere/plans.txt")


def test_the_table_has_a_row_for_every_option() -> None:
    rows = options_table().splitlines()[2:]
    assert len(rows) == len(dataclasses.fields(Options)) + len(options.OTHER_VARIABLES)
    assert all(row.count("|") == 7 for row in rows)
    assert "| `verify` | `PELLUCID_VERIFY` | 0 | 1 (on) or 0 (off) | no | check the form" in rows[4]


def test_cache_folder_of_each_platform() -> None:
    assert default_cache_dir({}, "linux") == os.path.expanduser("~/.cache/pellucid")
    assert default_cache_dir({}, "darwin") == os.path.expanduser("~/Library/Caches/pellucid")
    assert default_cache_dir({"LOCALAPPDATA": "/l"}, "win32") == "/l/pellucid"


def test_each_test_has_a_cache_of_its_own(clean_options: Options, caches: Path) -> None:
    assert current_options() == clean_options
    assert Path(clean_options.cache_dir).parent == caches
    assert not Path(clean_options.cache_dir).exists()
