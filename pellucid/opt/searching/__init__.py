"""Beam search: lists of actions are proposed, estimated, measured, and the best one is kept.

`search.py` is the search; `moves.py` and `retune.py` propose, `estimate.py` ranks, `rounding.py`
bounds the error of sums, `report.py` tells what was tried.
"""
