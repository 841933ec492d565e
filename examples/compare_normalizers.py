"""Compare normalisers by training a small byte-level language model with each, with fixed and with learned angles.

Two causal layers of linear attention (width 128, 4 heads) learn the source text of Python's standard library; one file
in twenty is kept for validation. Everything but the attention is the same in all rows: the initial weights of a seed,
the order of the data, AdamW, a warm-up of 100 steps and then a constant rate, gradients clipped to a norm of 1. There
are no absolute positions, so beyond causality only the encoding and the decay tell the model about order.

    python examples/compare_normalizers.py                          # every row, 1,000 steps: about an hour on two cores
    python examples/compare_normalizers.py --steps 40 --rows "type2 plain learned" "type2 encoded learned"
    python examples/compare_normalizers.py --save runs.json         # continues where an earlier call stopped

For each row it prints the bits per byte of the validation text at four points, the largest gradient norm before
clipping, and the share of Δ below 1e-6 at the end, most of which are negative.
"""

import argparse
import hashlib
import json
import math
import statistics
import sysconfig
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import lrpe
from lrpe.lab.stamp import describe, stamp

WIDTH, HEADS, DEPTH, LENGTH, BATCH = 128, 4, 2, 256, 8
WARM_UP, CLIP, WEIGHT_DECAY, VALIDATION_ROWS = 100, 1.0, 0.01, 64

Record = dict  # the results of one run, as JSON


def rows() -> dict[str, dict]:
    """Return the attention's arguments for each row."""
    table: dict[str, dict] = {"no encoding, plain": {"encoding": "none"}, "no encoding, plain, decay": {"decay": True}}
    for angles in ("fixed", "learned"):
        type2 = {"encoding": "type2", "learned_angles": angles == "learned"}
        for normalizer in ("encoded", "plain", "output", "output-rms"):
            table[f"type2 {normalizer} {angles}"] = type2 | {"normalizer": normalizer}
        for normalizer in ("plain", "output", "output-rms"):
            table[f"type2 {normalizer} {angles}, decay"] = type2 | {"normalizer": normalizer, "decay": True}
    return table | {"softmax with rope": {"encoding": "rope", "softmax": True}}


def attention(layer: int, encoding="none", learned_angles=False, normalizer="plain", decay=False, softmax=False):
    config = lrpe.configure(encoding, head_dim=WIDTH // HEADS, learned_angles=learned_angles, seed=layer)
    if softmax:
        return lrpe.SoftmaxAttention(WIDTH, HEADS, config)
    spread = lrpe.spread_decay(HEADS) if decay else None
    return lrpe.LinearAttention(WIDTH, HEADS, config, normalizer=normalizer, decay=spread)


class Block(nn.Module):
    def __init__(self, attention: nn.Module):
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))
        self.attention = attention

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before_attention(x))
        return x + self.mlp(self.before_mlp(x))


class LanguageModel(nn.Module):
    def __init__(self, choices: dict):
        super().__init__()
        blocks = [Block(attention(layer, **choices)) for layer in range(DEPTH)]
        self.layers = nn.Sequential(nn.Embedding(256, WIDTH), *blocks, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256))

    def forward(self, window: Tensor) -> Tensor:
        """Return the mean loss in nats of predicting each byte; window is (batch, LENGTH + 1)."""
        return F.cross_entropy(self.layers(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())


@cache
def corpus() -> tuple[Tensor, Tensor]:
    """Return the bytes of the standard library to train on, and those of every 20th file for validation."""
    root = Path(sysconfig.get_paths()["stdlib"])
    names = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py"))
    names = [name for name in names if not {"site-packages", "test", "tests"} & set(name.split("/"))]
    kept = names[::20]
    return read(root, [name for name in names if name not in kept]), read(root, kept)


def read(root: Path, names: list[str]) -> Tensor:
    return torch.frombuffer(bytearray(b"".join((root / name).read_bytes() for name in names)), dtype=torch.uint8)


def windows(text: Tensor, starts: Tensor) -> Tensor:
    return text[starts[:, None] + torch.arange(LENGTH + 1)].long()


@torch.no_grad()
def validate(model: LanguageModel, text: Tensor) -> tuple[float, float]:
    """Return the bits per byte on evenly spaced windows, and the share of encoded Δ below 1e-6, or NaN."""
    deltas: list[Tensor] = []
    listeners = [
        module.register_forward_pre_hook(lambda _, inputs: deltas.append(inputs[1].flatten()))
        for module in model.modules()
        if isinstance(module, lrpe.EncodedDelta)
    ]
    starts = torch.linspace(0, len(text) - LENGTH - 2, VALIDATION_ROWS).long()
    loss = statistics.fmean(float(model(windows(text, some))) for some in starts.split(BATCH))
    for listener in listeners:
        listener.remove()
    below = float((torch.cat(deltas) < 1e-6).double().mean()) if deltas else math.nan
    return loss / math.log(2), below


def run(name: str, rate: float, seed: int, steps: int) -> Record:
    """Train one row and print its score after every quarter."""
    torch.set_num_threads(1)
    training, validation = corpus()
    torch.manual_seed(seed)
    model = LanguageModel(rows()[name])
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]  # biases, norms and α: no weight decay
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=rate)
    order = torch.Generator().manual_seed(seed)
    norms: list[float] = []
    record: Record = {"row": name, "rate": rate, "seed": seed, "steps": steps, "bits": [], "below": [], "failed": None}
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, step / WARM_UP)
        loss = model(windows(training, torch.randint(len(training) - LENGTH - 1, (BATCH,), generator=order)))
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), CLIP)))
        if not (math.isfinite(loss.item()) and math.isfinite(norms[-1])):
            record["failed"] = step
            break
        optimizer.step()
        if step in quarters(steps):
            bits, below = validate(model, validation)
            record["bits"].append(bits)
            record["below"].append(None if math.isnan(below) else below)
            print(f"{name}, rate {rate:g}, seed {seed}, step {step}: {bits:.3f} bits per byte", flush=True)
    finite = [norm for norm in norms if math.isfinite(norm)]
    clipped = statistics.fmean(norm > CLIP for norm in norms)
    return record | {"norm": max(finite, default=math.inf), "clipped": clipped, "stamp": stamp()}


def quarters(steps: int) -> list[int]:
    return sorted({max(1, steps * part // 4) for part in (1, 2, 3, 4)})


def show(records: list[Record]) -> str:
    """Return a Markdown table with the runs of each row together."""
    order = list(rows())
    steps = quarters(records[0]["steps"])
    bits_at = [f"bits at {step}" for step in steps]
    titles = ["row", "rate", "seed", *bits_at, "largest gradient", "clipped", "Δ below", ""]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for r in sorted(records, key=lambda r: (order.index(r["row"]), r["rate"], r["seed"])):
        bits = [f"{value:.3f}" for value in r["bits"]] + ["-"] * (len(steps) - len(r["bits"]))
        below = "" if not r["below"] or r["below"][-1] is None else f"{r['below'][-1]:.1%}"
        failed = f"not finite at step {r['failed']}" if r["failed"] else ""
        cells = [r["row"], f"{r['rate']:g}", str(r["seed"]), *bits, f"{r['norm']:.3g}", f"{r['clipped']:.0%}"]
        lines.append("| " + " | ".join([*cells, below, failed]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=list(rows()), choices=list(rows()), metavar="ROW")
    parser.add_argument("--rates", nargs="+", type=float, default=[1e-3])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=2, help="number of runs at a time, with one torch thread each")
    parser.add_argument("--save", type=Path, help="JSON file of the runs; runs that it already holds are skipped")
    args = parser.parse_args()
    torch.set_num_threads(1)
    records: list[Record] = json.loads(args.save.read_text()) if args.save and args.save.exists() else []
    done = {(r["row"], r["rate"], r["seed"], r["steps"]) for r in records}
    asked = [(row, rate, seed, args.steps) for seed in args.seeds for rate in args.rates for row in args.rows]
    print(describe(stamp()))
    for text, what in zip(corpus(), ("training", "validation"), strict=True):
        print(f"{what}: {len(text):,} bytes, sha256 {hashlib.sha256(text.numpy().tobytes()).hexdigest()[:12]}")
    for record in run_all([one for one in asked if one not in done], args.processes):
        records.append(record)
        if args.save:
            args.save.write_text(json.dumps(records, indent=1))
    print(show([r for r in records if r["steps"] == args.steps]))


def run_all(asked: list[tuple], processes: int):
    if processes == 1 or len(asked) < 2:
        yield from (run(*one) for one in asked)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(run, *one) for one in asked]):
            yield done.result()


if __name__ == "__main__":
    main()
