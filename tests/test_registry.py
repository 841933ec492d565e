"""A register tells the names that others gave from its own."""

from lrpe.registry import Registry


def test_a_name_is_foreign_if_somebody_added_it_or_gave_it_another_maker():
    register = Registry({"int": int, "float": float, "str": str})
    register["whole"] = int  # a second name for a maker of its own
    register["float"] = complex
    assert [name for name in (*register, "unknown") if register.is_foreign(name)] == ["float", "whole"]
