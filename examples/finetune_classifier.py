"""Pretrain a small masked language model, then fine-tune it to distinguish two packages of the standard library.

The model reads bytes of Python's own sources. First, as an LrpeForMaskedLM, it predicts masked bytes. It is saved and
loaded as an LrpeForSequenceClassification: the trunk with its encodings comes from the file, the head is new. Then it
learns which of two packages a window of 128 bytes comes from, and is tested on files that it has not seen. With
--pretrain 0 the fine-tuning starts from random weights.

    python examples/finetune_classifier.py
    python examples/finetune_classifier.py --packages tkinter unittest --pretrain 500
"""

import argparse
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import logging

from lrpe.models import LrpeConfig, LrpeForMaskedLM, LrpeForSequenceClassification

LENGTH, BATCH, MASK = 128, 16, 256
LIBRARY = Path(os.__file__).parent


def read(files: Iterable[Path]) -> Tensor:
    """Return the text of the files, cut into windows."""
    text = b"".join(file.read_bytes() for file in files)[:2_000_000]
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long().unfold(0, LENGTH, LENGTH)


def mask(windows: Tensor) -> dict[str, Tensor]:
    """Mask 15 % of the bytes and make them the labels."""
    hidden = torch.rand(windows.shape) < 0.15
    return {"input_ids": windows.masked_fill(hidden, MASK), "labels": windows.masked_fill(~hidden, -100)}


def train(model: PreTrainedModel, draw, steps: int, rate: float) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps + 1, pct_start=0.1)
    model.train()
    for step in range(1, steps + 1):
        loss = model(**draw()).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % max(1, steps // 5) == 0:
            print(f"  step {step} of {steps}: loss {loss.item():.2f}", flush=True)
    model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pretrain", type=int, default=150, help="steps of predicting masked bytes")
    parser.add_argument("--steps", type=int, default=150, help="steps of classifying windows")
    parser.add_argument("--packages", nargs=2, default=["asyncio", "email"])
    parser.add_argument("--encoding", default="type2")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    logging.set_verbosity_error()
    logging.disable_progress_bar()

    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    config = LrpeConfig(vocab_size=257, max_position_embeddings=LENGTH, encoding=args.encoding, decay=None, **sizes)
    model, windows = LrpeForMaskedLM(config), read(sorted(LIBRARY.glob("*.py")))
    print(f"Predicting masked bytes of {len(windows):,} windows:")
    train(model, lambda: mask(windows[torch.randint(len(windows), (BATCH,))]), args.pretrain, rate=5e-3)

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        labels = dict(enumerate(args.packages))
        classifier, report = LrpeForSequenceClassification.from_pretrained(
            folder, id2label=labels, label2id={name: i for i, name in labels.items()}, output_loading_info=True
        )
    print(f"New weights: {', '.join(sorted(report['missing_keys']))}.")
    print(f"Unused weights: {', '.join(sorted(report['unexpected_keys']))}.")

    files = [sorted((LIBRARY / package).glob("*.py")) for package in args.packages]
    known = [read(some[::2]) for some in files]
    print(f"Learning to distinguish {' and '.join(args.packages)}:")
    train(classifier, lambda: draw(known), args.steps, rate=3e-3)
    print(f"Right on {accuracy(classifier, [read(some[1::2]) for some in files]):.0%} of the windows from other files.")


def draw(windows: list[Tensor]) -> dict[str, Tensor]:
    """Draw the same number of windows from each package."""
    ids = [some[torch.randint(len(some), (BATCH // 2,))] for some in windows]
    return {"input_ids": torch.cat(ids), "labels": torch.arange(2).repeat_interleave(BATCH // 2)}


@torch.no_grad()
def accuracy(model: PreTrainedModel, windows: list[Tensor]) -> float:
    """Return the mean accuracy over the two packages."""
    rates = [
        torch.cat([model(batch).logits.argmax(-1) == label for batch in some.split(64)]).double().mean()
        for label, some in enumerate(windows)
    ]
    return float(sum(rates) / 2)


if __name__ == "__main__":
    main()
