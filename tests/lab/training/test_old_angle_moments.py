"""Adam's moments of α, which earlier versions learned, are continued as those of log α."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from lrpe import Angles, LrpeError
from lrpe.lab.training.checkpoint import load_state, save_state

ALPHA = torch.tensor([1.0, 0.1, -0.01])


def learned() -> tuple[torch.nn.Sequential, torch.optim.Adam]:
    """A model after three updates of its angles."""
    model = torch.nn.Sequential(Angles(ALPHA, learned=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for s in (1, 5, -2):
        model(torch.tensor([[s]])).sin().sum().backward()
        optimizer.step()
    return model, optimizer


@pytest.fixture
def before(tmp_path):
    """A state of α, with a moment of 2 everywhere."""
    save_file({"0.alpha.step": torch.tensor(7.0)} | moments("0.alpha", 2.0), tmp_path / "00001-of-00001.safetensors")
    return tmp_path


def moments(name: str, value: float) -> dict[str, torch.Tensor]:
    return {f"{name}.{key}": torch.full((3,), value) for key in ("exp_avg", "exp_avg_sq")}


def test_the_moments_of_alpha_are_multiplied_by_alpha_as_its_gradient_is(before):
    model, optimizer = learned()
    model.load_state_dict({"0.alpha": ALPHA})
    (remark,) = load_state(before, model, optimizer)
    assert "Adam's moments were converted" in remark
    (state,) = optimizer.state.values()
    assert float(state["step"]) == 7
    assert_close(state["exp_avg"], 2 * ALPHA)
    assert_close(state["exp_avg_sq"], 2 * ALPHA**2)


def test_a_state_of_log_alpha_is_loaded_as_it_is_without_a_remark(tmp_path):
    model, optimizer = learned()
    save_state(tmp_path, model, optimizer)
    other, other_optimizer = learned()
    assert load_state(tmp_path, other, other_optimizer) == []
    (own,), (loaded,) = optimizer.state.values(), other_optimizer.state.values()
    assert_close(loaded, own, rtol=0, atol=0)


def test_a_state_that_lacks_a_moment_of_alpha_is_refused(before):
    file = before / "00001-of-00001.safetensors"
    save_file({name: tensor for name, tensor in load_file(file).items() if not name.endswith("sq")}, file)
    with pytest.raises(LrpeError, match=r"has no 0\.log_alpha\.exp_avg_sq"):
        load_state(before, *learned())
