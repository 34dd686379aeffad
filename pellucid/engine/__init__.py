"""From graphs to results: what is stored where, scheduling, compiling, running, replaying.

    memory     BUFFERs and the memory behind them       storage    versions of what tensors name
    compile    every kernel of a schedule, once         run        a compiled schedule, on values
    realize    all of it, for tensors                   replay     a captured schedule, again

Nothing here knows of tensors: it works on graphs and on the storages that they are kept in.
"""
