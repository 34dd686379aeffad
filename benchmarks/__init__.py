"""Measure Pellucid against numpy, PyTorch, JAX and tinygrad: `make bench`.

    work.py         the table of works, with the ratio that each may have
    models.py       what each work computes, written once for all frameworks
    inputs.py       seeded arrays that the works start from
    frameworks/     one small class a framework: load, compute, compile, train
    worker.py       one process a framework; answers requests, one JSON object a line
    client.py       the other end of the pipe: starts workers, asks, stops them
    measure.py      rounds A B C A B C, results compared before they are timed
    report.py       tables, docs page; plot.py draws the picture

A newcomer can try `python -m benchmarks --quick --only matmul`, which takes seconds.
"""
