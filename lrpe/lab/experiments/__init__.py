"""The paper's experiments: rows are methods, columns are tasks."""
