"""The weights of a replaced model: whose they are, how they learn, how they are saved."""

import copy
import pickle
from dataclasses import replace

import pytest
import torch

import lrpe
from lrpe.adapt import replace_attention, replace_rotary
from tests.adapt.models import apart, each_model, few, logits, make, text


@pytest.mark.parametrize("swap", [replace_rotary, lambda model, encoding: replace_attention(model, "linear", encoding)])
def test_every_layer_draws_its_own_encoding_from_the_seed(swap):
    named = {key: value for key, value in swap(make("llama"), "type2").state_dict().items() if "basis" in key}
    config = replace(lrpe.configure("type2", 8), seed=1)
    moved = {key: value for key, value in swap(make("llama"), config).state_dict().items() if "basis" in key}
    first, second = named.values()
    assert apart(first, second) > 0.1
    assert torch.equal(next(iter(moved.values())), second)


@each_model
def test_every_weight_of_a_linear_model_learns_and_a_few_steps_lower_the_loss(name):
    model = replace_attention(make(name), "linear", "type2", normalizer="output-rms").train()
    names = [key for key, _ in model.named_parameters()]
    for part in ("q_proj", "k_proj", "v_proj", "o_proj", "alpha"):
        assert sum(f"{part}" in key for key in names) >= 2
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(4):
        loss = model(text(), labels=text()).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    within = {key: value for key, value in model.named_parameters() if ".attention." in key and "proj.weight" in key}
    assert all(value.grad is not None and value.grad.abs().sum() > 0 for value in within.values())
    assert losses[-1] < losses[0]


@few
def test_the_angles_of_a_replaced_rotary_encoding_are_learned_layer_by_layer(name):
    model = replace_rotary(make(name)).train()
    model(text(), labels=text()).loss.backward()
    grads = [value.grad for key, value in model.named_parameters() if key.endswith("alpha")]
    assert len(grads) == 2
    assert all(grad.abs().sum() > 0 for grad in grads)


@pytest.mark.parametrize(
    ("name", "swap"), [("llama", replace_rotary), ("bert", replace_attention)], ids=["llama", "bert"]
)
def test_gradient_checkpointing_changes_no_gradient(name, swap):
    def gradients(checkpointing):
        model = swap(make(name))
        if checkpointing:
            model.gradient_checkpointing_enable()
            model.train()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.eval()
        model(text(), labels=text(), use_cache=False).loss.backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    assert apart(gradients(True), gradients(False)) < 1e-5


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_the_weights_are_those_of_the_model_and_not_copies(name):
    model = make(name)
    own = {id(parameter) for parameter in model.parameters()}
    after = dict(replace_attention(model).named_parameters())
    assert {id(p) for key, p in after.items() if not key.endswith("alpha")} == own


@pytest.mark.parametrize("swap", [replace_rotary, replace_attention])
def test_a_model_in_bfloat16_stays_in_it_and_its_angles_do_not(swap):
    model = swap(make("llama").to(torch.bfloat16), encoding="type2")
    assert logits(model, text()).dtype == torch.bfloat16
    kinds = {key.rpartition(".")[2]: value.dtype for key, value in model.named_parameters()}
    assert kinds["weight"] == torch.bfloat16
    assert kinds["log_alpha"] == torch.float32


@pytest.mark.parametrize(
    "swap", [replace_rotary, replace_attention, lambda model: replace_attention(model, layers=[1], decay=[0.5, 0.9])]
)
def test_a_pickled_model_is_the_model(swap):
    model = swap(make("llama"))
    revived = pickle.loads(pickle.dumps(model))
    assert type(revived) is type(model)
    assert torch.equal(logits(revived, text()), logits(model, text()))
    assert torch.equal(logits(copy.deepcopy(model), text()), logits(model, text()))
    assert revived.config.to_json_string() == model.config.to_json_string()


def test_a_copy_of_a_replaced_model_is_independent_of_it():
    model = replace_rotary(make("llama"))
    twin = copy.deepcopy(model)
    with torch.no_grad():
        model.model.layers[0].self_attn.encoding.matrix.angles.log_alpha += 1
    assert apart(logits(model, text()), logits(twin, text())) > 1e-3
