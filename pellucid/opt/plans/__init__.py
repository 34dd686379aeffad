"""The hand-written choice of actions: one plan for each kind of kernel.

`heuristic.py` asks them in turn; `plan.py` is the list of actions that they write down, with the
reason for each; the other modules know products, convolutions, scans and what they share.
"""
