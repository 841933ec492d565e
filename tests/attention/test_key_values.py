"""The state of softmax attention in reserved memory is the state that grows."""

import pytest
import torch

from lrpe import LrpeError, SoftmaxAttention
from lrpe.attention.state import ReservedState
from tests.encodings.compositions import features

WIDTH = 16


def layer(**changes):
    torch.manual_seed(0)
    return SoftmaxAttention(WIDTH, heads=4, encoding="type2", key_heads=2, **changes).double()


@pytest.mark.parametrize("decay", [None, [0.9, 0.99]])
@pytest.mark.parametrize("padded", [False, True])
def test_reserved_memory_gives_the_answers_of_a_state_that_grows(padded, decay):
    attention, x = layer(decay=decay), features(2, 9, WIDTH)
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[0, :2] = not padded
    prompt = {"mask": mask} if padded else {}
    y, grown = attention.prefill(x[:, :5], **prompt)
    z, reserved = attention.prefill(x[:, :5], attention.reserve(2, room=9), **prompt)
    torch.testing.assert_close(y, z)
    for t in range(5, 9):
        y, grown = attention.step(x[:, t], grown)
        z, reserved = attention.step(x[:, t], reserved)
        torch.testing.assert_close(y, z)
        torch.testing.assert_close(grown.position, reserved.position)


def test_a_masked_row_stays_where_it_stands_in_reserved_memory_too():
    """Of three rows one pauses at once, one later; the next real token of each follows its own last one."""
    attention, x = layer(decay=[0.9, 0.99]), features(3, 7, WIDTH)
    _, grown = attention.prefill(x[:, :3])
    _, reserved = attention.prefill(x[:, :3], attention.reserve(3, room=5))
    for t, mask in ((3, [True, False, True]), (4, [True, False, False]), (5, [False, False, False]), (6, [True] * 3)):
        y, grown = attention.step(x[:, t], grown, torch.tensor(mask))
        z, reserved = attention.step(x[:, t], reserved, torch.tensor(mask))
        torch.testing.assert_close(y[mask], z[mask])
        torch.testing.assert_close(reserved.position, grown.position)
    assert grown.position.tolist() == [6, 4, 5]
    alone = attention(torch.cat([x[1:2, :3], x[1:2, 6:]], 1))[:, -1]
    torch.testing.assert_close(z[1:2], alone)


def test_rows_are_selected_with_their_room():
    attention, x = layer(), features(2, 6, WIDTH)
    _, state = attention.prefill(x[:, :4], attention.reserve(2, room=6))
    rows = torch.tensor([1, 1, 0])
    y, _ = attention.step(x[rows, 4], state.select(rows))
    torch.testing.assert_close(y, attention(x)[rows, 4])


def test_a_full_room_grows_and_loses_no_token():
    attention, x = layer(), features(1, 6, WIDTH)
    _, state = attention.prefill(x[:, :4], attention.reserve(1, room=4))
    for t in (4, 5):
        y, state = attention.step(x[:, t], state)
        torch.testing.assert_close(y, attention(x)[:, t])
    assert state.room == 10
    with pytest.raises(LrpeError, match="room=1 for 2 tokens"):
        ReservedState(attention.prefill(x[:, :2])[1], room=1)
