"""What can be done to a loop structure: each action is a check with a reason, and a rewrite.

`table.py` lists all of them; `legal.py` has what the checks share; the other modules are the
rewrites, one a file.
"""
