"""The laboratory: the data, tasks, training and reports behind the paper's tables."""
