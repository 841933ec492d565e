"""Compute with an installed lrpe, apart from its repository: ``python -I smoke.py ready`` or ``... missing``."""

import sys

import torch

import lrpe


def main(expected: str) -> None:
    """Train a layer for a step by every engine that is here; they must agree, and native must be as expected."""
    status = lrpe.engines.status()
    found = "ready" if status["native"] == "ready" else "missing"
    assert found == expected, f"The native engine should be {expected}; lrpe.engines.status() says {status}."
    torch.manual_seed(0)
    layer, x = lrpe.LinearAttention(64, 4, decay="spread"), torch.randn(2, 100, 64)
    outputs = {name: _step(layer, x, name) for name, said in status.items() if said == "ready"}
    for name, (y, gradient) in outputs.items():
        torch.testing.assert_close(y, outputs["torch"][0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(gradient, outputs["torch"][1], rtol=1e-3, atol=1e-4)
        print(f"{name}: computes a layer forwards and backwards, as torch does.")
    print(f"native: {status['native']}.")


def _step(layer: torch.nn.Module, x: torch.Tensor, engine: str) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.clone().requires_grad_()
    with lrpe.engines.use(engine):
        y = layer(x)
    y.square().sum().backward()
    assert x.grad is not None
    return y.detach(), x.grad


if __name__ == "__main__":
    main(sys.argv[1])
