"""The training loop on torch.distributed, its checkpoints, and the record of a run."""
