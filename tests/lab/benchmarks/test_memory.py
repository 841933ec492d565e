import sys

import pytest
import torch

from lrpe.lab.benchmarks.memory import peak_allocated, peak_resident

pytestmark = pytest.mark.slow

MEGABYTE = 1 << 20


def filled(megabytes):
    return torch.ones(megabytes * MEGABYTE // 4)


def test_what_is_returned_and_what_is_dropped_on_the_way_both_count():
    def run():
        kept = filled(1)
        filled(3)
        return kept

    assert peak_allocated(run) == pytest.approx(4 * MEGABYTE, rel=0.01)


def test_temporaries_one_after_another_count_once():
    assert peak_allocated(lambda: [filled(2).sum() for _ in range(5)]) == pytest.approx(2 * MEGABYTE, rel=0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell")
def test_the_system_sees_what_the_process_held_at_its_peak():
    assert peak_resident(lambda: filled(200).sum()) == pytest.approx(200 * MEGABYTE, rel=0.1)
    assert peak_resident(lambda: None) < 20 * MEGABYTE


def test_other_systems_do_not_tell(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert peak_resident(lambda: None) is None
