"""The columns of the paper's tables: one function each, which returns the experiment as the paper ran it."""
