"""A run that is killed at any instant loses nothing; ``kill_often`` is the longer test."""

import pytest

from tests.lab.training.kill_often import kill_often

pytestmark = pytest.mark.slow


def test_a_run_that_is_killed_three_times_ends_as_if_it_had_not_been(tmp_path):
    assert sum(kill_often(tmp_path, kills=3, save_every=1)) == 3
