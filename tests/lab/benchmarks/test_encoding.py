import sys
from dataclasses import replace

import pytest
import torch

from lrpe.errors import LrpeError
from lrpe.lab.benchmarks import encoding, peers
from lrpe.lab.benchmarks.encoding import Case, EncodingResult, measure_case
from lrpe.lab.benchmarks.peers import Peer
from lrpe.lab.benchmarks.process import read_settings
from lrpe.lab.stamp import stamp

CASE = Case((1, 2, 8, 4), 2.2, 2.2)


def with_peers(monkeypatch, *found: Peer) -> None:
    monkeypatch.setattr(encoding, "rotary_peers", lambda n, dim: list(found))


@pytest.mark.parametrize("equal", ["features", "scores"])
def test_a_peer_with_another_answer_is_not_timed(monkeypatch, equal):
    with_peers(monkeypatch, Peer("made up", equal, 1e-5, lambda x: 1.01 * x))
    monkeypatch.setattr(encoding, "interleave", lambda *_: pytest.fail("timed all the same"))
    with pytest.raises(LrpeError, match=r"rope.* and made up differ"):
        measure_case(CASE, rounds=1)


def test_a_peer_that_is_not_installed_is_reported_as_missing(monkeypatch):
    with_peers(monkeypatch, Peer("absent", "features", 1e-5, None))
    result = measure_case(CASE, rounds=1)
    assert result.rows[-4].name == "absent"
    assert result.rows[-4].forward is None
    table = encoding.shape_table(result)
    assert "pip install 'lrpe[bench]'" in table
    (line,) = [line for line in table.splitlines() if line.startswith("absent")]
    assert line.split() == ["absent", "missing", "missing"]


def test_a_busy_machine_is_said_to_be_busy(monkeypatch):
    with_peers(monkeypatch)
    result = replace(measure_case(CASE, rounds=1), processor_share=1.0)
    shares = {0.5: True, 1.0: False}
    for share, busy in shares.items():
        shapes = [result, replace(result, processor_share=share)]
        whole = EncodingResult(True, 1, read_settings(), stamp(), encoding.judged(CASE, result), shapes)
        assert ("busy" in str(whole)) == busy


def test_peers_without_their_packages_are_none(monkeypatch):
    for module in ("transformers.models.llama.modeling_llama", "rotary_embedding_torch"):
        monkeypatch.setitem(sys.modules, module, None)
    found = {peer.name: peer.rotate for peer in peers.rotary_peers(8, 4)}
    assert found["transformers"] is None
    assert found["rotary-embedding-torch"] is None
    assert found["paper's listing"] is not None


def test_the_listing_with_and_without_a_table_agree():
    x = torch.randn(2, 3, 16, 8)
    torch.testing.assert_close(peers.listing(x), peers.listing_with_table(16, 8)(x), rtol=1e-5, atol=1e-5)
