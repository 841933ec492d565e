"""Train a small language model with transformers' Trainer, and let it continue a text.

The model is an LrpeForCausalLM: linear attention with relative positions and a decay. It reads bytes, so it needs no
tokenizer, and learns from the sources of Python's standard library, so it needs no download. The saved folder can be
loaded by LrpeForCausalLM.from_pretrained, or by AutoModelForCausalLM after `import lrpe.models`; --resume continues an
interrupted run from its last checkpoint.

    python examples/train_with_trainer.py
    python examples/train_with_trainer.py --steps 2000 --encoding type1 --output runs/bytes
"""

import argparse
import os
import tempfile
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.data import default_data_collator
from transformers.utils import logging

import lrpe
from lrpe.models import LrpeConfig, LrpeForCausalLM


class Windows(Dataset):
    """The sources of the standard library, cut into windows of ``length`` bytes."""

    def __init__(self, length: int, most: int = 2_000_000):
        files = sorted(Path(os.__file__).parent.glob("*.py"))
        text = b"".join(file.read_bytes() for file in files)[:most]
        self.windows = torch.frombuffer(bytearray(text), dtype=torch.uint8).long().unfold(0, length, length)

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.windows[index], "labels": self.windows[index]}


class Progress(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            bits = logs["loss"] / 0.6931
            print(f"step {state.global_step} of {state.max_steps}: {bits:.2f} bits per byte", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--encoding", default="type2")
    parser.add_argument("--output", help="a folder for checkpoints and the model; temporary by default")
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint in the folder")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as temporary:
        train(args, args.output or temporary)


def train(args: argparse.Namespace, output: str) -> None:
    config = LrpeConfig(
        vocab_size=256,
        hidden_size=args.width,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=2 * args.width,
        max_position_embeddings=128,
        encoding=args.encoding,
    )
    model, data = LrpeForCausalLM(config), Windows(length=128)
    print(f"A model of {model.num_parameters():,} parameters, {len(data):,} windows of 128 bytes.")
    settings = TrainingArguments(
        output_dir=output,
        max_steps=args.steps,
        per_device_train_batch_size=16,
        learning_rate=3e-3,
        lr_scheduler_type="cosine",
        warmup_steps=args.steps // 10,
        logging_steps=max(1, args.steps // 10),
        save_steps=max(1, args.steps // 2),
        save_total_limit=1,
        use_cpu=True,
        disable_tqdm=True,
        report_to=[],
        log_level="error",
    )
    # By default Trainer applies weight decay to angles and Householder vectors too.
    optimizer = torch.optim.AdamW(lrpe.parameter_groups(model, lr=settings.learning_rate, weight_decay=0.01))
    trainer = Trainer(
        model,
        settings,
        default_data_collator,
        train_dataset=data,
        callbacks=[Progress()],
        optimizers=(optimizer, None),  # Trainer makes the schedule
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=args.resume)
    trainer.save_model(output)
    print(f"Saved in {output}{'' if args.output else ', a temporary folder'}.")

    loaded = LrpeForCausalLM.from_pretrained(output)
    prompt = "    def __init__(self, "
    ids = torch.tensor([list(prompt.encode())])
    written = loaded.generate(ids, max_new_tokens=80, do_sample=True, top_k=5, pad_token_id=0)[0]
    print(f"After {prompt!r} it writes:")
    print(bytes(written.tolist()).decode(errors="replace"))


if __name__ == "__main__":
    main()
