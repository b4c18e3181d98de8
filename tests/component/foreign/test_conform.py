"""The samplers in other languages keep every clause that a program must keep."""

import re
import shlex
import subprocess
import sys

import pytest

from spreeze_zmq.commands import spreeze


def conform(*words):
    """Exit code and table of ``spreeze conform sampler``."""
    command = [sys.executable, "-m", "spreeze_zmq.commands.spreeze", "conform", "sampler", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.long("the fast clauses, with waiting for what a sampler must not do")
@pytest.mark.timeout(180)
def test_cpp_keeps_every_clause(built_cpp, tmp_path, monkeypatch, capsys):
    """That it must keep, by the line that ``spreeze new`` prints; it keeps the others too."""
    monkeypatch.chdir(tmp_path)
    assert spreeze.main(["new", "mine", "--language", "cpp"]) == 0
    line = re.search(r"^check it: \S*spreeze conform sampler (.*)$", capsys.readouterr().out, re.MULTILINE)[1]
    code, said = conform(*shlex.split(line))
    assert code == 0, said
    assert " 0 broken" in said


@pytest.mark.thorough
@pytest.mark.timeout(180)
def test_javascript_keeps_every_clause_that_it_must(new_node):
    """As ``spreeze new`` wrote it."""
    code, said = conform("--tier", "fast", "--", "node", new_node / "sampler.js")
    assert code == 0, said
    assert " 0 broken" in said
