import sys

import pytest
import torch

from lrpe.attention.sums.problem import Problem, naive_sums
from lrpe.lab.benchmarks import peers
from lrpe.lab.benchmarks.peers import causal_peers, softmax_causal, softmax_everywhere, softmax_written_out


@pytest.mark.parametrize("peer", causal_peers(), ids=lambda peer: peer.name)
def test_a_peer_sums_what_we_sum(peer):
    if peer.sum is None:
        pytest.skip(f"{peer.package} is not installed")
    qkv = torch.randn(3, 2, 3, 128, 8)
    expected = naive_sums(Problem(*qkv)).out
    torch.testing.assert_close(peer.sum(*qkv), expected, rtol=1e-4, atol=1e-3)


def test_the_form_of_fla_is_there_without_triton():
    assert peers.fla_chunk_form() is not None
    assert "fla" not in sys.modules


def test_peers_without_their_packages_are_none(monkeypatch):
    for module in ("fla", "fast_transformers.causal_product", "fast_transformers"):
        monkeypatch.setitem(sys.modules, module, None)
    found = {peer.package: peer.sum for peer in causal_peers()}
    assert found == {"fla-core": None, "pytorch-fast-transformers": None}


@pytest.mark.parametrize(("softmax", "causal"), [(softmax_causal, True), (softmax_everywhere, False)])
def test_sdpa_is_softmax_attention(softmax, causal):
    qkv = torch.randn(3, 2, 3, 17, 8)
    torch.testing.assert_close(softmax(*qkv), softmax_written_out(*qkv, causal))
