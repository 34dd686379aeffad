"""Kernels written by hand, in LLVM IR and in C, that the tests of the runtime share."""

from __future__ import annotations

import shutil

import pytest

ADD_IR = """
define void @add(ptr %buffers, ptr %vars, i64 %thread, ptr %scratch) {
entry:
  %out = load ptr, ptr %buffers
  %left_slot = getelementptr ptr, ptr %buffers, i64 1
  %left = load ptr, ptr %left_slot
  %right_slot = getelementptr ptr, ptr %buffers, i64 2
  %right = load ptr, ptr %right_slot
  %n = load i64, ptr %vars
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %end
body:
  %left_at = getelementptr float, ptr %left, i64 %i
  %right_at = getelementptr float, ptr %right, i64 %i
  %out_at = getelementptr float, ptr %out, i64 %i
  %a = load float, ptr %left_at
  %b = load float, ptr %right_at
  %sum = fadd float %a, %b
  store float %sum, ptr %out_at
  %next = add i64 %i, 1
  br label %head
end:
  ret void
}
"""

ADD_C = """
#include <stdint.h>
void add(void **buffers, const int64_t *vars, int64_t thread, void *scratch) {
  float *out = buffers[0];
  const float *left = buffers[1], *right = buffers[2];
  for (int64_t i = 0; i < vars[0]; i++) out[i] = left[i] + right[i];
}
"""

PARTS_C = """
#include <stdint.h>
void parts(void **buffers, const int64_t *vars, int64_t thread, void *scratch) {
  int64_t *out = buffers[0], *own = scratch;
  for (int i = 0; i < 8; i++) own[i] = thread + vars[0];
  int64_t sum = 0;
  for (int i = 0; i < 8; i++) sum += own[i];
  out[thread] += sum;
}
"""

PARTS_IR = """
define void @parts(ptr %buffers, ptr %vars, i64 %thread, ptr %scratch) {
  %out = load ptr, ptr %buffers
  %base = load i64, ptr %vars
  %value = add i64 %base, %thread
  store i64 %value, ptr %scratch
  %again = load volatile i64, ptr %scratch
  %out_at = getelementptr i64, ptr %out, i64 %thread
  %old = load i64, ptr %out_at
  %times = mul i64 %again, 8
  %new = add i64 %old, %times
  store i64 %new, ptr %out_at
  ret void
}
"""

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")


@pytest.fixture(params=["CPU:LLVM", pytest.param("CPU:C", marks=needs_cc)])
def cpu(request: pytest.FixtureRequest) -> str:
    """Each device that runs code."""
    return str(request.param)


@pytest.fixture
def add_source(cpu: str) -> str:
    """A kernel `add`: PARAM 0 = PARAM 1 + PARAM 2, as many float32 as variable 0 says."""
    return ADD_IR if cpu == "CPU:LLVM" else ADD_C


@pytest.fixture
def parts_source(cpu: str) -> str:
    """A kernel `parts`: out[thread] += 8 * (thread + variable 0), by way of its scratch."""
    return PARTS_IR if cpu == "CPU:LLVM" else PARTS_C


@pytest.fixture
def add_ir() -> str:
    """The kernel `add` in LLVM IR."""
    return ADD_IR


@pytest.fixture
def add_c() -> str:
    """The kernel `add` in C."""
    return ADD_C
