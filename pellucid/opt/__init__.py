"""Choose a loop structure for a kernel, never a meaning: actions, and who picks them.

    actions/     what can be done to loops
    plans/       the hand-written choice, a file for each kind of kernel
    searching/   the measured choice
    axes.py      how loops are numbered        cost.py   what a choice of lanes costs

A user's own list takes the place of the heuristic's; `describe_axes` numbers the axes:

    asked = KernelInfo(actions=(Action("lanes", 0, 16), Action("thread", 0)))
    full_rewrite_to_sink(sink.replace(arg=asked), target)
"""
