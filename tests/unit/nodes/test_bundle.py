"""What is sent along with a run: the user's own files, and nothing else."""

import io
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from spreeze_zmq import data
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.nodes import bundle as bundling
from spreeze_zmq.nodes.bundle import bundle, places, unpack
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.parts import DataPlan
from spreeze_zmq.run.folder import RunFolder, write_plan
from tests.rights import without_rights
from tests.system import arm
from tests.unit.data.made import dataset


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


def test_datasets_and_runs_beside_the_topology_do_not_travel(plan, tmp_path, monkeypatch):
    """Learners read the one here, whose gigabytes would be too much; the other is of ``--run-dir``."""
    before = bundle(plan, [])
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "linked"))
    (tmp_path / "sets").mkdir()
    (tmp_path / "linked").symlink_to("sets")
    dataset("arm/own-v0")
    source = DataPlan("minari:arm/own-v0", path=str(data.find("minari:arm/own-v0", tmp_path)))
    write_plan(plan, RunFolder.create("arm", str(tmp_path / "all" / "mine")))[1].remove()
    assert bundle(plan, []) != before
    made = bundle(replace(plan, data={"own": source}), [])
    with zipfile.ZipFile(io.BytesIO(made)) as packed:
        names = packed.namelist()
    assert [name for name in names if "/own-v0/" in name or "/all/" in name] == []
    assert "0topology/meshes/arm.stl" in names


def test_what_may_not_be_read_beside_the_topology_is_left_out(plan):
    """A container's data, ``lost+found``, a file of somebody else."""
    with tempfile.TemporaryDirectory() as place:  # one of pytest's is its user's alone
        folder = Path(place, "shared")
        shutil.copytree(Path(plan.topology_file).parent, folder)
        plan = replace(plan, topology_file=str(folder / "arm.toml"))
        expected = bundle(plan, [])
        for name in ("entered", "listed"):
            (folder / name).mkdir()
            (folder / name / "theirs.py").touch()
        (folder / "secret").write_text("x")
        modes = {"entered": 0o000, "listed": 0o444, "secret": 0o000, ".": 0o755, "..": 0o755}
        for name, mode in modes.items():
            (folder / name).chmod(mode)
        with without_rights():
            sent = bundle(plan, [])
        for name in ("entered", "listed"):
            (folder / name).chmod(0o700)
    assert sent == expected


def test_too_much_is_refused_before_anything_starts(plan, monkeypatch):
    """And the line says what to do."""
    monkeypatch.setattr(bundling, "MOST_BYTES", 100)
    with pytest.raises(
        InputError, match="move the topology and the modules that it names to a folder of their own"
    ):
        bundle(plan, [])
