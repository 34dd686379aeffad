"""The first program: three numbers, one kernel, and its source.

Run it with `python examples/first.py`; look inside with `pellucid explain examples/first.py`.
"""

from pellucid import Ops, Tensor, compile_linear, run_linear

x = Tensor([1.0, 2.0, 3.0]).realize()
y = x * 3 + 1
linear = y.schedule_linear()  # what has to run: a list of calls, one for each kernel
compiled = compile_linear(linear)  # the same list, every kernel now a program
for node in compiled.toposort():
    if node.op is Ops.PROGRAM:
        print(next(source.arg for source in node.src if source.op is Ops.SOURCE))
run_linear(compiled)
print(y.tolist())  # [4.0, 7.0, 10.0]
