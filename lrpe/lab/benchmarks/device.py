"""The device that a benchmark measures: chosen once per process, as the number of threads is."""

from typing import TypeVar

import torch
from torch import Tensor, nn

from lrpe.errors import LrpeError, require

_Placed = TypeVar("_Placed", bound=Tensor | nn.Module)
_chosen = torch.device("cpu")


def use_device(name: str) -> None:
    """Measure on this device from now on: "cpu", "cuda" or "cuda:1".

    Raises:
        LrpeError: there is no such device.
    """
    global _chosen
    check_device(name)
    _chosen = torch.device(name)
    if on_cuda():
        torch.cuda.set_device(_chosen)


def check_device(name: str) -> None:
    """Refuse a device that is not here, or that no benchmark can measure."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = None
    require(
        device is not None and device.type in ("cpu", "cuda"),
        f"device must be cpu, cuda or cuda:N; got device={name!r}.",
    )
    assert device is not None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise LrpeError(f"device={name!r} is not here; torch finds {torch.cuda.device_count()} CUDA devices.")


def on_cuda() -> bool:
    return _chosen.type == "cuda"


def place(x: _Placed) -> _Placed:
    """Move a tensor or a module to the device. Numbers are drawn on the CPU, so that they are the same everywhere."""
    return x.to(_chosen)  # type: ignore[return-value]  # both return their own kind


def describe_device() -> str:
    """Return the device with its name, such as "cuda:0, NVIDIA A100"."""
    return f"cuda:{_chosen.index or 0}, {torch.cuda.get_device_name(_chosen)}" if on_cuda() else "cpu"
