import math

import pytest
import torch

from lrpe.lab.report.picture import as_svg, look
from lrpe.lab.report.training import angles_of, angles_spec, band, curves_spec
from lrpe.models import LrpeForCausalLM
from tests.models.tiny import tiny


def test_a_band_is_the_mean_and_the_range_of_the_seeds_at_the_updates_that_all_have():
    found = band("Base", [[(1, 2.0), (2, 4.0)], [(1, 4.0), (2, 8.0), (3, 1.0)]])
    assert [(p["update"], p["mean"], p["low"], p["high"]) for p in found] == [(1, 3.0, 2.0, 4.0), (2, 6.0, 4.0, 8.0)]


def test_curves_have_the_colours_of_their_methods_and_a_band_only_for_several_seeds():
    one = curves_spec({"type2": [[(1, 2.0), (2, 1.5)]]}, {"type2": "Type 2"}, "perplexity", log=True)
    two = curves_spec({"type2": [[(1, 2.0)], [(1, 3.0)]]}, {"type2": "Type 2"}, "perplexity")
    assert (len(one["layer"]), len(two["layer"])) == (2, 3)
    svg = as_svg(one)
    assert svg is not None
    assert look("type2").colour.lower() in svg.lower()
    assert "Type 2" in svg


def test_angles_that_were_learned_are_told_from_where_they_started(tmp_path):
    model = tiny(LrpeForCausalLM, "type2", num_hidden_layers=2)
    angles = model.model.layers[1].attention.encoding.matrix.angles
    with torch.no_grad():
        angles.log_alpha.add_(math.log(2.0))
    model.save_pretrained(tmp_path)
    points = angles_of(tmp_path)
    assert {point["layer"] for point in points} == {"layer 0", "layer 1"}
    for point in points:
        assert point["learned"] == pytest.approx(point["start"] * (2 if point["layer"] == "layer 1" else 1))
    assert "<svg" in (as_svg(angles_spec(points)) or "")
