"""Inputs of the trunk: embeddings, absolute positions, padding masks, packed sequences, parts of a row."""

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import pad

from lrpe.attention.tokens import last_real
from lrpe.encodings.absolute import LearnedPositions, SinusoidalPositions
from lrpe.errors import LrpeError, require
from lrpe.models.configuration import LrpeConfig
from lrpe.parallel import active_group, read_part, refuse
from lrpe.positions import grid, sequence


class TokenPositions(nn.Module):
    """Absolute positions in a sequence, added to its embeddings.

    Sinusoids have a magnitude of about 1, and initial embeddings a far smaller one. Embeddings are therefore multiplied
    by √width first (Vaswani et al., 2017); otherwise the positions would outweigh the tokens.
    """

    def __init__(self, config: LrpeConfig):
        super().__init__()
        if config.absolute_positions == "learned":
            self.table = LearnedPositions(config.max_position_embeddings, config.hidden_size)
        else:
            self.table = SinusoidalPositions(config.hidden_size)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """(batch, n, width) and (batch or 1, n) integers -> (batch, n, width)."""
        if isinstance(self.table, LearnedPositions):
            return x + self.table(positions)
        return x * math.sqrt(x.shape[-1]) + self.table(positions, x.dtype)


class PatchEmbedding(nn.Module):
    """Patches of an image as tokens, row by row; with "first" pooling a class token precedes them.

    An image may have any size that is a whole number of patches. Learned absolute positions are for ``image_size`` and
    are interpolated for other sizes.
    """

    def __init__(self, config: LrpeConfig):
        super().__init__()
        assert config.image_size is not None
        self.patch, self.channels, self.layout = config.patch_size, config.num_channels, config.position_layout
        self.side, width = config.image_size // config.patch_size, config.hidden_size
        self.projection = nn.Linear(config.num_channels * config.patch_size**2, width)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width)) if config.pooling == "first" else None
        self.kind = config.absolute_positions
        self.learned = LearnedPositions(self.side**2, width) if self.kind == "learned" else None
        self.sines = SinusoidalPositions(width // 2) if self.kind == "sinusoidal" else None

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, channels, height, width) -> tokens (batch, n, hidden_size) and their positions."""
        require(
            pixels.ndim == 4 and pixels.shape[1] == self.channels,
            lambda: f"pixel_values must be (batch, {self.channels}, height, width); got {tuple(pixels.shape)}.",
        )
        rows, columns = pixels.shape[2] // self.patch, pixels.shape[3] // self.patch
        require(
            (rows * self.patch, columns * self.patch) == tuple(pixels.shape[2:]) and rows * columns > 0,
            lambda: (
                f"The height and width of pixel_values must be multiples of patch_size={self.patch}; got "
                f"{tuple(pixels.shape[2:])}."
            ),
        )
        patches = pixels.unflatten(3, (columns, self.patch)).unflatten(2, (rows, self.patch))
        patches = patches.to(self.projection.weight.dtype)
        x = self.projection(patches.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2))
        x = x + self.absolute(rows, columns, x) if self.kind is not None else x
        positions = place_patches(rows, columns, self.layout, x.device)
        if self.class_token is None:
            return x, positions
        first = torch.zeros_like(positions[:1])
        return torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], 1), torch.cat([first, positions + 1])

    def absolute(self, rows: int, columns: int, x: Tensor) -> Tensor:
        """Return the absolute positions of the patches, (1, n, width)."""
        if self.sines is not None:
            row, column = grid(rows, columns, device=x.device).unbind(-1)
            return torch.cat([self.sines(row, x.dtype), self.sines(column, x.dtype)], -1)
        assert self.learned is not None
        table = self.learned.embedding.weight.T.unflatten(1, (self.side, self.side))[None]
        if (rows, columns) != (self.side, self.side):
            table = F.interpolate(table.float(), (rows, columns), mode="bicubic", antialias=True).to(x.dtype)
        return table.flatten(2).mT


def place_patches(rows: int, columns: int, layout: str, device: torch.device) -> Tensor:
    """Return the positions of the patches: (n,), or (n, 2) on a grid."""
    if layout == "sequence":
        return sequence(rows * columns, device=device)
    cells = grid(rows, columns, device=device)
    return cells if layout == "grid" else cells.sum(-1)


def of_new_tokens(mask: Tensor | None, n: int, seen: int) -> Tensor | None:
    """Return the mask of the last n tokens, (batch, n), or None if all are real; ``mask`` may cover earlier tokens."""
    if mask is None:
        return None
    require(
        mask.ndim == 2 and mask.shape[1] in (n, seen + n),
        lambda: (
            f"attention_mask must be (batch, n) with n={n}{f' or {seen + n} (cached tokens too)' if seen else ''}; "
            f"got {tuple(mask.shape)}."
        ),
    )
    new = mask[:, mask.shape[1] - n :]
    if torch.compiler.is_compiling():  # the checks below read values, which would break the graph
        return new != 0
    if bool((new > 0).all()):
        return None
    require(
        not bool((new < 0).any()),
        "attention_mask must be 1 for real tokens and 0 for padding; got negative values, as if to be added to scores.",
    )
    return new != 0


def packed_by(positions: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """Return sequence numbers (batch or 1, n) from positions that restart at each sequence, or None if they never do.

    A real token begins a sequence if its position is not above that of the previous real token. Unlike in transformers
    a gap begins none: positions may be stretched for longer texts.
    """
    if positions is None or positions.ndim > 2 or positions.shape[-1] == 0:
        return None
    places = positions if positions.ndim == 2 else positions[None]
    if mask is None:
        starts = pad(places.diff(dim=-1) <= 0, (1, 0))
    else:
        before = pad(last_real(places, mask)[:, :-1], (1, 0))
        starts = mask & (mask.long().cumsum(-1) > 1) & (places <= before)  # the first real token has no predecessor
    if not torch.compiler.is_compiling() and not bool(starts.any()):
        return None
    return starts.long().cumsum(-1)


def check_kwargs(kwargs: dict[str, Any]) -> None:
    """Refuse options that these models do not support; ignore others, which transformers passes to every model."""
    require(
        not kwargs.get("output_attentions"),
        "Linear attention never forms its weights, so it cannot return them. Pass output_attentions=False.",
    )
    types = kwargs.get("token_type_ids")
    if types is not None and not torch.compiler.is_compiling() and bool((types != 0).any()):
        raise LrpeError("token_type_ids must be 0: these models have no token types. Pass return_token_type_ids=False.")


def embed_tokens(embedding: nn.Embedding, ids: Tensor) -> Tensor:
    """(batch, n) -> (batch, n, width); the error names the ids and their limit, which torch's does not."""
    try:
        return embedding(ids)
    except IndexError:
        low, high = int(ids.min()), int(ids.max())
        raise LrpeError(
            f"input_ids must be at least 0 and below vocab_size={embedding.num_embeddings}; got {low} to {high}."
        ) from None


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


def check_labels(
    labels: Tensor | None, targets: Tensor | None = None, options: Mapping[str, Any] | None = None
) -> None:
    """Refuse labels beside targets, and in a context: the model shifts them, and the next token is in another part.

    ``options`` are those of a loss of labels; what would change the loss of targets is refused.
    """
    require(labels is None or targets is None, "labels and targets exclude each other: targets are shifted already.")
    ignored = (options or {}).get("ignore_index", -100)
    require(
        targets is None or ignored == -100,
        f"ignore_index must be -100 with targets; got ignore_index={ignored}. Give targets that do not count -100.",
    )
    if labels is not None and active_group() is not None:
        raise LrpeError(
            "labels must be None inside lrpe.parallel.context: the label of a part's last token is in the next part. "
            "Shift the labels of the whole row, cut them by lrpe.parallel.own_part, pass them as targets, and divide "
            "the sum of the losses by the number of targets in all parts."
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
