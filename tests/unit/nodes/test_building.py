"""What a component needs before its first process starts is made, or one line says why it is not."""

import pytest

from spreeze_zmq.base.errors import InputError, TopologyError
from spreeze_zmq.nodes import building
from spreeze_zmq.nodes.building import build

ABOUT = 'role = "sampler"\ncommand = ["{folder}/made"]\n'


def folder_with(tmp_path, script):
    """A component that is built by a shell script."""
    (tmp_path / "component.toml").write_text(ABOUT + 'build = ["sh", "{folder}/build.sh"]\n')
    (tmp_path / "build.sh").write_text(script)
    return tmp_path


def test_a_build_makes_the_program(tmp_path, monkeypatch):
    """Quietly, where it is quick."""
    monkeypatch.setattr(building, "QUICK_S", 60.0)
    said = []
    file = build(folder_with(tmp_path, 'touch "$(dirname "$0")/made"'), said.append)
    assert file.command == (str(tmp_path / "made"),)
    assert (tmp_path / "made").exists()
    assert said == []


def test_a_long_build_is_announced(tmp_path):
    """Before it has ended: this one ends once it is."""
    said, told = [], tmp_path / "told"

    def say(line):
        said.append(line)
        told.touch()

    build(folder_with(tmp_path, f"until [ -e {told} ]; do sleep 0.05; done"), say)
    assert said == [f"building {tmp_path.name}: the first time takes a while"]


def test_a_failed_build_ends_with_its_last_line(tmp_path):
    """Without the role that the program writes before it."""
    with pytest.raises(InputError, match=f"^{tmp_path.name}: missing: a tool$"):
        build(folder_with(tmp_path, "echo working; echo sampler: missing: a tool >&2; exit 2"), print)
    with pytest.raises(InputError, match="exit code 3"):
        build(folder_with(tmp_path, "exit 3"), print)


@pytest.mark.parametrize(
    ("first_line", "why"),
    [
        ("true\n", "is neither a program nor begins with #!"),
        ("#!/bin/sh\r\n", "what its first line names is missing"),
    ],
    ids=["no first line", "lines of Windows"],
)
def test_a_build_that_cannot_be_started_says_why(tmp_path, first_line, why):
    """In a line that names the component and the command."""
    (tmp_path / "component.toml").write_text(ABOUT + 'build = ["{folder}/build.sh"]\n')
    script = tmp_path / "build.sh"
    script.write_bytes(first_line.encode())
    script.chmod(0o755)
    expected = f"^{tmp_path.name}: its build cannot be started: .*{why}.*; its command is: {script}$"
    with pytest.raises(InputError, match=expected):
        build(tmp_path, print)


def test_what_a_build_says_need_not_be_utf8(tmp_path):
    """As of a compiler in a locale of its own."""
    with pytest.raises(InputError, match="no tool called caf�"):
        build(folder_with(tmp_path, r"printf 'no tool called caf\351\n'; exit 2"), print)


def test_a_folder_with_mistakes_names_them(tmp_path):
    """As a topology that uses it would."""
    (tmp_path / "component.toml").write_text('role = "smapler"\n')
    with pytest.raises(TopologyError, match="role: expected one of"):
        build(tmp_path, print)
