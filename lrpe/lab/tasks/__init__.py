"""The tasks: batches, loss and metrics for each kind of experiment."""
