"""Models inside lrpe.parallel.context, where each process holds a part of every row."""

from typing import Any

import torch
from torch import Tensor

from lrpe.errors import LrpeError
from lrpe.models.configuration import LrpeConfig
from lrpe.models.inputs import packed_by
from lrpe.parallel import active_group, read_part, refuse


def check_trunk(config: LrpeConfig, training: bool, pixels: Any, cache: Any, use_cache: bool | None) -> None:
    """Refuse, inside a context, what does not act on every token alike or continues other tokens."""
    if active_group() is None:
        return
    if pixels is not None:
        refuse("An image", "Share the batch of images among the processes instead.")
    if cache is not None or use_cache:
        refuse("A cache, as generate() has one", "Pass use_cache=False and no past_key_values; generate outside of it.")
    if training and config.norm == "batch":
        refuse("norm='batch', whose statistics are over all tokens,", "Use norm='layer' or 'rms', or call eval().")
    if training and config.drop_path_rate > 0:
        refuse("drop_path_rate, which drops whole rows,", "Set drop_path_rate=0, or call eval().")


def refuse_labels(labels: Tensor | None) -> None:
    """Refuse labels inside a context: the next token may be in another part, and the mean is over all parts."""
    if labels is not None and active_group() is not None:
        raise LrpeError(
            "labels must be None inside lrpe.parallel.context: the label of a part's last token is in the next part. "
            "Shift the labels of the whole row, cut them by lrpe.parallel.own_part, and divide the sum of "
            "torch.nn.functional.cross_entropy(logits, labels, reduction='sum') by the number of labels in all parts."
        )


def separate(positions: Tensor | None, mask: Tensor | None, batch: int) -> Tensor | None:
    """Return the packed sequence of each own token from positions that restart in the whole row, as ``packed_by``."""
    group = active_group()
    if group is None or positions is None or positions.ndim > 2:
        return packed_by(positions, mask)
    rows = torch.atleast_2d(positions)
    part = read_part(group, rows.shape[1], rows.device)
    # A process whose tokens are all real has no mask, but must join those of processes that have one.
    real = torch.ones(batch, rows.shape[1], dtype=torch.bool, device=rows.device) if mask is None else mask
    sequences = packed_by(part.join(rows), part.join(real))
    return None if sequences is None else part.cut(sequences)
