"""The paper's architectures by name, from its appendix tables and, where they are silent, from its authors' code.

Each uses the paper's Type 2 row, which normalises the output instead of dividing by Δ. For another row pass
``encoding=`` and ``normalizer=``, such as "none" and "plain" for Base.
"""

from typing import Any

from lrpe.errors import unknown_name
from lrpe.models.configuration import LrpeConfig

_PAPER_ROW = {"encoding": "type2", "normalizer": "output", "decay": None}
_PAPERS_BLOCK: dict[str, Any] = {"output_gate": None, "convolution": None}  # the paper has neither
_UNGATED = {"gated": False, "attention_bias": True, "mlp_bias": True, "norm": "layer"}

ALM = _PAPER_ROW | _UNGATED | {
    "vocab_size": 267744,  # distinct words of WikiText-103
    "hidden_size": 512,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "intermediate_size": 2048,
    "hidden_act": "relu",
    "max_position_embeddings": 512,
    "absolute_positions": "sinusoidal",
    "hidden_dropout_prob": 0.1,
    "initializer_range": 512**-0.5,
    "causal": True,
}  # fmt: skip

ROBERTA_BASE = _PAPER_ROW | _UNGATED | {
    "vocab_size": 50265,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "absolute_positions": "learned",
    "norm_position": "post",
    "embedding_norm": True,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "pooling": "first",
    "classifier_hidden_size": 768,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "causal": False,
}  # fmt: skip

DEIT_SMALL = _PAPER_ROW | _UNGATED | {
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "intermediate_size": 1536,
    "hidden_act": "gelu",
    "image_size": 224,
    "patch_size": 16,
    "position_layout": "grid",
    "absolute_positions": "learned",
    "qkv_bias": False,
    "drop_path_rate": 0.1,
    "num_labels": 1000,
    "causal": False,
}  # fmt: skip


def _arena(
    width: int, layers: int, heads: int, ratio: int, length: int, vocabulary: int, **more: Any
) -> dict[str, Any]:
    """Return the fields of a Long-Range Arena model: pre-norm, with batch norm over the real tokens."""
    return _PAPER_ROW | _UNGATED | {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": ratio * width,
        "hidden_act": "gelu",
        "max_position_embeddings": length,
        "absolute_positions": "sinusoidal",
        "norm": "batch",
        "causal": False,
    } | more  # fmt: skip


_BYTES = {"vocabulary": 257, "pad_token_id": 256}  # 256 bytes and a padding token

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "alm": ALM,
    "roberta-base": ROBERTA_BASE,
    "deit-small": DEIT_SMALL,
    "lra-text": _arena(128, 4, heads=8, ratio=4, length=4096, **_BYTES),
    "lra-listops": _arena(128, 4, heads=8, ratio=4, length=2048, vocabulary=16, pad_token_id=15, num_labels=10),
    "lra-retrieval": _arena(64, 4, heads=4, ratio=4, length=4000, **_BYTES),
    "lra-pathfinder": _arena(32, 4, heads=8, ratio=1, length=1024, vocabulary=256, pooling="last"),
    "lra-image": _arena(100, 12, heads=4, ratio=2, length=1024, vocabulary=256, num_labels=10, hidden_dropout_prob=0.2),
}


def architecture(name: str, **changes: Any) -> LrpeConfig:
    """Return the configuration of a named architecture.

    Args:
        name: one of ``ARCHITECTURES``.
        changes: fields of LrpeConfig that replace those of the architecture.

    Raises:
        LrpeError: if the name is unknown, or the changed fields do not fit together.

    >>> architecture("deit-small", encoding="rope", normalizer="plain").num_hidden_layers
    12
    """
    if name not in ARCHITECTURES:
        raise unknown_name("architecture", name, ARCHITECTURES)
    return LrpeConfig(**_PAPERS_BLOCK | ARCHITECTURES[name] | changes)
