"""A library in the cache that a power failure has spoilt is compiled again, by one process."""

import shutil

import pytest

from spreeze_zmq.base.once import ELF
from spreeze_zmq.nn.native import library as native_library


@pytest.mark.parametrize("left", [b"", bytes(4096)], ids=["empty", "zeros"])
def test_what_a_power_failure_left_of_a_library_is_compiled_again(tmp_path, monkeypatch, left):
    """Else every process would compile and use a weaker instruction set."""
    best = native_library.runnable()[0]
    good, made = native_library.compiled(best), []

    def compile_to(path, compiler, flags):
        made.append(path)
        shutil.copy(good, path)

    monkeypatch.setattr(native_library, "compile_to", compile_to)
    monkeypatch.setattr(native_library, "folder_of_libraries", lambda: tmp_path)
    native_library.compiled(best).write_bytes(left)
    for _ in range(2):
        found = native_library.library.__wrapped__()
        assert (found.instructions, found.problem) == (best, "")
    assert len(made) == 2


def test_a_library_that_may_not_be_loaded_is_compiled_once(tmp_path, monkeypatch):
    """Where programs of the cache may not run, each start would compile again."""
    made = []

    def compile_to(path, compiler, flags):
        made.append(path)
        path.write_bytes(ELF + bytes(100))

    monkeypatch.setattr(native_library, "compile_to", compile_to)
    monkeypatch.setattr(native_library, "folder_of_libraries", lambda: tmp_path)
    for _ in range(2):
        assert native_library.library.__wrapped__().code is None
    assert len(made) == len(native_library.runnable())
