import pytest

from lrpe import LrpeError
from lrpe.lab.options import LONGEST, check_name


@pytest.mark.parametrize("name", ["wikitext103", "householder*unitary", "type2+yarn", "rate-1e-3", "v1.5", "Größe"])
def test_a_plain_name_is_accepted(name):
    check_name(name, "variant")


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/abs", "a/b", "a\\b", ".hidden", "a\nb", "x" * (LONGEST + 1)])
def test_a_name_that_leads_out_of_a_folder_is_refused(name):
    with pytest.raises(LrpeError, match="variant names a folder"):
        check_name(name, "variant")
