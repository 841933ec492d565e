"""A method looks the same in every picture, and unlike every other method."""

import pytest

from lrpe.encodings.config import MATRICES
from lrpe.errors import LrpeError
from lrpe.lab.experiments.methods import METHODS
from lrpe.lab.report.picture import LOOKS, TYPES, look


def test_every_method_has_a_colour_of_its_own():
    assert set(METHODS) <= set(LOOKS)
    assert len({look.colour for look in LOOKS.values()}) == len(LOOKS)


def test_the_papers_seven_and_cosformer_differ_in_shape_too():
    assert len({found.shape for found in list(LOOKS.values())[:8]}) == 8


def test_what_is_registered_from_outside_has_a_colour_too(monkeypatch):
    monkeypatch.setitem(METHODS, "mine", METHODS["rope"])
    monkeypatch.setitem(MATRICES, "spiral", MATRICES["unitary"])
    assert look("mine") == look("mine")
    assert look("identity*spiral") not in LOOKS.values()


def test_a_product_looks_as_its_type_does():
    assert set(TYPES) == set(MATRICES)
    assert look("fourier*unitary") == look("type1")


def test_a_method_that_nobody_has_is_named():
    with pytest.raises(LrpeError, match=r"type9.*Did you mean"):
        look("type9")
