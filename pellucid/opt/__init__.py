"""Choose a loop structure for a kernel, never a meaning: actions, and who picks them.

A user's own list takes the place of the heuristic's; `describe_axes` numbers the axes:

    asked = KernelInfo(actions=(Action("lanes", 0, 16), Action("thread", 0)))
    full_rewrite_to_sink(sink.replace(arg=asked), target)
"""
