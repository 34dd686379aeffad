"""Choose a loop structure for a kernel, never a meaning: actions, and who picks them."""
