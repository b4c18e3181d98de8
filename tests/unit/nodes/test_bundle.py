"""What is sent along with a run: the user's own files, and nothing else."""

import os
import shutil
import subprocess
import sys

import pytest

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.nodes import bundle as bundling
from spreeze_zmq.nodes.bundle import bundle, places, unpack
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
    os.utime(
        tmp_path / "meshes" / "arm.stl", (0, 0)
    )  # older than any file of a zip archive, as packages have
    unpack(bundle(plan, []), tmp_path / "there")
    found = {path.relative_to(tmp_path / "there").as_posix() for path in (tmp_path / "there").rglob("*")}
    assert found == {
        "0topology",
        *(f"0topology/{name}" for name in ("arm.toml", "arm_of_mine.py", "meshes", "meshes/arm.stl")),
    }
    assert places(tmp_path / "there") == ([], tmp_path / "there/0topology")  # a process searches it anyway


@pytest.mark.parametrize("first", ["src", "."], ids=["beside others", "searched first"])
def test_of_two_files_with_one_name_the_heads_is_imported(plan, tmp_path, monkeypatch, first):
    """Both travel, and the folders are searched as there."""
    (tmp_path / "src").mkdir()
    for folder in (".", "src"):
        (tmp_path / folder / "settings_of_mine.py").write_text(f"FOUND = {folder!r}\n")
    shutil.move(tmp_path / "arm_of_mine.py", tmp_path / "src")
    search = [str(tmp_path / place) for place in dict.fromkeys((first, "src"))]
    unpack(bundle(plan, search), tmp_path / "there")
    roots, topology = places(tmp_path / "there")
    assert (topology / "arm.toml").is_file()
    path = os.pathsep.join([*map(str, roots), str(topology)])
    script = "import arm_of_mine, settings_of_mine; print(settings_of_mine.FOUND, end='')"
    environment = {**os.environ, "PYTHONPATH": path}
    assert subprocess.check_output([sys.executable, "-c", script], env=environment, text=True) == first


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
