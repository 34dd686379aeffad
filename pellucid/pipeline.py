"""The table of contents: every stage of every pipeline, in order, as data.

    Tensor graph  --SCHEDULE_PIPELINE-->  LINEAR of CALLs
    kernel SINK   --KERNEL_PIPELINE-->    lowered SINK         full_rewrite_to_sink(ast, target)
    lowered SINK  --linearize, render, compile-->  PROGRAM     do_to_program(ast, renderer)

A `Stage` says what form it needs, what form it gives and why it exists; `after` names the stages
that must stand before it, each with the reason. The lists are checked when this module is read, the
forms on every run that asks for it (`Options.verify`, and all tests). The docs, `pellucid pipeline`
and `pellucid explain` print these lists.

A PROGRAM is found again by `to_program_key`: content of the AST, renderer with its target, and the
options that change code. The key says which *code* is right; it says nothing of input values or of
buffers.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from typing import Any, Final

import pellucid.render as renderers
from pellucid.codegen.add_control_flow import add_control_flow
from pellucid.codegen.add_loads import add_loads
from pellucid.codegen.assign_grid import assign_grid
from pellucid.codegen.choose_index_width import choose_index_width
from pellucid.codegen.coalesce_memory import coalesce_memory
from pellucid.codegen.collapse_reductions import collapse_reductions
from pellucid.codegen.decompose_ops import decompose_ops
from pellucid.codegen.emulate_dtypes import emulate_dtypes
from pellucid.codegen.expand_ranges import expand_ranges
from pellucid.codegen.follow_hints import follow_hints
from pellucid.codegen.linearize import linearize
from pellucid.codegen.lower_reductions import lower_reductions
from pellucid.codegen.move_validity_into_gates import move_validity_into_gates
from pellucid.codegen.program_info import program_info
from pellucid.codegen.simplify_ranges import simplify_ranges
from pellucid.core import observe
from pellucid.core.collector import no_collection
from pellucid.core.dtype import dtypes
from pellucid.core.errors import CompileError, FormError, ParseError, PellucidError
from pellucid.core.options import Options, code_key, current_options
from pellucid.core.records import dataclass
from pellucid.core.target import Target, host_target, may_use
from pellucid.core.units import MATRIX_UNITS
from pellucid.ir.arg import ProgramInfo
from pellucid.ir.form import LINEAR, LOOP, NATIVE, SCALAR, SCHEDULE, TENSOR, VECTOR, Form
from pellucid.ir.op import Ops
from pellucid.ir.pack import pack, unpack
from pellucid.ir.uop import UOp
from pellucid.ir.verify import verify
from pellucid.opt.apply_actions import apply_actions
from pellucid.render import Renderer
from pellucid.runtime.device import Device
from pellucid.runtime.diskcache import content_key, current_cache
from pellucid.schedule.inside import place_inside
from pellucid.schedule.keep_rows import keep_rows
from pellucid.schedule.kernels import cut_kernels
from pellucid.schedule.memory import plan_memory
from pellucid.schedule.normalise import normalise
from pellucid.schedule.order import order_drafts
from pellucid.schedule.ranges import assign_ranges
from pellucid.schedule.share import share_kernels

Pass = Callable[..., Any]
"""A step: kernel passes take (sink, target) and return the new sink; those of the schedule pipeline
work on one plan that they hand on (`schedule.api.make_template` runs them in this order)."""


@dataclass(frozen=True)
class Stage:
    """One step: the pass, the form it takes and the form it leaves, and why it exists."""

    run: Pass
    needs: Form
    gives: Form
    why: str
    after: Mapping[str, str] = field(default_factory=dict)
    only_if: Callable[[Options], bool] | None = None

    @property
    def name(self) -> str:
        """The name of the pass, of its file, of its docs page and of its golden folder."""
        return self.run.__name__


def checked(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Return *stages* if their order honours every `after`, and each gets the form it needs."""
    seen: list[str] = []
    form: Form | None = None
    for stage in stages:
        missing = [name for name in stage.after if name not in seen]
        if missing:
            problem = f"it must stand after {missing[0]}: {stage.after[missing[0]]}"
            raise FormError(problem, form=stage.needs.name, stage=stage.name)
        if form is not None and stage.needs is not form:
            raise FormError(
                f"the stage before gives {form.name}", form=stage.needs.name, stage=stage.name
            )
        if stage.only_if is not None and stage.needs is not stage.gives:
            problem = "it may be skipped, so it must give back the form it takes"
            raise FormError(problem, form=stage.gives.name, stage=stage.name)
        seen.append(stage.name)
        form = stage.gives
    return tuple(stages)


SCHEDULE_PIPELINE = checked(
    [
        Stage(
            normalise,
            TENSOR,
            TENSOR,
            why="storage becomes parameters, so that a schedule is found again by its content",
        ),
        Stage(
            assign_ranges,
            TENSOR,
            TENSOR,
            why="every node gets its ranges from its consumers; what must be stored gets a STAGE",
            after={"normalise": "marks that say nothing about values would hide equal nodes"},
        ),
        Stage(
            place_inside,
            TENSOR,
            TENSOR,
            why=(
                "scores of an attention are larger than what they are made of, so each kernel "
                "that uses them makes them, a row at a time"
            ),
            after={"assign_ranges": "who reads a value, and at which indices, is known then"},
        ),
        Stage(
            keep_rows,
            TENSOR,
            TENSOR,
            why="what a kernel needs of one row only is made there, and never leaves the cache",
            after={"assign_ranges": "who reads a value, and at which indices, is known then"},
        ),
        Stage(
            order_drafts,
            TENSOR,
            TENSOR,
            why="true, anti and output dependences decide what runs before what",
            after={"assign_ranges": "dependences hold between what is stored"},
        ),
        Stage(
            share_kernels,
            TENSOR,
            TENSOR,
            why="kernels over the same ranges with something in common become one",
            after={"order_drafts": "two kernels may be one if nothing must run between them"},
        ),
        Stage(
            cut_kernels,
            TENSOR,
            SCHEDULE,
            why="each kernel is a SINK, numbered by structure, so that equal kernels are one",
            after={"share_kernels": "a kernel is cut once it is known what belongs to it"},
        ),
        Stage(
            plan_memory,
            SCHEDULE,
            SCHEDULE,
            why="intermediates that do not live at the same time share storage",
            after={"order_drafts": "lifetimes follow from the order"},
        ),
    ]
)

KERNEL_PIPELINE = checked(
    [
        Stage(
            collapse_reductions,
            LOOP,
            LOOP,
            why=(
                "a sum over a comparison with the range that is summed has a closed form: "
                "one-hot rows become gathers"
            ),
        ),
        Stage(
            simplify_ranges,
            LOOP,
            LOOP,
            why=(
                "ranges are split, merged or dropped until index arithmetic is as plain as "
                "the data is"
            ),
            after={"collapse_reductions": "a collapsed reduction takes its range away"},
        ),
        Stage(
            apply_actions,
            LOOP,
            LOOP,
            why="choose a loop structure (lanes, copies, threads, blocks), never a meaning",
            after={"simplify_ranges": "actions name axes by their place among the final ranges"},
        ),
        Stage(
            expand_ranges,
            LOOP,
            VECTOR,
            why="ranges chosen as lanes become vectors, unrolled ones become copies",
            after={"apply_actions": "actions choose which ranges these are"},
        ),
        Stage(
            lower_reductions,
            VECTOR,
            VECTOR,
            why="a reduction is a loop around accumulators",
            after={"expand_ranges": "lanes and copies are the independent accumulators"},
        ),
        Stage(
            assign_grid,
            VECTOR,
            VECTOR,
            why="a range that is a thread or launch index is given by the launch, not by a loop",
        ),
        Stage(
            add_loads,
            VECTOR,
            VECTOR,
            why="a read happens at one place, once",
            after={"lower_reductions": "accumulators are read and written too"},
        ),
        Stage(
            coalesce_memory,
            VECTOR,
            VECTOR,
            why="lanes that are neighbours in memory are one wide access",
            after={"add_loads": "accesses must exist before they can be joined"},
        ),
        Stage(
            choose_index_width,
            VECTOR,
            SCALAR,
            why="addresses are 32 bits wide where bounds prove that this is enough, else 64",
            after={"coalesce_memory": "addresses are compared as integers without a width"},
        ),
        Stage(
            decompose_ops,
            SCALAR,
            SCALAR,
            why="what the target lacks is spelled with what it has: division rules, exp, sin …",
        ),
        Stage(
            emulate_dtypes,
            SCALAR,
            SCALAR,
            why="types that the target lacks are computed in wider ones and rounded after each op",
            after={
                "decompose_ops": "functions of small floats are spelled before each op is rounded"
            },
        ),
        Stage(
            move_validity_into_gates,
            SCALAR,
            NATIVE,
            why="memory is touched only where a gate is true, and gates that always hold are gone",
            after={"add_loads": "gates belong to loads and stores"},
        ),
        Stage(
            add_control_flow,
            NATIVE,
            NATIVE,
            why="loops that could stand in any order are given one, from their data dependences",
        ),
        Stage(
            follow_hints,
            NATIVE,
            NATIVE,
            why="memory is asked for ahead of its use, and written past the caches, as advised",
            after={"add_control_flow": "the innermost loop of an access is that of one END"},
        ),
    ]
)


def run_stages(stages: Sequence[Stage], graph: UOp, target: Target) -> UOp:
    """Run *stages* on *graph*; report each to observers; verify forms if options ask for it."""
    options = current_options()
    for stage in stages:
        if stage.only_if is not None and not stage.only_if(options):
            continue
        start = time.perf_counter()
        try:
            after = stage.run(graph, target)
            if options.verify:
                verify(after, stage.gives, target)
        except PellucidError:
            raise
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            raise CompileError(repr(error), stage=stage.name, kernel=kernel_name(graph)) from error
        if observe.watching:
            observe.stage(stage.name, graph, after, time.perf_counter() - start)
        graph = after
    return graph


def kernel_name(sink: UOp) -> str:
    """The name that a kernel's SINK gives it."""
    return getattr(sink.arg, "name", "kernel")


def full_rewrite_to_sink(ast: UOp, target: Target) -> UOp:
    """Lower a kernel from LOOP form to NATIVE form: the first half of the kernel pipeline."""
    return run_stages(KERNEL_PIPELINE, ast, target)


@dataclass(frozen=True)
class Rendered:
    """A kernel as far as it comes without a compiler: lowered, in order, as text."""

    sink: UOp
    linear: UOp
    source: UOp
    info: ProgramInfo

    def program(self, binary: UOp) -> UOp:
        """The PROGRAM, with the object that the text was compiled to."""
        return UOp(
            Ops.PROGRAM, dtypes.void, (self.sink, self.linear, self.source, binary), self.info
        )


def render_kernel(ast: UOp, renderer: Renderer, taken: Container[str] = ()) -> Rendered:
    """Lower a kernel, put it in order, and write its text, under a name that is not *taken*."""
    sink = full_rewrite_to_sink(ast, renderer.target)
    info = program_info(sink, renderer.target)
    name = next(n for n in _numbered(info.name) if n not in taken)
    info = replace(info, name=name)
    linear = _reported("linearize", sink, lambda: linearize(sink))
    if current_options().verify:
        verify(linear, LINEAR, renderer.target)

    def render() -> UOp:
        return UOp(Ops.SOURCE, dtypes.void, (), renderer.render(linear, info))

    return Rendered(sink, linear, _reported("render", linear, render), info)


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}_{number}" for number in itertools.count(2))


def do_to_program(ast: UOp, renderer: Renderer) -> UOp:
    """Compile a kernel: lower, put in order, render, compile. No cache is asked.

    Returns a PROGRAM with sources SINK (lowered), LINEAR, SOURCE, BINARY, and arg `ProgramInfo`.
    Errors: CompileError naming the kernel, when the toolchain refuses; ToolchainError when it is
    missing.
    """
    with no_collection():
        return _compiled_alone(render_kernel(ast, renderer), renderer)


def _compiled_alone(rendered: Rendered, renderer: Renderer) -> UOp:
    def compile_source() -> UOp:
        device = Device[f"CPU:{renderer.name}"]
        binary = device.compile(rendered.source.arg, rendered.info.name)
        return UOp(Ops.BINARY, dtypes.void, (), binary)

    statistics.modules += 1
    return rendered.program(_reported("compile", rendered.source, compile_source))


def _compiled_together(kernels: Sequence[Rendered], renderer: Renderer) -> list[UOp]:
    """Compile several kernels as one module: their PROGRAMs share its object.

    Alone, where somebody watches each kernel, and where the module is refused: then the error says
    which kernel it was.
    """
    if len(kernels) > 1 and not observe.watching:
        texts = [kernel.source.arg for kernel in kernels]
        names = [kernel.info.name for kernel in kernels]
        joined = renderer.join(texts, names)
        with contextlib.suppress(CompileError):
            device = Device[f"CPU:{renderer.name}"]
            binary = UOp(Ops.BINARY, dtypes.void, (), device.compile(joined, " ".join(names)))
            statistics.modules += 1
            return [kernel.program(binary) for kernel in kernels]
    return [_compiled_alone(kernel, renderer) for kernel in kernels]


def _reported(name: str, before: UOp, run: Callable[[], UOp]) -> UOp:
    """Take the step *name*, and report it to observers as a stage."""
    start = time.perf_counter()
    after = run()
    if observe.watching:
        observe.stage(name, before, after, time.perf_counter() - start)
    return after


def to_program_key(ast: UOp, renderer: Renderer) -> tuple[Any, ...]:
    """What a kernel's code depends on: the AST, renderer and target, options that change code.

    Equal in every process for equal structure; says nothing about values or buffers.
    """
    return (ast.key, type(renderer).__name__, renderer.key, code_key(current_options()))


_programs: dict[tuple[Any, ...], UOp] = {}
_lock = threading.Lock()


@dataclass
class ProgramStatistics:
    """How often a PROGRAM was found in memory, found on disk, or compiled, in this process."""

    in_memory: int = 0
    on_disk: int = 0
    compiled: int = 0
    modules: int = 0


statistics = ProgramStatistics()


def to_program(ast: UOp, renderer: Renderer) -> UOp:
    """Compile a kernel as `do_to_program` does, or find its PROGRAM in memory or on disk."""
    return to_programs([ast], renderer)[0]


def to_programs(
    asts: Sequence[UOp], renderer: Renderer, advance: Callable[[], None] = lambda: None
) -> list[UOp]:
    """Find the PROGRAMs of kernels in memory or on disk; compile the others as one module.

    *advance* is called once for each kernel, when it is found or has its text.
    """
    keys = [to_program_key(ast, renderer) for ast in asts]
    if all(key in _programs for key in keys):
        statistics.in_memory += len(keys)
        return [_programs[key] for key in keys]
    with _lock, no_collection():
        missing: dict[tuple[Any, ...], Rendered] = {}
        taken: set[str] = set()
        for ast, key in zip(asts, keys, strict=True):
            if key not in _programs and key not in missing and not _take_from_disk(key):
                missing[key] = render_kernel(ast, renderer, taken)
                taken.add(missing[key].info.name)
            advance()
        if missing:
            programs = _compiled_together(list(missing.values()), renderer)
            for key, program in zip(missing, programs, strict=True):
                if current_cache().folder:
                    current_cache().put(_disk_key(key), pack(program, _put_object))
                _programs[key] = program
            statistics.compiled += len(programs)
        return [_programs[key] for key in keys]


def _take_from_disk(key: tuple[Any, ...]) -> bool:
    """Take a PROGRAM from disk, if there is one."""
    program = _from_disk(key)
    if program is None:
        return False
    statistics.on_disk += 1
    _programs[key] = program
    return True


def _disk_key(key: tuple[Any, ...]) -> str:
    return content_key("program", compiler_version(), json.dumps(key, default=str))


@cache
def compiler_version() -> str:
    """What stands for the compiler itself in keys on disk: its files, by name, size and time.

    A program that another version of the compiler wrote is never found, also while one works on it.
    """
    package = os.path.dirname(__file__)
    folders = ("core", "ir", "opt", "codegen", "render")
    files = [file for folder in folders for file in _files_below(os.path.join(package, folder))]
    files.append((__file__, os.stat(__file__)))
    facts = [(path[len(package) :], now.st_size, now.st_mtime_ns) for path, now in sorted(files)]
    return content_key(*map(repr, facts))


def _files_below(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """The files of Python below a folder: what `Path.rglob` finds in five times the time."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry.path, entry.stat()
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _files_below(entry.path)


def _from_disk(key: tuple[Any, ...]) -> UOp | None:
    """The PROGRAM kept under *key*; what does not read as one, or may not run, counts as absent."""
    cached = current_cache()
    payload = cached.get(_disk_key(key)) if cached.folder else None
    if payload is None:
        return None
    try:
        program = unpack(payload, _get_object)
    except ParseError:
        return None
    if program.op is not Ops.PROGRAM:
        return None
    may_run = all(may_use(MATRIX_UNITS[unit]) for unit in program.arg.units)
    return program if may_run else None


def _put_object(content: str, binary: bytes) -> None:
    """Keep an object on disk, once for all programs in it."""
    if content not in _objects:
        current_cache().put(content_key("binary", content), binary)
        _note_object(content, binary)


def _get_object(content: str) -> bytes | None:
    """The object with a hash, read once for programs that come together."""
    if content not in _objects:
        binary = current_cache().get(content_key("binary", content))
        if binary is None:
            return None
        _note_object(content, binary)
    return _objects[content]


def _note_object(content: str, binary: bytes) -> None:
    _objects[content] = binary
    while len(_objects) > _MOST_OBJECTS:
        del _objects[next(iter(_objects))]


_objects: dict[str, bytes] = {}
_MOST_OBJECTS: Final = 8


def forget_programs() -> None:
    """Empty the cache in memory (for tests, and for measuring a first call)."""
    with _lock:
        _programs.clear()
        _objects.clear()


def renderer_for(device: str) -> Renderer:
    """The renderer that a device compiles with, LLVM IR or C text, for the target in force."""
    return _renderer(Device[device].renderer_name, host_target())


@cache
def _renderer(name: str, target: Target) -> Renderer:
    kind = renderers.LLVMRenderer if name == "llvm" else renderers.CRenderer
    return kind(target)
