"""Language modelling: WikiText-103 and Books, the paper's table 1 and its ablation of P."""

from dataclasses import replace

from lrpe.lab.experiments.experiment import Data, Experiment
from lrpe.lab.training.optimization import Optimization
from lrpe.lab.training.settings import Training
from lrpe.models.architectures import ALM

PLAN = Optimization(
    updates=50_000,
    batch=128,
    rate=5e-4,
    warmup=4_000,
    first_rate=1e-7,
    schedule="inverse-sqrt",
    optimizer="adam",
    betas=(0.9, 0.98),
    eps=1e-8,
    weight_decay=0.01,
    clip=0.0,
)
STDLIB = Data("stdlib", options={"tokenizer": "bytes", "length": 512})


def wikitext103(method: str = "type2", setting: str = "fair") -> Experiment:
    """WikiText-103 by words, 512 tokens of a continuous stream at a time; 6 layers of width 512.

    Source: the paper's table 1 and its appendix, and what its authors' public code adds: warm-up from 1e-7, dropout
    0.1, no clipping, tied embeddings. Cost: 3.3 billion tokens. Expected: 31.71 on the test split (Type 2).

    Departures:
    - The appendix calls the 267,744 entries BPE; they are WikiText-103's words, and so is the perplexity.
    - Each token of a split is scored once, without a context carried on; the paper does not say how it scored.
    - The figures are those of the checkpoint that was best in validation.
    """
    return Experiment(
        column="wikitext103",
        method=method,
        setting=setting,
        kind="language",
        data=Data("wikitext103", options={"tokenizer": "words", "length": 512}),
        stand_in=STDLIB,
        architecture=dict(ALM),
        training=Training(PLAN, micro_batch=16, evaluate_every=2_000, precision="float16"),
        samples=201_000,
    )


def books(method: str = "type2", setting: str = "fair") -> Experiment:
    """Books by 50,265 BPE tokens; all else as WikiText-103. Expected: 8.14 on the test split (Type 2).

    Departures:
    - The paper's Books cannot be had; any folder of books is read, with whole books held out, one in twenty.
    - BPE is learned from the books, since the paper does not say whose 50,265 entries it used.
    """
    base = wikitext103(method, setting)
    data = Data("books", options={"tokenizer": "bpe:50265", "length": 512})
    return replace(base, column="books", data=data, architecture=ALM | {"vocab_size": 50265}, samples=0)


def wikitext2(method: str = "type2", setting: str = "fair") -> Experiment:
    """WikiText-2 by words, a fiftieth of WikiText-103; not in the paper, and small enough for one machine.

    Departures:
    - None to speak of, since the paper has no such column; the model is WikiText-103's.
    """
    base = wikitext103(method, setting)
    return replace(base, column="wikitext2", data=replace(base.data, name="wikitext2"), samples=4_080)


def stdlib(method: str = "type2", setting: str = "fair") -> Experiment:
    """The sources of Python's standard library, byte by byte: the text that every machine has.

    Departures:
    - None to speak of, since the paper has no such column; the model is WikiText-103's.
    """
    return replace(wikitext103(method, setting), column="stdlib", data=STDLIB, samples=20_000)


LANGUAGE = {"wikitext103": wikitext103, "books": books, "wikitext2": wikitext2, "stdlib": stdlib}
