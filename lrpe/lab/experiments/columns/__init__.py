"""The columns of the paper's tables, one function each, that returns the experiment as the paper ran it."""
