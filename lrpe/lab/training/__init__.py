"""The training loop on torch.distributed, its checkpoints, and the files of a run."""
