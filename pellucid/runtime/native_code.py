"""The text of the few functions that have to be native: a pool of threads, and the tape player.

    source_for("x86-64")  ->  LLVM IR with @play (for ctypes), @call and @call_on (for Python), and
                              pool controls

**Tape.** A list of kernel calls as words of 8 bytes, made by `tape.py`:

    word 0   number of entries               word 1   1: let go of Python's lock meanwhile
    then for each entry, from byte 64 on, 64 bytes:
    +0 function  +8 buffers  +16 vars  +24 number of threads  +32 scratch  +40 bytes of scratch each

**Tape with addresses.** `@call_on` takes Python integers, writes each where it belongs, and plays:

    word 0   the tape     word 1   number of arguments     word 2   number of places
    then for each place, from byte 24 on, 16 bytes: number of the argument, address of the place

For a tape that keeps Python's lock, writing and playing are one step that no other thread comes
between. It steps aside while another thread plays a tape that let go of the lock, as that may be
writing what this one reads: the answer is then False, and nothing was done.

**Pool.** One word holds the number of the launch (upper half) and the next part that nobody has
claimed (lower half), so that one compare-and-swap claims a part of one launch and of no other: a
thread that wakes up late finds nothing left and goes back to sleep. The caller claims parts like
the workers, so a kernel never waits for a core that is busy elsewhere. Whoever waits spins for a
moment and then sleeps on a futex. Who spins gives way to others on its core every other
microsecond: where cores are busy, a worker is woken on that of the caller, and would keep it from
its work. Words that different threads write lie in cache lines of their own.

    caller    close the last launch;  entry, pending = n;  launch += 1, part = 0;  wake sleepers;
              claim parts;  wait for pending = 0
    worker    wait for another launch;  claim parts;  pending -= 1 after each;  the last one wakes

Workers are started when a kernel first needs them, with all signals blocked, never touch Python,
and end when `@pool_stop` asks them to. A launch while another one runs (from another thread) runs
its parts itself, one after the other.

Source: futexes after U. Drepper, "Futexes Are Tricky", 2011, section 2; method of the launch word
our own.
"""

from __future__ import annotations

from typing import Final

MAX_WORKERS: Final = 255

_FUTEX_NUMBER: Final = {"x86-64": 202, "aarch64": 98}
_PAUSE: Final = {
    "x86-64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}

_YIELD_TURN: Final = 63
"""After so many pauses (1 or 2 us), and once more, whoever waits lets others have the core."""
_FUTEX_WAIT: Final = 128  # FUTEX_WAIT | FUTEX_PRIVATE_FLAG
_FUTEX_WAKE: Final = 129
_SIG_BLOCK, _SIG_SETMASK = 0, 2  # linux, on both processors


def source_for(arch: str) -> str | None:
    """Return the text for a processor, or None for one without it.

    >>> source_for("vax") is None, "@play" in source_for("aarch64")
    (True, True)
    """
    if arch not in _PAUSE:
        return None
    declaration, pause = _PAUSE[arch]
    text = _POOL + _TAPE
    for name, value in {
        "PAUSE": pause,
        "FUTEX": str(_FUTEX_NUMBER[arch]),
        "WAIT": str(_FUTEX_WAIT),
        "WAKE": str(_FUTEX_WAKE),
        "MOST": str(MAX_WORKERS),
        "TURN": str(_YIELD_TURN),
        "SIG_BLOCK": str(_SIG_BLOCK),
        "SIG_SETMASK": str(_SIG_SETMASK),
    }.items():
        text = text.replace(f"${name}$", value)
    return f"{declaration}\n{text}"


_POOL: Final = """
declare i64 @syscall(i64, ...)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sched_yield()
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

@work = internal global i64 0, align 64
@pending = internal global i32 0, align 64
@entry = internal global ptr null, align 64
@parts = internal global i32 0, align 64
@spins = internal global i32 500, align 64
@stopping = internal global i32 0, align 64
@sleepers = internal global i32 0, align 64
@caller_sleeps = internal global i32 0, align 64
@busy = internal global i32 0, align 64
@workers = internal global i32 0, align 64
@outside = internal global i32 0, align 64
@handles = internal global [256 x i64] zeroinitializer, align 64

define internal i64 @futex(ptr %word, i32 %what, i32 %value) nounwind {
  %r = call i64 (i64, ...) @syscall(
    i64 $FUTEX$, ptr %word, i32 %what, i32 %value, ptr null, ptr null, i32 0)
  ret i64 %r
}

; wait a moment; now and then let another thread have this core
define internal void @pause_or_yield(i32 %k) nounwind {
start:
  $PAUSE$
  %turn = and i32 %k, $TURN$
  %long = icmp eq i32 %turn, $TURN$
  br i1 %long, label %yield, label %done
yield:
  %r = call i32 @sched_yield()
  br label %done
done:
  ret void
}

define internal void @run_part(ptr %entry, i64 %part) nounwind {
  %function = load ptr, ptr %entry, align 8
  %a1 = getelementptr i8, ptr %entry, i64 8
  %buffers = load ptr, ptr %a1, align 8
  %a2 = getelementptr i8, ptr %entry, i64 16
  %vars = load ptr, ptr %a2, align 8
  %a4 = getelementptr i8, ptr %entry, i64 32
  %scratch = load ptr, ptr %a4, align 8
  %a5 = getelementptr i8, ptr %entry, i64 40
  %stride = load i64, ptr %a5, align 8
  %offset = mul i64 %stride, %part
  %mine = getelementptr i8, ptr %scratch, i64 %offset
  call void %function(ptr %buffers, ptr %vars, i64 %part, ptr %mine)
  ret void
}

define internal void @run_all_parts(ptr %entry, i64 %n) nounwind {
start:
  br label %next
next:
  %part = phi i64 [ 0, %start ], [ %after, %next ]
  call void @run_part(ptr %entry, i64 %part)
  %after = add i64 %part, 1
  %more = icmp ult i64 %after, %n
  br i1 %more, label %next, label %done
done:
  ret void
}

; claim and run parts of one launch until none is left
define internal void @run_parts(i32 %launch) nounwind {
start:
  br label %look
look:
  %word = load atomic i64, ptr @work seq_cst, align 8
  %upper = lshr i64 %word, 32
  %now = trunc i64 %upper to i32
  %same = icmp eq i32 %now, %launch
  br i1 %same, label %ask, label %done
ask:
  %entry = load atomic ptr, ptr @entry seq_cst, align 8
  %n = load atomic i32, ptr @parts seq_cst, align 4
  %part = trunc i64 %word to i32
  %left = icmp ult i32 %part, %n
  br i1 %left, label %claim, label %done
claim:
  %claimed = add i64 %word, 1
  %pair = cmpxchg ptr @work, i64 %word, i64 %claimed seq_cst seq_cst, align 8
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %run, label %look
run:
  %index = zext i32 %part to i64
  call void @run_part(ptr %entry, i64 %index)
  %before = atomicrmw sub ptr @pending, i32 1 seq_cst, align 4
  %last = icmp eq i32 %before, 1
  br i1 %last, label %finished, label %look
finished:
  %asleep = load atomic i32, ptr @caller_sleeps seq_cst, align 4
  %wake = icmp ne i32 %asleep, 0
  br i1 %wake, label %signal, label %look
signal:
  %r = call i64 @futex(ptr @pending, i32 $WAKE$, i32 1)
  br label %look
done:
  ret void
}

; a thread of the pool: the argument is the number of the launch before the first one it works for
define internal ptr @worker(ptr %argument) nounwind {
start:
  %wide = ptrtoint ptr %argument to i64
  %first = trunc i64 %wide to i32
  %number = getelementptr i8, ptr @work, i64 4
  br label %wait
wait:
  %seen = phi i32 [ %first, %start ], [ %now, %work ]
  %limit = load atomic i32, ptr @spins monotonic, align 4
  br label %spin
spin:
  %k = phi i32 [ 0, %wait ], [ %k1, %pause ], [ %limit, %sleep ]
  %now = load atomic i32, ptr %number seq_cst, align 4
  %fresh = icmp ne i32 %now, %seen
  br i1 %fresh, label %awake, label %idle
idle:
  %patient = icmp ult i32 %k, %limit
  br i1 %patient, label %pause, label %sleep
pause:
  call void @pause_or_yield(i32 %k)
  %k1 = add i32 %k, 1
  br label %spin
sleep:
  %s1 = atomicrmw add ptr @sleepers, i32 1 seq_cst, align 4
  %r = call i64 @futex(ptr %number, i32 $WAIT$, i32 %seen)
  %s2 = atomicrmw sub ptr @sleepers, i32 1 seq_cst, align 4
  br label %spin
awake:
  %stop = load atomic i32, ptr @stopping seq_cst, align 4
  %leave = icmp ne i32 %stop, 0
  br i1 %leave, label %exit, label %work
work:
  call void @run_parts(i32 %now)
  br label %wait
exit:
  ret ptr null
}

; have at least this many workers, if the system lets us
define internal void @pool_grow(i32 %wanted) nounwind {
start:
  %mask = alloca [128 x i8], align 8
  %old = alloca [128 x i8], align 8
  %capped = icmp ugt i32 %wanted, $MOST$
  %target = select i1 %capped, i32 $MOST$, i32 %wanted
  %have = load i32, ptr @workers, align 4
  %enough = icmp uge i32 %have, %target
  br i1 %enough, label %done, label %block
block:
  call void @llvm.memset.p0.i64(ptr %mask, i8 -1, i64 128, i1 false)
  %b = call i32 @pthread_sigmask(i32 $SIG_BLOCK$, ptr %mask, ptr %old)
  %word = load atomic i64, ptr @work seq_cst, align 8
  %launch = lshr i64 %word, 32
  %argument = inttoptr i64 %launch to ptr
  br label %create
create:
  %count = phi i32 [ %have, %block ], [ %count1, %made ]
  %index = zext i32 %count to i64
  %handle = getelementptr [256 x i64], ptr @handles, i64 0, i64 %index
  %failed = call i32 @pthread_create(ptr %handle, ptr null, ptr @worker, ptr %argument)
  %good = icmp eq i32 %failed, 0
  br i1 %good, label %made, label %restore
made:
  %count1 = add i32 %count, 1
  store i32 %count1, ptr @workers, align 4
  %more = icmp ult i32 %count1, %target
  br i1 %more, label %create, label %restore
restore:
  %m = call i32 @pthread_sigmask(i32 $SIG_SETMASK$, ptr %old, ptr null)
  br label %done
done:
  ret void
}

define internal i32 @next_launch() nounwind {
  %word = load atomic i64, ptr @work seq_cst, align 8
  %upper = lshr i64 %word, 32
  %next = add i64 %upper, 1
  %fresh = shl i64 %next, 32
  store atomic i64 %fresh, ptr @work seq_cst, align 8
  %number = trunc i64 %next to i32
  ret i32 %number
}

define internal void @wake_workers(i32 %count) nounwind {
start:
  %asleep = load atomic i32, ptr @sleepers seq_cst, align 4
  %any = icmp ne i32 %asleep, 0
  br i1 %any, label %wake, label %done
wake:
  %number = getelementptr i8, ptr @work, i64 4
  %r = call i64 @futex(ptr %number, i32 $WAKE$, i32 %count)
  br label %done
done:
  ret void
}

define internal void @wait_for_parts() nounwind {
start:
  %limit = load atomic i32, ptr @spins monotonic, align 4
  br label %spin
spin:
  %k = phi i32 [ 0, %start ], [ %k1, %pause ], [ %limit, %sleep ]
  %left = load atomic i32, ptr @pending seq_cst, align 4
  %done = icmp eq i32 %left, 0
  br i1 %done, label %finish, label %idle
idle:
  %patient = icmp ult i32 %k, %limit
  br i1 %patient, label %pause, label %sleep
pause:
  call void @pause_or_yield(i32 %k)
  %k1 = add i32 %k, 1
  br label %spin
sleep:
  store atomic i32 1, ptr @caller_sleeps seq_cst, align 4
  %r = call i64 @futex(ptr @pending, i32 $WAIT$, i32 %left)
  store atomic i32 0, ptr @caller_sleeps seq_cst, align 4
  br label %spin
finish:
  ret void
}

define internal void @launch(ptr %entry, i64 %wide) nounwind {
start:
  %pair = cmpxchg ptr @busy, i32 0, i32 1 seq_cst seq_cst, align 4
  %mine = extractvalue { i32, i1 } %pair, 1
  br i1 %mine, label %begin, label %alone
alone:
  call void @run_all_parts(ptr %entry, i64 %wide)
  ret void
begin:
  %n = trunc i64 %wide to i32
  %others = sub i32 %n, 1
  call void @pool_grow(i32 %others)
  ; close the last launch: a late thread must not take the new numbers for more parts of it
  %closed = atomicrmw or ptr @work, i64 4294967295 seq_cst, align 8
  store atomic ptr %entry, ptr @entry seq_cst, align 8
  store atomic i32 %n, ptr @parts seq_cst, align 4
  store atomic i32 %n, ptr @pending seq_cst, align 4
  %number = call i32 @next_launch()
  call void @wake_workers(i32 %others)
  call void @run_parts(i32 %number)
  call void @wait_for_parts()
  store atomic i32 0, ptr @busy seq_cst, align 4
  ret void
}

; end all workers and wait for them; a later launch starts new ones
define i32 @pool_stop() nounwind {
start:
  %pair = cmpxchg ptr @busy, i32 0, i32 1 seq_cst seq_cst, align 4
  %mine = extractvalue { i32, i1 } %pair, 1
  br i1 %mine, label %begin, label %refused
refused:
  ret i32 0
begin:
  store atomic i32 0, ptr @parts seq_cst, align 4
  store atomic i32 1, ptr @stopping seq_cst, align 4
  %number = call i32 @next_launch()
  call void @wake_workers(i32 2147483647)
  %count = load i32, ptr @workers, align 4
  br label %check
check:
  %k = phi i32 [ 0, %begin ], [ %k1, %join ]
  %more = icmp ult i32 %k, %count
  br i1 %more, label %join, label %done
join:
  %index = zext i32 %k to i64
  %place = getelementptr [256 x i64], ptr @handles, i64 0, i64 %index
  %handle = load i64, ptr %place, align 8
  %r = call i32 @pthread_join(i64 %handle, ptr null)
  %k1 = add i32 %k, 1
  br label %check
done:
  store i32 0, ptr @workers, align 4
  store atomic i32 0, ptr @stopping seq_cst, align 4
  store atomic i32 0, ptr @busy seq_cst, align 4
  ret i32 1
}

; in a forked child: the workers are gone, whatever they were doing
define void @pool_forget() nounwind {
  store i32 0, ptr @workers, align 4
  store i32 0, ptr @sleepers, align 4
  store i32 0, ptr @caller_sleeps, align 4
  store i32 0, ptr @pending, align 4
  store i32 0, ptr @parts, align 4
  store i32 0, ptr @stopping, align 4
  store i32 0, ptr @outside, align 4
  store atomic i32 0, ptr @busy seq_cst, align 4
  ret void
}

define i32 @pool_size() nounwind {
  %count = load i32, ptr @workers, align 4
  ret i32 %count
}

define void @pool_set_spins(i32 %count) nounwind {
  store atomic i32 %count, ptr @spins seq_cst, align 4
  ret void
}

; so many pauses: how long they take differs between processors by a factor of fifteen
define void @pause_for(i32 %count) nounwind {
start:
  br label %next
next:
  %k = phi i32 [ 0, %start ], [ %k1, %next ]
  $PAUSE$
  %k1 = add i32 %k, 1
  %more = icmp ult i32 %k1, %count
  br i1 %more, label %next, label %done
done:
  ret void
}
"""

_TAPE: Final = """
declare ptr @PyLong_AsVoidPtr(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @Py_IncRef(ptr)
declare i32 @PyErr_BadArgument()
@_Py_NoneStruct = external global i8
@_Py_FalseStruct = external global i8
@_Py_TrueStruct = external global i8

; the kernel of a COPY: buffers[0] = buffers[1], vars[0] bytes
define void @copy_bytes(ptr %buffers, ptr %vars, i64 %thread, ptr %scratch) nounwind {
  %to = load ptr, ptr %buffers, align 8
  %second = getelementptr ptr, ptr %buffers, i64 1
  %from = load ptr, ptr %second, align 8
  %size = load i64, ptr %vars, align 8
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %size, i1 false)
  ret void
}

; run all entries, in order
define void @play(ptr %tape) nounwind {
start:
  %count = load i64, ptr %tape, align 8
  br label %check
check:
  %k = phi i64 [ 0, %start ], [ %k1, %after ]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %next, label %done
next:
  %before = mul i64 %k, 64
  %offset = add i64 %before, 64
  %entry = getelementptr i8, ptr %tape, i64 %offset
  %place = getelementptr i8, ptr %entry, i64 24
  %threads = load i64, ptr %place, align 8
  %single = icmp ule i64 %threads, 1
  br i1 %single, label %here, label %together
here:
  call void @run_part(ptr %entry, i64 0)
  br label %after
together:
  call void @launch(ptr %entry, i64 %threads)
  br label %after
after:
  %k1 = add i64 %k, 1
  br label %check
done:
  ret void
}

; play without Python's lock; the number of threads that do so changes only while they hold it
define internal void @play_outside(ptr %tape) nounwind {
  %before = load i32, ptr @outside, align 4
  %one_more = add i32 %before, 1
  store i32 %one_more, ptr @outside, align 4
  %state = call ptr @PyEval_SaveThread()
  call void @play(ptr %tape)
  call void @PyEval_RestoreThread(ptr %state)
  %now = load i32, ptr @outside, align 4
  %one_less = sub i32 %now, 1
  store i32 %one_less, ptr @outside, align 4
  ret void
}

; a function of Python without arguments, whose self is the address of a tape
define ptr @call(ptr %self, ptr %unused) nounwind {
start:
  %tape = call ptr @PyLong_AsVoidPtr(ptr %self)
  %place = getelementptr i8, ptr %tape, i64 8
  %flag = load i64, ptr %place, align 8
  %let_go = icmp ne i64 %flag, 0
  br i1 %let_go, label %outside, label %inside
outside:
  call void @play_outside(ptr %tape)
  br label %done
inside:
  call void @play(ptr %tape)
  br label %done
done:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
}

; a function of Python of several addresses, whose self is the address of a plan for them
define ptr @call_on(ptr %self, ptr %arguments, i64 %given) nounwind {
start:
  %plan = call ptr @PyLong_AsVoidPtr(ptr %self)
  %p1 = getelementptr i8, ptr %plan, i64 8
  %wanted = load i64, ptr %p1, align 8
  %right = icmp eq i64 %given, %wanted
  br i1 %right, label %look, label %wrong
wrong:
  %w = call i32 @PyErr_BadArgument()
  ret ptr null
look:
  %tape = load ptr, ptr %plan, align 8
  %place = getelementptr i8, ptr %tape, i64 8
  %flag = load i64, ptr %place, align 8
  %let_go = icmp ne i64 %flag, 0
  %others = load i32, ptr @outside, align 4
  %calm = icmp eq i32 %others, 0
  %may = or i1 %let_go, %calm
  br i1 %may, label %write, label %aside
aside:
  call void @Py_IncRef(ptr @_Py_FalseStruct)
  ret ptr @_Py_FalseStruct
write:
  %p2 = getelementptr i8, ptr %plan, i64 16
  %count = load i64, ptr %p2, align 8
  br label %check
check:
  %k = phi i64 [ 0, %write ], [ %k1, %next ]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %next, label %run
next:
  %before = mul i64 %k, 16
  %offset = add i64 %before, 24
  %row = getelementptr i8, ptr %plan, i64 %offset
  %number = load i64, ptr %row, align 8
  %r1 = getelementptr i8, ptr %row, i64 8
  %to = load ptr, ptr %r1, align 8
  %argument = getelementptr ptr, ptr %arguments, i64 %number
  %object = load ptr, ptr %argument, align 8
  %address = call ptr @PyLong_AsVoidPtr(ptr %object)
  store ptr %address, ptr %to, align 8
  %k1 = add i64 %k, 1
  br label %check
run:
  br i1 %let_go, label %without, label %within
without:
  call void @play_outside(ptr %tape)
  br label %done
within:
  call void @play(ptr %tape)
  br label %done
done:
  call void @Py_IncRef(ptr @_Py_TrueStruct)
  ret ptr @_Py_TrueStruct
}
"""
