"""Seeing what the compiler does: explain, bisect, shrink, and the tables that `pellucid` prints.

    running.py   run a user's file as if by `python FILE.py`, with his own traceback
    kernels.py   the facts of one kernel: lines, reason, stages, code, time
    explain.py   print them                    compare.py   run any form on the same inputs
    bisect.py    the first stage that changed a value
    shrink.py    a smaller graph that still fails            tables.py    laws, ops, stages, options

Tools stand above everything: they use public functions and observers, and nothing below knows them.
"""
