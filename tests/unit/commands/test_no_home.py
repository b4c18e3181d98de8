"""A user without a home folder, as in some containers, is told so where one is needed."""

import logging
import os

import pytest

from spreeze_zmq.base import machine
from spreeze_zmq.base.errors import InputError, InvalidEnvironment
from spreeze_zmq.commands import spreeze
from spreeze_zmq.data import dataset
from spreeze_zmq.envs.mujoco.task import find_model
from spreeze_zmq.nn.native import library


@pytest.fixture(autouse=True)
def homeless(monkeypatch):
    """As ``os.path`` finds it: nothing is named by ~."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "SPREEZE_KEYS", "MINARI_DATASETS_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)


def test_what_is_only_kept_for_later_is_done_without(monkeypatch, caplog):
    """Figures are measured again, with one line, and layers left to torch, with another."""
    with caplog.at_level(logging.WARNING, "spreeze"):
        assert machine.recall({"a": 1}, int) is None
        assert machine.remember({"a": 1}, 2) is None
    assert (
        caplog.text.count("this user has no home folder: set HOME") == 1
    )  # one line for what is neither there nor kept
    monkeypatch.setattr(library, "folder_of_libraries", machine.cache_folder)
    assert "this user has no home folder" in library.library.__wrapped__().problem


def test_what_cannot_be_done_without_is_one_line(capsys, tmp_path):
    """With the exit code of bad input."""
    assert spreeze.main(["keys"]) == 2
    said = capsys.readouterr().err
    assert "this user has no home folder: set HOME" in said
    assert said.count("\n") == 1
    with pytest.raises(InputError, match="this user has no home folder: set HOME"):
        dataset.find("minari:reach/expert-v0", tmp_path)
    with pytest.raises(InvalidEnvironment, match=r"~/arm\.xml"):
        find_model("~/arm.xml", type)
