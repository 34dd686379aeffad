"""A forked child computes, whoever held the engine's lock when it was forked."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, threading
import numpy as np
from pellucid import Tensor, jit
from pellucid.engine.run import engine_lock

x = Tensor(np.arange(4, dtype=np.float32)).realize()
step = jit(lambda x: x * 2 + 1)
for _ in range(3):
    step(x)

def in_a_child():
    child = os.fork()
    if child == 0:
        right = step(x).tolist() == [1, 3, 5, 7] and (x + 1).sum().item() == 10
        os._exit(0 if right else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def while_another_thread_works():
    held, forking = threading.Event(), threading.Event()
    def work():
        with engine_lock:
            held.set()
            forking.wait(0.5)
    thread = threading.Thread(target=work)
    thread.start()
    held.wait()
    code = in_a_child()
    thread.join()
    return code

def inside_of_a_function_that_is_jitted():
    codes = []
    jit(lambda x: codes.append(in_a_child()))(x)
    return codes[0]

print(in_a_child(), WHEN())
print(step(x).tolist())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
@pytest.mark.parametrize(
    "when", ["while_another_thread_works", "inside_of_a_function_that_is_jitted"]
)
def test_a_child_computes(when: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("WHEN", when)],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stdout == "0 0\n[1.0, 3.0, 5.0, 7.0]\n"
