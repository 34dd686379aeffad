"""Keep compiled kernels between runs: files that are named by what made them.

    key "3f9c..." , payload  ->  CACHE_DIR/v1/3f/9c....bin

    | magic, format version | length of key and payload | SHA-256 of both | key | payload |

Whatever is wrong with a file (cut short, written by another version, unreadable, somebody else's)
it counts as absent and is written anew. A file appears whole or not at all: it is written under
another name and then renamed, so writers need no lock, and the last of several wins with the same
contents. A cache that cannot be written is no error either: one note on the standard error stream,
when debugging, and compiling goes on without it.

When the folder grows over its bound, the files that were not used for longest go first.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import struct
import sys
from functools import cache
from pathlib import Path
from typing import Final

from pellucid.core.options import current_options
from pellucid.core.records import dataclass

_MAGIC: Final = b"PELLUCID"
_FORMAT_VERSION: Final = 1
_HEADER = struct.Struct("<8sIIQ32s")
_SUFFIX: Final = ".bin"
_DEFAULT_LIMIT_BYTES: Final = 1 << 30
_LOOK_EVERY_WRITES: Final = 64
_numbers = itertools.count()


@dataclass
class CacheStatistics:
    """What a cache has done in this process."""

    hits: int = 0
    misses: int = 0
    damaged: int = 0
    writes: int = 0
    failed_writes: int = 0
    evicted: int = 0


class DiskCache:
    """Files by key in one folder; an empty folder name means no cache at all.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = DiskCache(folder)
    ...     print(kept.put("00ff", b"payload"), kept.get("00ff"), kept.get("00fe"))
    True b'payload' None
    """

    def __init__(self, folder: str, limit_bytes: int = _DEFAULT_LIMIT_BYTES) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self.statistics = CacheStatistics()
        self._has_complained = False
        self._writes_until_look = 0

    def path(self, key: str) -> Path:
        """Return the file of *key*, whether it exists or not."""
        if len(key) < 4 or not set(key) <= set("0123456789abcdef"):
            raise ValueError(f"a cache key is hexadecimal text, not {key!r}")
        return Path(self.folder) / f"v{_FORMAT_VERSION}" / key[:2] / (key[2:] + _SUFFIX)

    def get(self, key: str) -> bytes | None:
        """Return the payload of *key*, or None when there is none that can be trusted."""
        if not self.folder:
            return None
        path = self.path(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            self.statistics.misses += 1
            return None
        except OSError as error:
            self._complain("read", error)
            self.statistics.misses += 1
            return None
        payload = _unpack(key, content)
        if payload is None:
            self.statistics.damaged += 1
            self.statistics.misses += 1
            return None
        self.statistics.hits += 1
        with contextlib.suppress(OSError):
            os.utime(path)  # used just now: the last to be evicted
        return payload

    def put(self, key: str, payload: bytes) -> bool:
        """Keep *payload* under *key*; return whether that was possible."""
        if not self.folder:
            return False
        try:
            _write_atomically(self.path(key), _pack(key, payload))
        except OSError as error:
            self._complain("written", error)
            self.statistics.failed_writes += 1
            return False
        self.statistics.writes += 1
        self._writes_until_look -= 1
        if self._writes_until_look < 0:
            self._writes_until_look = _LOOK_EVERY_WRITES
            self.evict()
        return True

    def evict(self) -> int:
        """Delete files, least recently used first, if the folder is over its bound.

        Returns how many files went. Afterwards the folder is at three quarters of its bound.
        """
        files = self._files()
        total = sum(size for _, size, _ in files)
        if total <= self.limit_bytes:
            return 0
        num_evicted = 0
        for _, size, path in sorted(files):
            if total <= self.limit_bytes * 3 // 4:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
                num_evicted += 1
            total -= size
        self.statistics.evicted += num_evicted
        return num_evicted

    def _files(self) -> list[tuple[float, int, str]]:
        """Return time of last use, size and name of every file of ours."""
        found = []
        for folder, _, names in os.walk(os.path.join(self.folder, f"v{_FORMAT_VERSION}")):
            for name in names:
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError):
                    status = os.stat(path)
                    found.append((status.st_mtime, status.st_size, path))
        return found

    def _complain(self, what: str, error: OSError) -> None:
        if not self._has_complained and current_options().debug >= 1:
            message = f"pellucid: the compile cache cannot be {what} ({error}); going on without it"
            print(message, file=sys.stderr)  # noqa: T201 - a note, asked for by PELLUCID_DEBUG
        self._has_complained = True


def current_cache() -> DiskCache:
    """Return the cache in the folder of the options in force (`PELLUCID_CACHE_DIR`)."""
    return _cache_in(current_options().cache_dir)


@cache
def _cache_in(folder: str) -> DiskCache:
    return DiskCache(folder)


def content_key(*parts: str | bytes | int) -> str:
    """Return a key for contents made of *parts*; equal parts give equal keys in every process.

    >>> content_key("a", "bc") == content_key("ab", "c")
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(struct.pack("<Q", len(data)))
        digest.update(data)
    return digest.hexdigest()


def _pack(key: str, payload: bytes) -> bytes:
    name = key.encode()
    header = _HEADER.pack(
        _MAGIC, _FORMAT_VERSION, len(name), len(payload), hashlib.sha256(name + payload).digest()
    )
    return header + name + payload


def _unpack(key: str, content: bytes) -> bytes | None:
    """Return the payload, or None when any part of the file is not what it should be."""
    if len(content) < _HEADER.size:
        return None
    magic, version, key_bytes, payload_bytes, digest = _HEADER.unpack_from(content)
    if magic != _MAGIC or version != _FORMAT_VERSION:
        return None
    if len(content) != _HEADER.size + key_bytes + payload_bytes:
        return None
    body = content[_HEADER.size :]
    if body[:key_bytes] != key.encode() or hashlib.sha256(body).digest() != digest:
        return None
    return body[key_bytes:]


def _write_atomically(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".new-{os.getpid()}-{next(_numbers)}")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
        if path.is_dir():  # somebody made a folder of our name: out of the way, if it is empty
            path.rmdir()
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
