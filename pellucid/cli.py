"""The command line: `pellucid COMMAND`.

    pellucid explain train.py            each kernel: your lines, reason, stages, source, time
    pellucid bisect train.py             the first stage after which the interpreter disagrees
    pellucid pipeline | laws | ops       the compiler's own tables
    pellucid devices | options | cache   what is there, what can be chosen, what is kept

Status: 0 when all is well, 1 when the user's program or a check fails, 2 when the command is wrong.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pellucid
from pellucid.core.errors import PellucidError
from pellucid.core.options import Context, current_options

Command = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that *arguments* (or the process's) name; return its status."""
    from pellucid.tools.running import UsageError

    given = _read(list(sys.argv[1:] if arguments is None else arguments))
    command: Command = given.command
    try:
        return command(given)
    except UsageError as error:
        print(f"pellucid: {error}", file=sys.stderr)
        return 2
    except PellucidError as error:
        print(f"pellucid: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("pellucid: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `pellucid laws | head`
        sys.stderr.close()
        return 0


def _read(arguments: list[str]) -> argparse.Namespace:
    """Read the command line; what follows `--` belongs to the program that is run."""
    parser = _parser()
    if not arguments:
        parser.print_help(sys.stderr)
        parser.exit(2)
    if "--" not in arguments:
        return parser.parse_args(arguments)
    place = arguments.index("--")
    given = parser.parse_args(arguments[:place])
    if not hasattr(given, "arguments"):
        parser.error("only a program that is run takes arguments after --")
    given.arguments = [*given.arguments, *arguments[place + 1 :]]
    return given


# ---- commands -------------------------------------------------------------------------------


def _show(*renderables: object) -> int:
    from pellucid.tools.console import console

    for renderable in renderables:
        console().print(renderable)
    return 0


def pipeline_command(given: argparse.Namespace) -> int:
    """Print the stages of every pipeline."""
    from pellucid.tools import tables

    return _show(*tables.pipeline_tables())


def laws_command(given: argparse.Namespace) -> int:
    """Print the laws and how far each is proved."""
    from pellucid.tools import tables
    from pellucid.tools.running import UsageError

    families = tables.law_families()
    if given.family is not None and given.family not in families:
        raise UsageError(f"no family {given.family!r}; there are {', '.join(families)}")
    return _show(tables.laws_table(given.family))


def ops_command(given: argparse.Namespace) -> int:
    """Print the op table."""
    from pellucid.tools import tables

    return _show(tables.ops_table())


def devices_command(given: argparse.Namespace) -> int:
    """Print the devices and the facts about the machine."""
    from pellucid.tools import tables

    return _show(tables.devices_table(), tables.machine_table())


def options_command(given: argparse.Namespace) -> int:
    """Print every option with its value."""
    from pellucid.tools import tables

    return _show(tables.options_tables())


def cache_command(given: argparse.Namespace) -> int:
    """Print where compiled kernels are kept and how many there are; empty it on request."""
    from pellucid.tools.roofline import size_text

    folder = current_options().cache_dir
    if not folder:
        print("there is no cache on disk: PELLUCID_CACHE_DIR is empty")
        return 0
    versions = sorted(Path(folder).glob("v[0-9]*"))
    files = [path for version in versions for path in version.rglob("*.bin")]
    size_bytes = sum(path.lstat().st_size for path in files)
    print(f"{folder}: {len(files)} files, {size_text(size_bytes)}")
    if given.clear:
        for version in versions:
            shutil.rmtree(version, ignore_errors=True)
        print("emptied")
    return 0


def explain_command(given: argparse.Namespace) -> int:
    """Run a program and say what became of it."""
    from pellucid.tools.explain import explain_file

    with Context(**_chosen(given)):
        return explain_file(
            given.file,
            given.arguments,
            kernel=given.kernel,
            stages=given.stages,
            disassemble=given.disassemble,
            save_actions=given.save_actions,
        )


def bisect_command(given: argparse.Namespace) -> int:
    """Run a program's kernels after every stage, and say where a value changes."""
    from pellucid.tools.bisect import bisect_file

    with Context(**_chosen(given)):
        return bisect_file(
            given.file, given.arguments, kernel=given.kernel, seed=given.seed, folder=given.output
        )


def _chosen(given: argparse.Namespace) -> dict[str, object]:
    named = {name: getattr(given, name, None) for name in ("device", "beam")}
    return {name: value for name, value in named.items() if value is not None}


# ---- the parser -----------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pellucid",
        description="Look inside Pellucid: what becomes of a program, and what the compiler knows.",
        epilog="PELLUCID_* variables set options for any command; `pellucid options` lists them.",
    )
    parser.add_argument("--version", action="version", version=f"pellucid {pellucid.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_explain(commands)
    _add_bisect(commands)
    _add(commands, "pipeline", pipeline_command, "the stages of the compiler, in order")
    laws = _add(commands, "laws", laws_command, "every rewrite law, and how far it is proved")
    laws.add_argument("family", nargs="?", help="only the laws of this family")
    _add(commands, "ops", ops_command, "every operation of the graph")
    _add(commands, "devices", devices_command, "what can run programs here")
    _add(commands, "options", options_command, "what can be chosen, and what is chosen now")
    cache = _add(commands, "cache", cache_command, "compiled kernels kept between runs")
    cache.add_argument("--clear", action="store_true", help="empty it")
    return parser


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    command: Command,
    summary: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:])
    parser.set_defaults(command=command)
    return parser


def _add_explain(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    summary = "each kernel of a program: your lines, why it is one, stages, code, time"
    parser = _add(commands, "explain", explain_command, summary)
    _add_file(parser)
    parser.add_argument("--stages", action="store_true", help="the graph after each stage")
    parser.add_argument("--disassemble", action="store_true", help="the machine instructions too")
    parser.add_argument("--beam", type=int, metavar="WIDTH", help="search for actions, and report")
    parser.add_argument("--save-actions", metavar="PATH", help="write the actions of all kernels")


def _add_bisect(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    summary = "the first stage after which the interpreter disagrees"
    parser = _add(commands, "bisect", bisect_command, summary)
    _add_file(parser)
    parser.add_argument("--seed", type=int, default=0, help="of the inputs (default 0)")
    parser.add_argument(
        "--output", default=".", metavar="FOLDER", help="where a repro is saved (default: here)"
    )


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.py", help="the program")
    parser.add_argument("--kernel", type=int, metavar="N", help="only kernel N of the summary")
    parser.add_argument("--device", help="as PELLUCID_DEVICE: CPU, CPU:LLVM or CPU:C")
    parser.add_argument(
        "arguments",
        nargs="*",
        metavar="ARGUMENT",
        help="what the program is given; options of its own stand after --",
    )


if __name__ == "__main__":
    sys.exit(main())
