"""Facts that need no graph: dtypes, options, errors, targets, observers. Standard library only."""
