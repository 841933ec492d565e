import pytest
import torch

from lrpe.errors import LrpeError
from lrpe.lab.benchmarks.agreement import check_agreement, difference


def test_sides_that_agree_are_measured():
    x = torch.randn(3, 4)
    agreement = check_agreement(("a", "b"), (lambda x: 2 * x, lambda x: x + x), x, 1e-6, "features")
    assert agreement.outputs == agreement.gradients == 0.0


@pytest.mark.parametrize(
    "wrong",
    [lambda x: 2.001 * x, lambda x: x + x.detach(), lambda x: (2 * x)[:2], lambda x: 2 * x * float("nan")],
    ids=["outputs", "gradients", "shape", "nan"],
)
def test_sides_that_disagree_are_refused_by_name(wrong):
    with pytest.raises(LrpeError, match="ours and theirs differ"):
        check_agreement(("ours", "theirs"), (lambda x: 2 * x, wrong), torch.randn(3, 4), 1e-6, "features")


def test_a_difference_is_relative_to_the_largest_entry():
    assert difference(torch.tensor([101.0, 1.0]), torch.tensor([100.0, 1.0])) == pytest.approx(0.01)
    assert difference(torch.zeros(2), torch.zeros(2)) == 0.0
