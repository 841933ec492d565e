import numpy as np
import pytest
import torch

from lrpe.lab.data.dataset import Dataset, Rows
from lrpe.lab.tasks.task import evaluate
from lrpe.lab.tasks.token_prediction import TokenPrediction
from lrpe.models.configuration import LrpeConfig

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
ROWS = [
    {"ids": np.array([0, 1, 2]), "targets": np.array([-100, 3, -100])},
    {"ids": np.array([4, 3, 2, 1, 0]), "targets": np.array([1, -100, 2, 3, 4])},
    {"ids": np.array([5]), "targets": np.array([0])},
]


@pytest.fixture
def task() -> TokenPrediction:
    return TokenPrediction(Dataset("three", {"validation": Rows(ROWS)}, {"vocab_size": 7, "pad_token_id": 6}))


@pytest.fixture
def model(task):
    torch.manual_seed(0)
    return task.model_class(LrpeConfig(**SMALL | task.fields())).eval()


def test_the_loss_is_the_cross_entropy_where_there_is_a_target_and_nowhere_else(task, model):
    nats = 0.0
    for row in ROWS:
        logits = model(input_ids=torch.tensor(row["ids"])[None], use_cache=False).logits[0].detach()
        nats -= sum(float(logits[t].log_softmax(-1)[target]) for t, target in enumerate(row["targets"]) if target >= 0)
    loss = task.loss(model, task.collate(ROWS))
    assert loss.count == 6
    assert loss.total.item() == pytest.approx(nats, rel=1e-5)
    loss.total.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("size", [1, 2, 3])
def test_metrics_count_tokens_and_whole_sequences_in_any_batches(task, size):
    found = evaluate(task, OneAnswer(3), task.batches("validation", size, training=False).epoch(0))
    assert found["accuracy"] == pytest.approx(2 / 6)
    assert found["exact"] == pytest.approx(1 / 3)
    assert found["loss"] == pytest.approx((2 * 0 + 4 * 30) / 6)


class OneAnswer(torch.nn.Module):
    """A model that always gives the same answer, at e^30 times the odds of any other."""

    def __init__(self, answer: int):
        super().__init__()
        self.answer = answer

    def forward(self, input_ids, use_cache):
        logits = torch.zeros(*input_ids.shape, 7)
        logits[..., self.answer] = 30
        return type("Output", (), {"logits": logits})
