"""What a batch, a loss and a metric are for each kind of experiment."""
