"""The module that an environment names is the user's, and no neighbour of it is taken for a library."""

import sys

import pytest

from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.envs.source import find

CODE = "from gymnasium.envs.classic_control import CartPoleEnv as Make\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current directory, as of a program that has just begun."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("colorsys", "named_own", "named_both"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return here


def test_no_neighbour_is_taken_for_a_library(here):
    """Neither by the module itself nor by what this process imports later; one of its own is found."""
    (here / "named_own.py").write_text(f"import colorsys, named_neighbour\n{CODE}")
    (here / "named_neighbour.py").touch()
    (here / "colorsys.py").write_text("raise RuntimeError('the neighbour')\n")
    source = find("named_own:Make")
    assert source.factory.__name__ == "CartPoleEnv"
    assert not sys.modules["colorsys"].__file__.startswith(str(here))
    assert str(here) in sys.path


def test_a_module_that_is_installed_too_is_the_one_of_the_current_directory(here, tmp_path):
    """As one that somebody works on, of which an earlier release is installed."""
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "named_both.py").touch()
    sys.path.append(str(tmp_path / "site-packages"))
    (here / "named_both.py").write_text(CODE)
    assert find("named_both:Make").factory.__name__ == "CartPoleEnv"


@pytest.mark.parametrize("name", ["random", "time", "msgpack"])
def test_a_file_that_has_the_name_of_a_library_is_named(here, name):
    """It cannot be imported; the line says so."""
    (here / f"{name}.py").write_text(CODE)
    with pytest.raises(InvalidEnvironment, match="give that another name") as refused:
        find(f"{name}:Make")
    assert f"for which {here}/{name}.py is passed over" in str(refused.value)
