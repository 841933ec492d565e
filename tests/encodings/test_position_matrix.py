"""How positions and heads are laid against the axes of x."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from lrpe import Encoding, Grid, Identity, LrpeError, Permutation, encoding, positions
from tests.encodings.compositions import EVERY, RELATIVE, features, make, scores, seeds

every = pytest.mark.parametrize("name", RELATIVE)


def row_by_row(encode, x, s):
    """M_s x with one row at a time: x is (batch, heads, n, d) and s is (batch, n)."""
    encoded = [torch.cat([encode(x[b, :, [i]], s[b, [i]]) for i in range(x.shape[2])], 1) for b in range(x.shape[0])]
    return torch.stack(encoded)


@every
@settings(max_examples=6)
@given(batch=st.integers(1, 4), n=st.integers(1, 4), seed=seeds)
def test_a_row_of_positions_belongs_to_the_batch_and_never_to_the_heads(name, batch, n, seed):
    encode = make(name, 6, heads=3)
    x = features(batch, 3, n, 6, seed=seed)  # batch = heads = 3 among them
    s = torch.randint(-99, 99, (batch, n), generator=torch.Generator().manual_seed(seed))
    assert_close(encode(x, s), row_by_row(encode, x, s))


@pytest.mark.parametrize("name", EVERY)
def test_heads_may_come_after_the_rows_if_the_layout_says_so(name):
    encode, x = make(name, 6, heads=3).eval(), features(2, 5, 3, 6)  # (batch, n, heads, d)
    for s in (torch.arange(5), torch.tensor([[3, -1, 4, 1, 5], [9, 2, 6, 5, 3]])):
        table = encode.table(s, x.dtype)
        for side in (encode.query, encode.key):
            expected = side(x.transpose(1, 2), table).transpose(1, 2)
            assert_close(side(x, table, layout="bnhd"), expected, rtol=0, atol=0)
        if name != "spe":
            assert_close(encode(x, s, layout="bnhd"), encode.query(x, table, layout="bnhd"), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("call", "values"),
    [
        (lambda x: encoding("rope", 6)(x, torch.arange(5)), ["5 positions", "layout='bnhd'"]),
        (lambda x: encoding("rope", 6)(x, table=encoding("rope", 6).table(torch.arange(5))), ["layout='bnhd'"]),
        (lambda x: encoding("rope", 6, heads=3)(x), ["3 heads", "layout='bnhd'"]),
        (lambda x: encoding("rope", 6)(x, layout="bdhn"), ["'bhnd'", "'bnhd'", "got layout='bdhn'"]),
        (lambda x: encoding("rope", 6)(x[0, 0], layout="bnhd"), ["(batch, n, heads, d)", "(3, 6)"]),
    ],
)
def test_rows_and_heads_that_are_swapped_are_refused_where_it_can_be_told(call, values):
    with pytest.raises(LrpeError) as error:
        call(torch.ones(2, 5, 3, 6, dtype=torch.float32))  # (batch, n, heads, d)
    assert all(value in str(error.value) for value in values)


@every
def test_without_positions_they_count_from_zero(name):
    encode, x = make(name, 6), features(2, 3, 5, 6)
    assert_close(encode(x), encode(x, torch.arange(5)), rtol=0, atol=0)


@every
def test_every_rank_of_x_gives_the_same_rows(name):
    encode, x = make(name, 6), features(2, 4, 3, 5, 6)  # rank 5: (batch, more, heads, n, d)
    s = torch.randint(-50, 50, (2, 5), generator=torch.Generator().manual_seed(1))
    encoded = encode(x, s)
    for b in range(2):
        assert_close(encode(x[b, 1], s[b]), encoded[b, 1])  # rank 3 or 4
        assert_close(encode(x[:, 1], s)[b], encoded[b, 1])
    if encode.heads is None:
        assert_close(encode(x[1, 2, 0], s[1]), encoded[1, 2, 0])  # rank 2
        assert_close(encode(x[:, 2, 0], s), encoded[:, 2, 0])  # rank 3 is (batch, n, d)


@every
def test_the_layout_of_x_in_memory_does_not_matter(name):
    for dim in (6, 7):
        encode = make(name, dim, heads=3)
        x = features(2, 5, 3, dim)
        layouts = (x.transpose(1, 2), features(2, 3, 5, 2 * dim)[..., ::2], features(2, 3, 5, dim + 3)[..., 3:])
        for view in (*layouts, features(1, 1, 1, dim).expand(2, 3, 5, dim)):
            assert_close(encode(view), encode(view.clone(memory_format=torch.contiguous_format)), rtol=0, atol=1e-15)


EMPTY = [((3, 0), (0,)), ((2, 3, 0), (0,)), ((2, 3, 0), (2, 0)), ((0, 3, 4), (0, 4))]  # shapes of x and of positions


@pytest.mark.parametrize("name", EVERY)
def test_no_rows_in_no_rows_out(name):
    for dim, (shape, where), gradient in product((1, 2, 3, 6), EMPTY, (False, True)):
        encode, x = make(name, dim), features(*shape, dim).requires_grad_(gradient)
        encoded = encode.query(x, encode.table(torch.zeros(where, dtype=torch.int64), torch.float64))
        assert encoded.shape == (*shape, encode.feature_dim)
        if gradient:
            assert torch.autograd.grad(encoded.sum(), x)[0].shape == x.shape


class LacksAnAxis(Permutation):
    """A Λ of a plug-in whose table has one axis fewer, or another where the heads should be."""

    def __init__(self, dim, wrong):
        super().__init__(dim, seed=0)
        self.wrong = wrong

    def table(self, positions, dtype=torch.float32):
        return self.wrong(super().table(positions, dtype))


@pytest.mark.parametrize(
    ("wrong", "values"),
    [
        (
            lambda table: (table[0][:, 0],),
            ["(batch or 1, heads or 1, n, width)", "(2 or 1, 1, 5, any)", "got (2, 5, 4)"],
        ),
        (lambda table: (table[0].transpose(1, 2),), ["got (2, 5, 1, 4)"]),
        (lambda table: (table[0][:, :, :3],), ["got (2, 1, 3, 4)"]),
        (lambda table: (table[0].expand(2, 3, 5, 4),), ["got (2, 3, 5, 4)"]),
        (lambda table: table[0], ["must return a tuple of tensors", "got Tensor"]),
    ],
)
def test_a_table_without_its_axes_is_refused_where_it_is_made(wrong, values):
    matrix, s = LacksAnAxis(4, wrong), torch.arange(10).reshape(2, 5)
    for use in (
        lambda: Encoding(Identity(4), matrix)(torch.ones(2, 3, 5, 4), s),
        lambda: Encoding(Identity(4), matrix).table(s),
        lambda: matrix(torch.ones(2, 3, 5, 4), s),
        lambda: Grid(matrix, Permutation(4)).table(torch.stack([s, s], -1)),
    ):
        with pytest.raises(LrpeError) as error:
            use()
        assert all(value in str(error.value) for value in ["LacksAnAxis.table(positions)", *values])


@pytest.mark.parametrize("name", ["type1", "type2", "type3", "per", "fourier*orthogonal"])
@pytest.mark.parametrize("lead", [(), (2,), (2, 2)])
def test_query_head_h_uses_key_head_h_over_group(name, lead):
    encode = make(name, 6, heads=3).double()
    with torch.no_grad():
        for log_alpha in encode.matrix.parameters():
            log_alpha += torch.tensor([[1.0], [2.0], [3.0]]).log()  # heads that differ
    queries, group = features(*lead, 12, 5, 6), 4
    encoded = encode(queries)
    for h in range(12):
        alone = features(*lead, 3, 5, 6)
        alone[..., h // group, :, :] = queries[..., h, :, :]
        assert_close(encoded[..., h, :, :], encode(alone)[..., h // group, :, :])


@pytest.mark.parametrize("name", ["type1", "type2", "type3"])
def test_heads_of_their_own_differ(name):
    encode = make(name, 8, heads=2)
    with torch.no_grad():
        for log_alpha in encode.matrix.parameters():
            log_alpha[1] += 0.5
    x = features(1, 4, 8).expand(2, 4, 8)
    first, second = encode(x)
    assert not torch.allclose(first, second)


@every
def test_padding_on_either_side_gives_the_unpadded_rows(name):
    encode, x = make(name, 6), features(3, 4, 6)
    for side in (slice(0, 4), slice(3, 7)):
        mask = torch.zeros(1, 7)
        mask[:, side] = 1
        padded = features(1, 3, 7, 6, seed=1)
        padded[0, :, side] = x
        assert_close(encode(padded, positions.padded(mask))[0, :, side], encode(x))


@every
def test_packed_sequences_give_the_rows_of_each_alone(name):
    encode, a, b = make(name, 6), features(3, 2, 6), features(3, 5, 6, seed=1)
    packed = encode(torch.cat([a, b], 1), positions.packed(torch.tensor([0, 2, 7])))
    assert_close(packed, torch.cat([encode(a), encode(b)], 1))


@every
def test_decoding_from_an_offset_continues_the_sequence(name):
    encode, x = make(name, 6), features(2, 3, 9, 6)
    later = encode(x[:, :, 5:], positions.sequence(4, offset=5))
    assert_close(later, encode(x)[:, :, 5:])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_any_integers_are_positions(dtype):
    encode, x = encoding("type2", 6), features(4, 6)
    assert_close(encode(x, torch.arange(4, dtype=dtype)), encode(x), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("s", "values"),
    [
        (torch.arange(5.0), ["torch.float32", "int64"]),
        (torch.ones(5, dtype=torch.bool), ["torch.bool"]),
        (torch.arange(4), ["4 positions", "5 rows", "(2, 3, 5, 8)"]),
        (torch.arange(6), ["6 positions", "5 rows"]),
        (torch.tensor(5), ["(n,)", "()"]),
        (torch.zeros(2, 3, 5, dtype=torch.int64), ["(batch, n)", "(2, 3, 5)"]),
        (torch.zeros(3, 5, dtype=torch.int64), ["3 rows of positions", "(2, 3, 5, 8)"]),  # 3 is heads, not batch
        (torch.zeros(5, dtype=torch.int64, device="meta"), ["meta", "cpu"]),
    ],
)
def test_positions_that_do_not_fit_are_refused(s, values):
    for encode in (encoding("type2", 8), encoding("type3", 8, heads=3)):
        with pytest.raises(LrpeError) as error:
            encode(torch.ones(2, 3, 5, 8), s)
        assert all(value in str(error.value) for value in values)


def test_features_on_another_device_than_the_positions_are_refused():
    with pytest.raises(LrpeError, match="cpu and meta"):
        encoding("rope", 8)(torch.ones(5, 8, device="meta"), torch.arange(5))


@pytest.mark.parametrize(
    ("x", "values"),
    [
        (torch.ones(2, 4, 5, 8), ["3 heads", "(2, 4, 5, 8)"]),
        (torch.ones(5, 8), ["3 heads", "(5, 8)"]),
    ],
)
def test_another_number_of_heads_is_refused(x, values):
    with pytest.raises(LrpeError) as error:
        encoding("type2", 8, heads=3)(x)
    assert all(value in str(error.value) for value in values)


def test_rows_of_positions_for_x_without_a_batch_are_refused():
    for encode, x in ((encoding("type2", 8), torch.ones(5, 8)), (encoding("type2", 8, heads=2), torch.ones(2, 5, 8))):
        with pytest.raises(LrpeError, match="no batch axis"):
            encode(x, torch.zeros(2, 5, dtype=torch.int64))


@every
def test_positions_far_from_zero_score_as_near_ones_do(name):
    encode: Encoding = make(name, 6)
    q, k, far = features(3, 4, 6), features(3, 4, 6, seed=1), 10**9
    s = torch.arange(4)
    assert_close(scores(encode, q, k, s + far, s + far), scores(encode, q, k, s, s), rtol=0, atol=1e-5)
