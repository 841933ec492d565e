"""What a caller says of its tokens, checked and brought into the form that blocks take."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from lrpe.attention.tokens import last_real
from lrpe.errors import LrpeError, require


def of_new_tokens(mask: Tensor | None, n: int, seen: int) -> Tensor | None:
    """The mask of the last n tokens, (batch, n), of a mask that may speak of those before too; None if all are real."""
    if mask is None:
        return None
    require(
        mask.ndim == 2 and mask.shape[1] in (n, seen + n),
        lambda: (
            f"attention_mask is (batch, n), of {n} tokens{f' or of all {seen + n}' if seen else ''}; got "
            f"{tuple(mask.shape)}."
        ),
    )
    new = mask[:, mask.shape[1] - n :]
    if torch.compiler.is_compiling():
        return new != 0
    if bool((new > 0).all()):
        return None
    require(
        not bool((new < 0).any()), "attention_mask is 1 for real tokens and 0 for padding; this one is added to scores."
    )
    return new != 0


def packed_by(positions: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """Sequence numbers from positions that start anew where another sequence begins; None if they never do.

    A real token that does not stand after the real token before it begins a sequence, (batch or 1, n). A gap begins
    none, though it does in transformers: positions may be stretched, as they are for longer texts.
    """
    if positions is None or positions.ndim > 2 or positions.shape[-1] == 0:
        return None
    places = positions if positions.ndim == 2 else positions[None]
    if mask is None:
        starts = pad(places.diff(dim=-1) <= 0, (1, 0))
    else:
        before = pad(last_real(places, mask)[:, :-1], (1, 0))
        starts = mask & (mask.long().cumsum(-1) > 1) & (places <= before)  # the first real token follows none
    if not torch.compiler.is_compiling() and not bool(starts.any()):
        return None
    return starts.long().cumsum(-1)


def check_kwargs(kwargs: dict[str, Any]) -> None:
    """What transformers passes along is let through; what a user asks for and cannot have is refused."""
    require(
        not kwargs.get("output_attentions"),
        "Linear attention never forms its weights, so there are none to put out: output_attentions=False.",
    )
    types = kwargs.get("token_type_ids")
    if types is not None and not torch.compiler.is_compiling() and bool((types != 0).any()):
        raise LrpeError("These models have no token types; call the tokenizer with return_token_type_ids=False.")


def embed_tokens(embedding: nn.Embedding, ids: Tensor) -> Tensor:
    """(batch, n) -> (batch, n, width). Torch's own IndexError says neither which ids there are nor which may be."""
    try:
        return embedding(ids)
    except IndexError:
        low, high = int(ids.min()), int(ids.max())
        raise LrpeError(
            f"Token ids are below vocab_size={embedding.num_embeddings} and not negative; got ids from {low} to {high}."
        ) from None
