"""One kernel, from LOOP form to a linear program: one file, one pass, one function of that name."""
