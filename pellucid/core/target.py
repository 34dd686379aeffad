"""What a machine can do, as plain data.

A pass never asks which processor this is; it asks a `Target` how wide a vector is, how many
registers hold one, how much fits in a cache. The facts of this machine come from the machine:
feature bits from /proc/cpuinfo (as the operating system lets programs use them), cache sizes from
sysfs, cores from the affinity mask of the process. The model name is never trusted: a hypervisor
may mask features that the model has. Where nothing can be read, the target is the least that the
architecture promises.

`PELLUCID_TARGET` compiles for another machine, in the spelling of `Target.key`:

    PELLUCID_TARGET=x86-64:avx2,fma                      features; sizes are assumed
    PELLUCID_TARGET=x86-64:avx512f:cores=8,l2_bytes=1048576

Feature names are those of LLVM. A feature brings those it implies (avx512f has avx2, avx2 has avx).

Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapters 13 to 18;
Arm Architecture Reference Manual, A1.7; Linux, Documentation/arch/x86/cpuinfo.rst and
Documentation/ABI/testing/sysfs-devices-system-cpu.
"""

from __future__ import annotations

import ctypes
import dataclasses
import difflib
import functools
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pellucid.core.errors import OptionError
from pellucid.core.options import current_options
from pellucid.core.records import dataclass
from pellucid.core.units import MATRIX_UNITS, MatrixUnit

# Names in /proc/cpuinfo that differ from LLVM's.
_X86_LLVM_NAMES: Final = {
    "pni": "sse3",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "abm": "lzcnt",
    "bmi1": "bmi",
    "pclmulqdq": "pclmul",
    "rdrand": "rdrnd",
    "sha_ni": "sha",
    "avx_vnni": "avxvnni",
    "avx_vnni_int8": "avxvnniint8",
    "avx512_bf16": "avx512bf16",
    "avx512_bitalg": "avx512bitalg",
    "avx512_fp16": "avx512fp16",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_vnni": "avx512vnni",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "amx_bf16": "amx-bf16",
    "amx_fp16": "amx-fp16",
    "amx_int8": "amx-int8",
    "amx_tile": "amx-tile",
}
_ARM_LLVM_NAMES: Final = {
    "asimd": "neon",
    "fp": "fp-armv8",
    "asimddp": "dotprod",
    "asimdhp": "fullfp16",
    "atomics": "lse",
    "crc32": "crc",
    "asimdfhm": "fp16fml",
}

_IMPLIED: Final[Mapping[str, tuple[str, ...]]] = {
    "sse2": ("sse",),
    "sse3": ("sse2",),
    "ssse3": ("sse3",),
    "sse4.1": ("ssse3",),
    "sse4.2": ("sse4.1",),
    "avx": ("sse4.2",),
    "f16c": ("avx",),
    "fma": ("avx",),
    "avx2": ("avx",),
    "avxvnni": ("avx2",),
    "avxvnniint8": ("avx2",),
    "avx512f": ("avx2", "fma", "f16c"),
    "avx512bw": ("avx512f",),
    "avx512cd": ("avx512f",),
    "avx512dq": ("avx512f",),
    "avx512vl": ("avx512f",),
    "avx512ifma": ("avx512f",),
    "avx512vbmi": ("avx512bw",),
    "avx512vbmi2": ("avx512bw",),
    "avx512vnni": ("avx512f",),
    "avx512bitalg": ("avx512bw",),
    "avx512vpopcntdq": ("avx512f",),
    "avx512bf16": ("avx512bw",),
    "avx512fp16": ("avx512bw", "avx512dq", "avx512vl"),
    "amx-bf16": ("amx-tile",),
    "amx-fp16": ("amx-tile",),
    "amx-int8": ("amx-tile",),
    "fullfp16": ("fp-armv8",),
    "neon": ("fp-armv8",),
    "dotprod": ("neon",),
    "fp16fml": ("fullfp16",),
    "bf16": ("neon",),
    "i8mm": ("neon",),
    "sve": ("fullfp16",),
    "sve2": ("sve",),
}

_X86_OTHERS: Final = ("bmi2", "cx16", "gfni", "movbe", "popcnt", "vaes", "vpclmulqdq", "aes")
_X86_FEATURES: Final = frozenset(
    [*_X86_OTHERS, *_X86_LLVM_NAMES.values(), "sse", "sse2", "ssse3"]
    + [name for name in _IMPLIED if name.startswith(("sse", "avx", "amx", "f16c", "fma"))]
)
_ARM_FEATURES: Final = frozenset([*_ARM_LLVM_NAMES.values(), "bf16", "i8mm", "sve", "sve2", "aes"])

KNOWN_FEATURES: Final[Mapping[str, frozenset[str]]] = {
    "x86-64": _X86_FEATURES,
    "aarch64": _ARM_FEATURES,
    "riscv64": frozenset(["v", "zfh", "zvfh", "c"]),
    "generic": frozenset(),
}
"""The features that a target of each architecture may name; others are mistakes or of no use."""

LOSSY_FEATURES: Final = frozenset({"avx512bf16", "avxneconvert"})
"""Features whose float32-to-bfloat16 conversion turns denormals into zero (Intel SDM,
VCVTNEPS2BF16). LLVM would use it for every `fptrunc`, so code is generated without them; a kernel
that wants their dot products asks for them in a function attribute."""

_MASKED: Final = (
    (("avx",), (4, 8)),  # VMASKMOV
    (("avx512bw", "avx512vl"), (1, 2, 4, 8)),
    (("v",), (1, 2, 4, 8)),
)
"""Features that bring loads with a gate for each lane, and the bytes of elements it works for."""

_LEAST_FEATURES: Final = {"x86-64": ("sse2",), "aarch64": ("neon",)}
_ARCH_NAMES: Final = {
    "x86_64": "x86-64",
    "amd64": "x86-64",
    "arm64": "aarch64",
    "aarch64": "aarch64",
    "riscv64": "riscv64",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The facts about a machine that change which code is good for it.

    >>> target = Target(arch="x86-64", features=frozenset(["avx2", "fma"]))
    >>> target.vector_bytes, target.num_vector_registers, target.has("avx")
    (32, 16, True)
    """

    arch: str
    """The processor architecture: x86-64, aarch64, riscv64, or generic."""
    features: frozenset[str] = frozenset()
    """Instruction set extensions in LLVM's names, with all that these and arch imply."""
    l1d_bytes: int = 32 * 1024
    """Data cache of one core, first level."""
    l2_bytes: int = 512 * 1024
    """Cache of one core, second level."""
    l3_bytes: int = 8 * 1024 * 1024
    """Cache that cores share, third level; 0 where there is none."""
    line_bytes: int = 64
    """What one cache line holds."""
    cores: int = 1
    """Cores that this process may run on."""
    cpu_name: str = ""
    """A processor model for LLVM to tune for; empty, so that features alone decide."""
    native_ops: frozenset[str] = frozenset()
    """Names of the ops that the renderer can spell; the renderer fills them in."""
    native_dtypes: frozenset[str] = frozenset()
    """Names of the dtypes that the renderer can compute in; the renderer fills them in."""
    matrix_units: frozenset[str] = frozenset()
    """Names of the matrix units that the renderer can spell here (units.py); it fills them in."""
    has_masked_memory: bool = False
    """Whether a load or a store of a vector may be gated lane by lane."""
    has_threads: bool = True
    """Whether a kernel may be split over threads."""
    has_lanes: bool = True
    """Whether a value may be a vector."""
    has_groups: bool = False
    """Whether a kernel is launched as a grid of work-groups."""

    def __post_init__(self) -> None:
        least = _LEAST_FEATURES.get(self.arch, ())
        object.__setattr__(self, "features", with_implied([*self.features, *least]))

    def has(self, *features: str) -> bool:
        """Tell whether the machine has all of *features*."""
        return self.features.issuperset(features)

    def with_changes(self, changes: Mapping[str, Any]) -> Target:
        """Give this target with some fields changed.

        >>> Target(arch="generic").with_changes({"cores": 8}).cores
        8
        """
        return dataclasses.replace(self, **changes)

    @property
    def vector_bytes(self) -> int:
        """Size of the widest vector register that a kernel uses."""
        if self.has("avx512f"):
            return 64
        if self.has("avx"):
            return 32
        return 16

    def max_lanes(self, item_bytes: int) -> int:
        """Count the values of *item_bytes* that a vector register holds.

        >>> Target(arch="x86-64", features=frozenset(["avx2"])).max_lanes(4)
        8
        """
        return max(1, self.vector_bytes // item_bytes) if self.has_lanes else 1

    def masks(self, item_bytes: int) -> bool:
        """Tell whether the machine's own loads take a gate for each lane of *item_bytes*.

        >>> avx2 = Target(arch="x86-64", features=frozenset(["avx2"]))
        >>> avx2.masks(4), avx2.masks(1)
        (True, False)
        """
        return any(item_bytes in sizes and self.has(*needed) for needed, sizes in _MASKED)

    def units_of(self, names: Iterable[str]) -> frozenset[str]:
        """Those of the matrix units in *names* whose feature this machine has.

        >>> sorted(Target(arch="x86-64").units_of(MATRIX_UNITS))
        ['pmaddwd_128']
        """
        return frozenset(name for name in names if self.has(MATRIX_UNITS[name].feature))

    @property
    def num_vector_registers(self) -> int:
        """How many vector registers a program can name."""
        if self.arch == "x86-64":
            return 32 if self.has("avx512f") else 16
        return 16 if self.arch == "generic" else 32

    @property
    def llvm_features(self) -> str:
        """The features as LLVM wants to be told them.

        >>> Target(arch="x86-64", features=frozenset(["sse2"])).llvm_features
        '+sse,+sse2'
        """
        return ",".join(f"+{feature}" for feature in sorted(self.features))

    @property
    def code_features(self) -> str:
        """The features that code is generated for: all but those that lose denormals."""
        kept = sorted(self.features - LOSSY_FEATURES)
        return ",".join(f"+{feature}" for feature in kept)

    @property
    def key(self) -> str:
        """A text that is equal exactly for equal targets, for cache keys.

        `parse_target` reads the part before the semicolon, which holds the facts of the machine;
        what the renderer added stands behind it.

        >>> Target(arch="generic", cores=4).key
        'generic::l1d_bytes=32768,l2_bytes=524288,l3_bytes=8388608,line_bytes=64,cores=4'
        """
        sizes = ",".join(f"{name}={getattr(self, name)}" for name in _SIZES)
        name = f":{self.cpu_name}" if self.cpu_name else ""
        return f"{self.arch}:{','.join(sorted(self.features))}:{sizes}{name}{self._renderer_key()}"

    def _renderer_key(self) -> str:
        abilities = [name for name in _ABILITIES if getattr(self, name)]
        if not self.native_ops and not self.native_dtypes and abilities == _USUAL_ABILITIES:
            return f";;;;{','.join(sorted(self.matrix_units))}" if self.matrix_units else ""
        parts = [sorted(self.native_ops), sorted(self.native_dtypes), abilities]
        parts += [sorted(self.matrix_units)] if self.matrix_units else []
        return ";" + ";".join(",".join(part) for part in parts)


_SIZES: Final = tuple(field.name for field in dataclasses.fields(Target) if field.type == "int")
_ABILITIES: Final = tuple(f.name for f in dataclasses.fields(Target) if f.type == "bool")
_USUAL_ABILITIES: Final = ["has_threads", "has_lanes"]


def with_implied(features: Iterable[str]) -> frozenset[str]:
    """Add every feature that *features* imply.

    >>> sorted(with_implied(["sse3"]))
    ['sse', 'sse2', 'sse3']
    """
    found: set[str] = set()
    waiting = list(features)
    while waiting:
        feature = waiting.pop()
        if feature not in found:
            found.add(feature)
            waiting.extend(_IMPLIED.get(feature, ()))
    return frozenset(found)


def host_target() -> Target:
    """Give the target of this process: `PELLUCID_TARGET`, or else the machine that it runs on.

    Its cores are those that `Options.threads` allows, where that is set. The machine is read once.
    Errors: OptionError when the variable cannot be understood.
    """
    return _host_target(os.environ.get("PELLUCID_TARGET", "").strip(), current_options().threads)


@functools.lru_cache(maxsize=32)
def _host_target(asked: str, threads: int) -> Target:
    machine = _machine_target()
    target = parse_target(asked, like=machine) if asked else machine
    return target.with_changes({"cores": threads}) if threads else target


def machine_target() -> Target:
    """Give the facts of this machine itself, whatever `PELLUCID_TARGET` asks for."""
    return _machine_target()


@functools.cache
def _machine_target() -> Target:
    arch = _ARCH_NAMES.get(platform.machine().lower(), "generic")
    text = _read_text(Path("/proc/cpuinfo"))
    caches = Path("/sys/devices/system/cpu/cpu0/cache")
    return read_target(arch, text, read_caches(caches), available_cores())


def read_target(arch: str, cpuinfo: str, caches: Mapping[str, int], cores: int) -> Target:
    """Make a target from the text of /proc/cpuinfo and from sizes of caches.

    >>> read_target("x86-64", "flags : sse2 avx avx2 fma nonsense", {}, 2).vector_bytes
    32
    """
    known = KNOWN_FEATURES.get(arch, frozenset())
    names = _X86_LLVM_NAMES if arch == "x86-64" else _ARM_LLVM_NAMES
    found = {names.get(flag, flag) for flag in _cpuinfo_flags(cpuinfo)} & known
    return Target(arch=arch, features=frozenset(found), cores=cores).with_changes(caches)


def _cpuinfo_flags(cpuinfo: str) -> list[str]:
    """Read the feature words of the first processor ("flags" on x86, "Features" on Arm)."""
    for line in cpuinfo.splitlines():
        label, colon, words = line.partition(":")
        if colon and label.strip() in ("flags", "Features"):
            return words.split()
    return []


def read_caches(folder: Path) -> dict[str, int]:
    """Read sizes of caches from sysfs; what cannot be read is left out."""
    sizes: dict[str, int] = {}
    for index in sorted(folder.glob("index*")):
        level, kind = (_read_text(index / name).strip() for name in ("level", "type"))
        name = {"1": "l1d_bytes", "2": "l2_bytes", "3": "l3_bytes"}.get(level)
        size = _parse_size(_read_text(index / "size").strip())
        if name is not None and kind in ("Data", "Unified") and size > 0:
            sizes[name] = size
            line = _read_text(index / "coherency_line_size").strip()
            if line.isdecimal() and int(line) > 0:
                sizes["line_bytes"] = int(line)
    if "l2_bytes" in sizes:
        sizes.setdefault("l3_bytes", 0)
    return sizes


def _parse_size(text: str) -> int:
    unit = {"K": 1024, "M": 1024**2, "G": 1024**3}.get(text[-1:], 0)
    digits = text[:-1] if unit else text
    return int(digits) * (unit or 1) if digits.isdecimal() else 0


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def available_cores() -> int:
    """Count the cores that this process may run on, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def parse_target(text: str, like: Target | None = None) -> Target:
    """Read a target from *text*: ARCH[:FEATURE,...[:SIZE=NUMBER,...]].

    Sizes that are not given are those of *like* when it has the same architecture.

    Errors: OptionError when the architecture, a feature or a size is unknown.

    >>> parse_target("x86-64:avx2,fma:cores=4").cores
    4
    """
    arch, _, rest = text.partition(";")[0].partition(":")
    features, _, sizes = rest.partition(":")
    if arch not in KNOWN_FEATURES:
        raise OptionError("PELLUCID_TARGET", text, _allowed(KNOWN_FEATURES, "an architecture"))
    base = like if like is not None and like.arch == arch else Target(arch=arch)
    named = frozenset(_parse_features(text, arch, features))
    return base.with_changes({"features": named, **_parse_sizes(text, sizes)})


def _parse_features(text: str, arch: str, features: str) -> list[str]:
    names = [name.strip().removeprefix("+") for name in features.split(",") if name.strip()]
    known = KNOWN_FEATURES[arch]
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"{name} is unknown" + (f"; did you mean {close[0]}?" if close else "")
            allowed = _allowed(known, f"features of {arch}")
            raise OptionError("PELLUCID_TARGET", text, allowed, help=hint)
    return names


def _parse_sizes(text: str, sizes: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in sizes.split(","))):
        name, _, number = part.partition("=")
        if name not in _SIZES or not number.isdecimal():
            allowed = _allowed(_SIZES, "sizes as NAME=NUMBER")
            raise OptionError("PELLUCID_TARGET", text, allowed, help=f"{part} is not one")
        found[name] = int(number)
    return found


def _allowed(names: Iterable[str], what: str) -> str:
    return f"{what}: {', '.join(sorted(names))}"


def may_use(unit: MatrixUnit) -> bool:
    """Tell whether code with a unit may be made: where this machine has tiles, ask for them.

    Code for another machine needs no permission of this one.

    >>> may_use(MATRIX_UNITS["pmaddwd_128"])
    True
    """
    return not unit.is_tile or not _machine_target().has("amx-tile") or request_amx()


_ARCH_PRCTL: Final = 158  # system call number on x86-64 Linux
_ARCH_REQ_XCOMP_PERM: Final = 0x1023
_XFEATURE_XTILEDATA: Final = 18


@functools.cache
def request_amx() -> bool:
    """Ask Linux for the right to use AMX tiles, and tell whether this process now has it.

    Tile registers are 8 KiB of state, so the kernel hands them out on request (once a process, for
    all of its threads). Using a tile without it ends the process by a signal.

    Source: Linux, Documentation/arch/x86/xstate.rst.
    """
    if not sys.platform.startswith("linux") or not _machine_target().has("amx-tile"):
        return False
    system_call = ctypes.CDLL(None, use_errno=True).syscall
    number, request, feature = _ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA
    arguments = (ctypes.c_long(number), ctypes.c_long(request), ctypes.c_long(feature))
    return int(system_call(*arguments)) == 0
