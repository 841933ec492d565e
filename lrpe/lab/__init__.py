"""The laboratory: data, tasks, training and reports that make the paper's tables."""
