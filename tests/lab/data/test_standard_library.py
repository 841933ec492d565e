from lrpe.lab.data.standard_library import Module, fingerprint, read_modules


def test_the_library_is_in_order_and_without_its_tests():
    modules = read_modules()
    paths = [module.path for module in modules]
    assert paths == sorted(paths)
    assert "email/parser.py" in paths
    assert not any("test" in path.split("/") for path in paths)
    assert fingerprint() == fingerprint()


def test_each_file_is_in_one_split_by_its_path_alone():
    shares = {
        split: sum(module.split == split for module in read_modules()) for split in ("train", "validation", "test")
    }
    assert sum(shares.values()) == len(read_modules())
    assert shares["train"] > 10 * max(shares["validation"], shares["test"]) > 0
    assert Module("email/parser.py", "a").split == Module("email/parser.py", "b").split


def test_a_module_knows_its_package():
    assert Module("email/mime/text.py", "").package == "email"
    assert Module("abc.py", "").package == "abc"
