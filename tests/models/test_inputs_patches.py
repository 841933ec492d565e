"""Patches of an image as tokens, and the positions that are added to them."""

import math

import pytest
import torch
from torch.testing import assert_close

from lrpe import LrpeError
from lrpe.models.inputs import PatchEmbedding, TokenPositions, place_patches
from tests.models.tiny import tiny_config

CPU = torch.device("cpu")
IMAGE = {"image_size": 8, "patch_size": 2, "num_channels": 3, "decay": None}


def patches(**changes) -> PatchEmbedding:
    torch.manual_seed(0)
    return PatchEmbedding(tiny_config(**IMAGE | changes)).double()


def sines(position: int, width: int) -> list[float]:
    angles = [position * 10000 ** (-2 * k / width) for k in range(width // 2)]
    return [wave for angle in angles for wave in (math.sin(angle), math.cos(angle))]


def test_a_patch_has_the_sines_of_its_row_and_then_of_its_column():
    embed = patches(absolute_positions="sinusoidal")
    with torch.no_grad():
        embed.projection.weight.zero_()
        embed.projection.bias.zero_()
    x, _ = embed(torch.zeros(1, 3, 4, 6).double())
    expected = [[*sines(row, 16), *sines(column, 16)] for row in range(2) for column in range(3)]
    assert_close(x[0], torch.tensor(expected).double())


def learn_squares(embed: PatchEmbedding, side: int) -> None:
    """Give every feature of the learned table the square of its row, and the last one that of its column."""
    steps = torch.arange(side).double() ** 2
    table = steps[:, None, None].repeat(1, side, 32)
    table[..., -1] = steps
    with torch.no_grad():
        embed.learned.embedding.weight.copy_(table.flatten(0, 1))


def test_learned_positions_are_resized_by_cubics_along_both_axes():
    """Cubics give squares back where all four neighbours are there; straight lines would be off by 0.19."""
    embed = patches(absolute_positions="learned", image_size=16)  # 8 × 8 patches
    learn_squares(embed, 8)
    table = embed.absolute(16, 24, torch.zeros(1, dtype=torch.double)).unflatten(1, (16, 24))[0]
    rows, columns = ((torch.arange(16) + 0.5) / 2 - 0.5).double(), ((torch.arange(24) + 0.5) / 3 - 0.5).double()
    inside = slice(4, 12)
    assert_close(table[inside, 6, 0], rows[inside] ** 2, rtol=0, atol=1e-4)
    assert_close(table[5, 6:18, -1], columns[6:18] ** 2, rtol=0, atol=1e-4)


def test_learned_positions_shrink_by_averages_and_not_by_samples():
    embed = patches(absolute_positions="learned", image_size=16)
    with torch.no_grad():
        embed.learned.embedding.weight.copy_((torch.arange(64) % 2).double()[:, None].expand(64, 32))  # stripes
    table = embed.absolute(4, 4, torch.zeros(1, dtype=torch.double))
    assert_close(table[0].unflatten(0, (4, 4))[1:3, 1:3], torch.full((2, 2, 32), 0.5).double(), rtol=0, atol=0.02)


def test_learned_positions_of_the_usual_size_are_the_table_itself():
    embed = patches(absolute_positions="learned")
    table = embed.absolute(4, 4, torch.zeros(1, dtype=torch.double))
    assert torch.equal(table[0], embed.learned.embedding.weight)


def test_learned_positions_are_resized_if_one_side_alone_differs():
    embed = patches(absolute_positions="learned")
    for rows, columns in ((4, 6), (6, 4)):
        assert embed.absolute(rows, columns, torch.zeros(1, dtype=torch.double)).shape == (1, 24, 32)


def test_a_patch_is_projected_channel_by_channel_and_row_by_row():
    embed, image = patches(), torch.randn(2, 3, 4, 6).double()
    x, positions = embed(image)
    assert x.shape == (2, 6, 32)
    assert positions.tolist() == list(range(6))
    patch = image[1, :, 2:4, 4:6].flatten()  # in the second row and the third column
    assert_close(x[1, 5], embed.projection(patch))


@pytest.mark.parametrize(
    ("layout", "places"),
    [
        ("sequence", [0, 1, 2, 3, 4, 5]),
        ("diagonal", [0, 1, 2, 1, 2, 3]),
        ("grid", [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]),
    ],
)
def test_patches_stand_in_a_sequence_on_diagonals_or_on_a_grid(layout, places):
    assert place_patches(2, 3, layout, CPU).tolist() == places
    embed = patches(pooling="first", position_layout=layout)
    x, positions = embed(torch.randn(2, 3, 4, 6).double())
    assert x.shape == (2, 7, 32)
    assert_close(x[:, 0], embed.class_token[0].expand(2, -1))
    first = torch.zeros_like(torch.tensor(places[:1]))
    assert torch.equal(positions, torch.cat([first, torch.tensor(places) + 1]))  # all one further on


@pytest.mark.parametrize("shape", [(3, 4, 4), (1, 2, 4, 4), (1, 3, 3, 4), (1, 3, 4, 5), (1, 3, 0, 4), (1, 3, 4, 0)])
def test_what_is_not_cut_into_whole_patches_is_refused(shape):
    with pytest.raises(LrpeError):
        patches()(torch.zeros(shape).double())


def test_token_positions_are_added_and_beside_sines_embeddings_are_scaled():
    x, places = torch.randn(2, 3, 32).double(), torch.tensor([[0, 1, 5]])
    sinusoidal = TokenPositions(tiny_config(absolute_positions="sinusoidal"))
    waves = torch.tensor([sines(place, 32) for place in (0, 1, 5)]).double()
    assert_close(sinusoidal(x, places), x * math.sqrt(32) + waves)
    learned = TokenPositions(tiny_config(absolute_positions="learned")).double()
    assert_close(learned(x, places), x + learned.table.embedding.weight[[0, 1, 5]])
