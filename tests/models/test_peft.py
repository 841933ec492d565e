"""LoRA by peft: adapters alone are trained, saved and merged."""

import peft
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.testing import assert_close

from lrpe.models import LrpeForCausalLM, LrpeForSequenceClassification
from tests.models.tiny import draw_ids, tiny

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj"]
IDS = draw_ids(2, 12)


def adapted(targets=PROJECTIONS, encoding="type2", **changes):
    torch.manual_seed(0)
    config = LoraConfig(r=2, target_modules=targets, task_type="CAUSAL_LM", **changes)
    return get_peft_model(tiny(LrpeForCausalLM, encoding).float(), config)


def train(model, steps: int = 5) -> list[float]:
    optimizer = torch.optim.Adam([weight for weight in model.parameters() if weight.requires_grad], lr=1e-2)
    losses = []
    for _ in range(steps):
        loss = model(input_ids=IDS, labels=IDS).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("encoding", ["type1", "type2", "learned*orthogonal", "spe"])
def test_adapters_of_the_projections_train_and_nothing_else_does(encoding):
    model = adapted(encoding=encoding)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    losses = train(model)
    assert losses[-1] < losses[0]
    moved = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert moved == {name for name in before if ".lora_" in name}
    assert len(moved) == 2 * 4 * 2  # layers, projections, A and B


def test_merged_adapters_are_part_of_the_weights(tmp_path):
    model = adapted().eval()
    train(model)
    expected = model(input_ids=IDS).logits
    merged = model.merge_and_unload()
    assert type(merged) is LrpeForCausalLM
    assert_close(merged(IDS).logits, expected, rtol=1e-4, atol=1e-5)
    merged.save_pretrained(tmp_path)
    assert torch.equal(LrpeForCausalLM.from_pretrained(tmp_path)(IDS).logits, merged(IDS).logits)


def test_saved_adapters_go_onto_the_model_again(tmp_path):
    model = adapted().eval()
    train(model)
    model.save_pretrained(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors", ".md"}
    base = tiny(LrpeForCausalLM).float()
    plain = base(IDS).logits
    loaded = PeftModel.from_pretrained(base, tmp_path).eval()
    assert torch.equal(loaded(input_ids=IDS).logits, model(input_ids=IDS).logits)
    assert not torch.equal(loaded(input_ids=IDS).logits, plain)


def test_an_adapted_model_generates_from_its_cache():
    model = adapted().eval()
    train(model)
    options = {"max_new_tokens": 8, "do_sample": False}
    cached = model.generate(input_ids=IDS, use_cache=True, **options)
    assert cached.shape == (2, 20)
    assert torch.equal(cached, model.generate(input_ids=IDS, use_cache=False, **options))


def test_all_linear_layers_but_the_output_layer_can_be_adapted():
    model = adapted("all-linear")
    adapters = {name.split(".lora_A")[0].rpartition(".")[2] for name in model.state_dict() if ".lora_A" in name}
    assert adapters == {*PROJECTIONS, "gate_proj", "up_proj", "down_proj", "proj"}  # the last is the output gate's
    losses = train(model)
    assert losses[-1] < losses[0]


def test_a_classifier_learns_its_head_in_full():
    torch.manual_seed(0)
    config = LoraConfig(r=2, target_modules=PROJECTIONS, task_type=peft.TaskType.SEQ_CLS)
    model = get_peft_model(tiny(LrpeForSequenceClassification).float(), config)
    model(input_ids=IDS, labels=torch.tensor([0, 1])).loss.backward()
    learning = {name for name, weight in model.named_parameters() if weight.grad is not None}
    heads = {name for name in learning if ".lora_" not in name}
    assert {name.partition("modules_to_save.default.")[2] for name in heads} == {"labels.weight", "labels.bias"}
    assert len(learning) == len(heads) + 2 * 4 * 2
