"""How ops that no target has are spelled with those that all have; `decompose_ops` applies it.

integers.py     quotients, remainders, shifts, sums and products of bools
floats.py       MAX and MIN with NaN and zeros, casts to integers
threefry.py     the random number block
exponential.py  EXP EXP2 TANH            logarithm.py      LOG LOG2
trigonometry.py SIN COS                  error_function.py ERF
power.py        POW                      building.py       small pieces that all of them use
"""
