"""The columns of the table of probes, which is ours: small generated tasks that each need one ability."""

from functools import partial, update_wrapper

from lrpe.lab.experiments.experiment import Data, Experiment
from lrpe.lab.training.settings import Optimization, Training
from lrpe.models.architectures import ALM

_PROBES = {  # how much longer the last split is, or None without one; and the longest sequence of training
    "parity": (4, 129),
    "s3": (4, 129),
    "flip-flop": (None, 512),
    "copying": (4, 128),
    "fixed-offset": (4, 256),
    "indirect-indexing": (None, 42),
    "mqar": (2, 256),
    "duplicate-keys": (2, 80),
    "associative-recall": (2, 96),
}


def probe(task: str, method: str = "type2", setting: str = "fair") -> Experiment:
    """Train a causal model to predict tokens at marked positions of generated sequences; docs/probes.md has the tasks.

    Sizes follow the probes' sources where those say: parity and S3 Selective RoPE, the flip-flop language Liu et al.
    (2023), MQAR Arora et al. (2023), indirect indexing PoPE. Chance is printed below the rows. The checkpoint is the
    one with the lowest validation loss at the trained length; longer sequences are only scored.

    Departures:
    - None, since the paper has no such column. Every probe has the same model, 2 layers of width 128, where the
      sources have 1 to 4 layers of width 64 to 512.
    - Training sequences are drawn anew in every epoch, so nothing can be memorised.
    """
    times, length = _PROBES[task]
    data = Data(task, options={} if times is None else {"times": times})
    plan = Optimization(updates=20_000, batch=64, rate=1e-3, warmup=1_000, schedule="cosine", betas=(0.9, 0.98))
    shape = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
    rest = {"initializer_range": 128**-0.5, "hidden_dropout_prob": 0.0, "max_position_embeddings": length}
    return Experiment(
        column=task,
        method=method,
        setting=setting,
        kind="tokens",
        data=data,
        stand_in=data,
        architecture=ALM | shape | rest,
        training=Training(plan, evaluate_every=1_000),
    )


PROBES = {task: update_wrapper(partial(probe, task), probe) for task in _PROBES}
