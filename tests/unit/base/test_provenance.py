"""What says which code, packages and machine the numbers of a run are of."""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import spreeze_zmq
from spreeze_zmq.base.machine import shipped_folder
from spreeze_zmq.base.provenance import installed, release
from spreeze_zmq.nodes import packages
from spreeze_zmq.nodes.packages import difference
from spreeze_zmq.plan import topology

RELEASE = "import sys; sys.path.insert(0, sys.argv[1]); from spreeze_zmq.base.provenance import *; print({})"
#: What is left of a package: the content of each file.
TORN = {
    "empty": {},
    "undecodable": {"METADATA": b"Name: left\nVersion: 1.0\nAuthor: \xff\n"},
    "without a version": {"METADATA": b"Metadata-Version: 2.1\nName: left\n"},
    "without metadata": {"top_level.txt": b"left\n"},
}


@pytest.fixture
def wheel(tmp_path):
    """A copy of this package as a wheel lays it out, without metadata of any installer."""
    unread = shutil.ignore_patterns("__pycache__", "built", "build")
    package = tmp_path / "spreeze_zmq"
    shutil.copytree(Path(spreeze_zmq.__file__).parent, package, ignore=unread)
    shutil.copytree(shipped_folder("components"), package / "components", ignore=unread, dirs_exist_ok=True)
    return tmp_path


def said_by(folder, what):
    """What the package in a folder says of itself."""
    command = [sys.executable, "-P", "-c", RELEASE.format(what), str(folder)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_same_code_is_one_release_however_it_is_installed(wheel):
    """The number stays from commit to commit: the code is what tells two of them apart."""
    assert said_by(wheel, "release()") == said_by(wheel, 'installed()["spreeze-zmq"]') == release()


@pytest.mark.parametrize(
    "file", ["nn/layers.py", "nn/native/csrc/products.h", "components/sampler/__main__.py", "added.py"]
)
def test_a_machine_with_another_commit_is_told_so(wheel, file):
    """Whichever file of the code differs: its samplers would not be those of the run."""
    with (wheel / "spreeze_zmq" / file).open("a") as code:
        code.write("\n")
    there = said_by(wheel, 'installed()["spreeze-zmq"]')
    said = difference(topology.load("pendulum"), installed(), {**installed(), "spreeze-zmq": there})
    both = f"it has another spreeze-zmq {there}, the run {release()}"
    assert said == f"{both}: pip install the same commit there"


@pytest.mark.parametrize("torn", TORN)
def test_what_is_left_of_a_package_keeps_no_machine_from_a_run(tmp_path, monkeypatch, torn):
    """An installer that was interrupted leaves a folder without its files; others are still found."""
    (info := tmp_path / "left-1.0.dist-info").mkdir()
    for name, content in TORN[torn].items():
        (info / name).write_bytes(content)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    found = installed.__wrapped__()
    assert found == {name: version for name, version in installed().items() if name != "left"}
    packages._owners.cache_clear()
    plan = topology.load("pendulum")
    own = replace(plan, run=replace(plan.run, env="left.of:Mine"))
    assert difference(own, found, found) == ""
