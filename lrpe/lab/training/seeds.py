"""What is random in a run: all of an update comes from a seed of its own, so that there is nothing to save."""

import numpy as np
import torch

from lrpe.lab.training.processes import rank


def draw_seeds(seed: int, updates: int) -> np.ndarray:
    """One an update, for this process alone."""
    return np.random.SeedSequence((seed, rank())).generate_state(updates, np.uint64) >> np.uint64(1)


def set_seed(seed: int, device: torch.device) -> None:
    """As torch.manual_seed, which takes longer: it also looks for devices that are not there."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
