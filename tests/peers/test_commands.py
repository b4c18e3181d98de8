"""A COMMAND that cannot be run: one line, exit code 2."""

import pytest

from spreeze_zmq.commands import spreeze
from spreeze_zmq.nn.native import library


@pytest.mark.parametrize("what", ["folder", "plain file", "missing"])
def test_a_command_that_is_no_program_is_one_line(what, tmp_path, capsys):
    """A folder, a file without the right to be executed, or nothing at all."""
    path = tmp_path / "mine"
    if what == "folder":
        path.mkdir()
    elif what == "plain file":
        path.touch()
    assert spreeze.main(["conform", "sampler", "--", str(path)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"spreeze conform: {path} cannot be started: ")
    assert "expected after --" in line


@pytest.mark.parametrize(("role", "compiles"), [("critic_learner", True), ("sampler", False)])
def test_native_layers_are_compiled_before_a_learner_is_waited_for(role, compiles, monkeypatch, capsys):
    """As before a run; what the compiler does is said where the table is not."""
    monkeypatch.setattr(library, "prepare", lambda say: say("compiling"))
    assert spreeze.main(["conform", role, "--", "/missing"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    first, *_ = said.err.splitlines()
    assert (first == "compiling") is compiles
