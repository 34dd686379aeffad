"""The disk cache trusts nothing that it reads, and is never the reason of a failure."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from pellucid.core.options import Context
from pellucid.runtime import Device
from pellucid.runtime.diskcache import DiskCache, content_key, current_cache

KEY = content_key("a kernel")
PAYLOAD = bytes(range(256)) * 8


@pytest.fixture
def kept(tmp_path: Path) -> DiskCache:
    cache = DiskCache(str(tmp_path))
    assert cache.put(KEY, PAYLOAD)
    return cache


def test_what_is_put_comes_back(kept: DiskCache) -> None:
    assert kept.get(KEY) == PAYLOAD
    assert DiskCache(kept.folder).get(KEY) == PAYLOAD
    assert kept.get(content_key("another")) is None
    assert (kept.statistics.hits, kept.statistics.misses, kept.statistics.writes) == (1, 1, 1)


def test_keys_depend_on_contents_only() -> None:
    assert content_key("a", 1, b"x") == content_key("a", 1, b"x")
    keys = [content_key("ab", "c"), content_key("a", "bc"), content_key("abc"), content_key()]
    assert len(set(keys)) == 4


@pytest.mark.parametrize("seed", range(200))
def test_a_flipped_byte_is_a_miss(kept: DiskCache, seed: int) -> None:
    chance = random.Random(seed)
    content = bytearray(kept.path(KEY).read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    kept.path(KEY).write_bytes(content)
    assert kept.get(KEY) is None
    assert kept.statistics.damaged == 1
    assert kept.put(KEY, PAYLOAD)
    assert kept.get(KEY) == PAYLOAD


@pytest.mark.parametrize("length", [0, 1, 20, 56, 57, 100, 2000])
def test_a_file_cut_short_is_a_miss(kept: DiskCache, length: int) -> None:
    content = kept.path(KEY).read_bytes()
    kept.path(KEY).write_bytes(content[:length])
    assert kept.get(KEY) is None
    kept.path(KEY).write_bytes(content + b"!")
    assert kept.get(KEY) is None


def test_a_file_of_another_key_is_a_miss(kept: DiskCache) -> None:
    other = content_key("another")
    kept.path(other).parent.mkdir(parents=True, exist_ok=True)
    kept.path(other).write_bytes(kept.path(KEY).read_bytes())
    assert kept.get(other) is None


def test_an_empty_folder_name_is_no_cache() -> None:
    cache = DiskCache("")
    assert cache.put(KEY, PAYLOAD) is False
    assert cache.get(KEY) is None
    with Context(cache_dir=""):
        assert current_cache().folder == ""


def test_a_cache_that_cannot_be_written_is_not_fatal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = DiskCache(str(tmp_path / "file" / "cache"))
    with Context(debug=1):
        assert cache.put(KEY, PAYLOAD) is False
        assert cache.put(KEY, PAYLOAD) is False
        assert cache.get(KEY) is None
    noted = capsys.readouterr().err
    assert noted.count("\n") == 1
    assert noted.startswith("pellucid: the compile cache cannot be written (")
    assert cache.statistics.failed_writes == 2


def test_without_debugging_nothing_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert DiskCache(str(tmp_path / "file")).put(KEY, PAYLOAD) is False
    assert capsys.readouterr().err == ""


def test_a_folder_in_place_of_a_file_is_a_miss(kept: DiskCache) -> None:
    kept.path(KEY).unlink()
    kept.path(KEY).mkdir()
    assert kept.get(KEY) is None
    assert kept.put(KEY, PAYLOAD)
    assert kept.get(KEY) == PAYLOAD


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_a_miss(kept: DiskCache) -> None:
    kept.path(KEY).chmod(0)
    assert kept.get(KEY) is None


def test_the_longest_unused_go_first(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), limit_bytes=10_000)
    keys = [content_key(number) for number in range(8)]
    for age, key in enumerate(keys):
        cache.put(key, PAYLOAD)
        os.utime(cache.path(key), (1000 + age, 1000 + age))
    assert cache.get(keys[0]) == PAYLOAD  # used just now
    assert cache.evict() == 5
    assert [cache.get(key) is not None for key in keys] == [True] + [False] * 5 + [True] * 2


def test_no_file_is_left_by_a_failed_write(kept: DiskCache) -> None:
    kept.path(KEY).unlink()
    kept.path(KEY).mkdir()
    (kept.path(KEY) / "content").write_text("in the way")
    assert kept.put(KEY, PAYLOAD) is False
    assert [path.name for path in kept.path(KEY).parent.iterdir()] == [kept.path(KEY).name]


WRITER = """
import sys
from pellucid.runtime.diskcache import DiskCache, content_key
cache = DiskCache(sys.argv[1])
for turn in range(60):
    for number in range(5):
        key = content_key(number)
        payload = bytes([number]) * 50_000
        found = cache.get(key)
        assert found is None or found == payload
        assert cache.put(key, payload)
assert cache.statistics.damaged == 0
"""


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [subprocess.Popen(command) for _ in range(4)]
    assert [writer.wait(timeout=60) for writer in writers] == [0] * 4
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 5


def test_a_device_compiles_once(cpu: str, add_source: str) -> None:
    device = Device[cpu]
    first = device.compile(add_source, "add")
    assert device.compile(add_source, "add") == first
    assert current_cache().statistics.hits == 1


HIT = """
import sys
from pellucid.runtime import Device
device = Device[sys.argv[1]]
program = device.load(device.compile(sys.argv[2], "add"), "add")
assert "llvmlite.binding" not in sys.modules
"""


def test_a_hit_needs_no_compiler(cpu: str, add_source: str) -> None:
    Device[cpu].compile(add_source, "add")
    done = subprocess.run([sys.executable, "-c", HIT, cpu, add_source], timeout=60, check=False)
    assert done.returncode == 0


def test_a_damaged_file_is_compiled_again(cpu: str, add_source: str) -> None:
    binary = Device[cpu].compile(add_source, "add")
    path = max(Path(current_cache().folder).rglob("*.bin"), key=lambda path: path.stat().st_size)
    path.write_bytes(path.read_bytes()[:-10])
    assert Device[cpu].compile(add_source, "add") == binary
    assert len(path.read_bytes()) > len(binary)
