"""What is sent along with a run: the user's own files, and nothing else."""

import os
import shutil
import sys

import pytest

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.nodes import bundle as bundling
from spreeze_zmq.nodes.bundle import bundle, unpack
from spreeze_zmq.plan import topology
from tests.system import arm


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """A topology with a module of its own beside it, and what nobody needs elsewhere."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    shutil.copy(arm.__file__, tmp_path / "arm_of_mine.py")
    (tmp_path / "meshes").mkdir()
    (tmp_path / "meshes" / "arm.stl").write_bytes(b"mesh")
    for folder in (".git", "runs", "__pycache__", "venv"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").write_text("x")
    (tmp_path / "venv" / "pyvenv.cfg").write_text("")
    (tmp_path / "arm.toml").write_text('[run]\nenv = "arm_of_mine:Arm"\n')
    yield topology.load(str(tmp_path / "arm.toml"))
    sys.modules.pop("arm_of_mine", None)


def test_the_topologys_folder_travels(plan, tmp_path):
    """With what the module reads beside it."""
    os.mkfifo(tmp_path / "pipe")  # to read it would wait for ever
    (tmp_path / "nowhere").symlink_to("gone")
    unpack(bundle(plan, []), tmp_path / "there")
    found = {path.relative_to(tmp_path / "there").as_posix() for path in (tmp_path / "there").rglob("*")}
    assert found == {"arm.toml", "arm_of_mine.py", "meshes", "meshes/arm.stl"}


def test_what_is_installed_does_not_travel(tmp_path):
    """A shipped topology needs nothing."""
    assert bundle(topology.load("pendulum"), sys.path) == b""
    unpack(b"", tmp_path / "there")
    assert list((tmp_path / "there").iterdir()) == []


def test_too_much_is_refused_before_anything_starts(plan, monkeypatch):
    """And the line says what to do."""
    monkeypatch.setattr(bundling, "MOST_BYTES", 100)
    with pytest.raises(
        InputError, match="move the topology and the modules that it names to a folder of their own"
    ):
        bundle(plan, [])
