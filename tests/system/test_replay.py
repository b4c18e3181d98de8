"""One process alone, fed with the recording of a whole run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spreeze_zmq.commands import spreeze
from spreeze_zmq.wire import decode
from spreeze_zmq.wire.channels import RecordingReader
from tests.system.conftest import Run, said_in
from tests.system.terminal import DEADLINE_S, Terminal, place_of_update
from tests.system.test_dial import LOCKSTEP

pytestmark = pytest.mark.timeout(400)
ROOT = Path(__file__).parents[2]
SPREEZE = (sys.executable, "-m", "spreeze_zmq.commands.spreeze")
#: Enough for some hundred updates.
FEW = ("--set", "run.stop.env_steps=2560")
#: A critic-learner whose published critics are off by 1e-6.
NUDGED = """
import runpy
import numpy as np
from spreeze_zmq.learner import publication

put = publication.Outlet._put

def nudged(self, weights, make, *, wait):
    put(self, weights, lambda sent: make(sent + np.float32(1e-6)), wait=wait)

publication.Outlet._put = nudged
runpy.run_module("spreeze_zmq.components.critic_learner", run_name="__main__")
"""


def replay(*arguments, **options):
    """Run ``spreeze replay`` to its end."""
    return subprocess.run(
        [*SPREEZE, "replay", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        **options,
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, forked_launchers):
    """The folder of a run in lock-step, with recordings of both learners and of one sampler."""
    names = [word for name in ("critic_learner", "actor_learner", "sampler-1") for word in ("--record", name)]
    words = [*LOCKSTEP, *FEW, *names, "--without", "evaluator"]
    run = Run(tmp_path_factory.mktemp("recorded") / "run", *words)
    try:
        assert run.end(DEADLINE_S) == 0, run.said()
    finally:
        run.clear()
    return run.folder


@pytest.mark.long("a whole run is recorded")
def test_every_process_that_was_asked_for_is_recorded(recorded):
    """And no other; a recording holds the plan and what travelled."""
    found = {path.name: RecordingReader(path) for path in (recorded / "recordings").iterdir()}
    assert set(found) == {"critic_learner-0.recording", "actor_learner-0.recording", "sampler-1.recording"}
    entries = list(found["critic_learner-0.recording"].entries())
    assert {entry.channel for entry in entries if not entry.sent} == {
        *("experience.critic_learner", "policy", "control"),
    }
    assert {entry.channel for entry in entries if entry.sent} == {"critic", "report"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in (recorded / "recordings").iterdir())


@pytest.mark.long("a learner imports torch")
@pytest.mark.parametrize("name", ["critic_learner-0", "actor_learner-0", "sampler-1"])
def test_a_replay_in_lockstep_sends_the_same_bits(recorded, name, tmp_path):
    """Every critic, policy and rollout; the checkpoint that the learner writes is the same file."""
    done = replay(recorded / "recordings" / f"{name}.recording", "--run-dir", tmp_path / "replay")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if " recorded, " in line]
    assert lines
    for line in lines:
        sent, recorded_, same = (int(part.split()[0]) for part in line.split(": ")[1].split(", "))
        assert sent == recorded_ == same > 0
    if "learner" in name:
        role = name.removesuffix("-0")
        expected, found = counted(recorded), counted(tmp_path / "replay")
        assert found == {file: expected[file] for file in (f"{role}.pt", f"{role}.jsonl")}
    if name == "sampler-1":  # learners record a replay as it does
        kept = tmp_path / "replay" / "recordings" / f"{name}.recording"
        again = replay(kept, "--run-dir", tmp_path / "again")
        assert again.returncode == 0, again.stdout + again.stderr


def counted(folder):
    """The bytes of the last checkpoint and of the losses."""
    last = max((folder / "checkpoints").iterdir())
    return {path.name: path.read_bytes() for path in [*last.glob("*.pt"), *(folder / "learning").iterdir()]}


@pytest.mark.long("a learner is replayed twice")
def test_another_implementation_is_compared_output_by_output(recorded, tmp_path):
    """One that is off by a millionth differs bit by bit, and is within a tolerance of 1e-4."""
    program = tmp_path / "nudged.py"
    program.write_text(NUDGED)
    file = recorded / "recordings" / "critic_learner-0.recording"
    command = ["--", sys.executable, program]
    in_torch = {**os.environ, "SPREEZE_NATIVE": "0"}  # as after an upgrade, other numbers than the recorded
    done = replay(file, "--timeout", DEADLINE_S, "--run-dir", tmp_path / "exact", *command, env=in_torch)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the first that differs is number 0: array parameters differs in" in done.stdout
    assert re.search(r"it was recorded with other releases: native native-\w+ \(here none\)", done.stdout)
    done = replay(
        file, "--tolerance", "1e-4", "--timeout", DEADLINE_S, "--run-dir", tmp_path / "near", *command
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long("a debugger slows a learner")
def test_a_replay_runs_under_a_debugger(recorded, tmp_path):
    """A breakpoint in the learner's update is hit and the replay goes on to its end, bit by bit the same."""
    file = recorded / "recordings" / "critic_learner-0.recording"
    command = [sys.executable, "-m", "pdb", "-m", "spreeze_zmq.components.critic_learner"]
    with Terminal(
        *SPREEZE, "replay", str(file), "--run-dir", str(tmp_path / "replay"), "--", *command
    ) as pdb:
        pdb.answer("(Pdb) ", f"b {place_of_update()}\n")
        pdb.answer("(Pdb) ", "c\n")
        pdb.answer("(Pdb) ", "p 'batch', self.experience.gate.batch_size\n")
        pdb.answer("(Pdb) ", "cl 1\nc\n")
        pdb.answer("kept: ")
        assert "('batch', " in pdb.said
        assert pdb.end() == 0, pdb.said


def test_a_replay_goes_step_by_step(recorded, tmp_path):
    """Each message is shown before it is fed, in the order of the recording; q ends the replay."""
    file = recorded / "recordings" / "sampler-1.recording"
    words = [*SPREEZE, "replay", str(file), "--pace", "step", "--run-dir", str(tmp_path / "replay")]
    stepping = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    shown = []

    def until(count):
        while len(shown) < count:
            line = stepping.stdout.readline()
            assert line, shown
            if " s  " in line:
                shown.append(line)

    until(1)
    stepping.stdin.write("\n")
    stepping.stdin.flush()
    until(2)
    stepping.stdin.write("3\n")
    stepping.stdin.flush()
    until(5)
    stepping.stdin.write("q\n")
    stepping.stdin.flush()
    rest = stepping.stdout.read()
    assert stepping.wait(30) == 1
    assert "sampler-1: 4 messages fed" in rest
    came = [decode(entry.frames) for entry in RecordingReader(file).entries() if not entry.sent]
    for line, message in zip(shown, came, strict=False):
        assert f": {message.kind} {message.sequence} of {message.sender}: " in line


@pytest.mark.long("a run in lock-step, and two replays of it")
def test_a_sampler_of_rounds_is_replayed_to_its_end(launch, tmp_path):
    """Each life of a sampler has a limit of its own, which is for the one that replays it, too: it began no
    rollout beyond the first ones. So it is in the recording of a replay.
    """
    few = ("--set", "run.stop.env_steps=20000", "--set", "algorithm.hidden_sizes=[16]")
    words = (*few, "--set", "balance.mode=lockstep", "--set", "components.sampler.count=2")
    run = launch(*words, "--record", "sampler-1", "--without", "evaluator", topology="cartpole")
    assert run.end() == 0, run.said()
    file = run.folder / "recordings" / "sampler-1.recording"
    for place in (tmp_path / "replay", tmp_path / "again"):
        done = replay(file, "--run-dir", place)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = [line for line in done.stdout.splitlines() if line.startswith("rollout on experience.")]
        assert len(lines) == 2
        for line in lines:
            sent, recorded_, same = (int(part.split()[0]) for part in line.split(": ")[1].split(", "))
            assert sent >= recorded_ == same > 5
        file = place / "recordings" / file.name


@pytest.mark.long("a run, and once more at its pace")
def test_a_sampler_of_a_free_run_is_held_back_as_it_was(launch, tmp_path):
    """At the recorded pace its peers take a rollout where the learner took one, and no more."""
    few = ("--set", "run.stop.env_steps=5000", "--set", "components.sampler.count=1")
    run = launch("--record", "sampler", "--set", "algorithm.hidden_sizes=[16]", *few, topology="cartpole_dqn")
    assert run.end() == 0, run.said()
    done = replay(run.folder / "recordings" / "sampler-0.recording", "--run-dir", tmp_path / "replay")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("rollout on experience.")]
    for line in lines:
        sent, recorded_ = (int(part.split()[0]) for part in line.split(": ")[1].split(", ")[:2])
        assert recorded_ > 5
        assert sent <= recorded_
    assert len(lines) == 1


def test_mistakes_are_named_in_a_line(recorded, tmp_path):
    """What is no recording, whose program is not shipped, and what cannot be recorded."""
    absent = tmp_path / "absent.recording"
    line = f"spreeze replay: {absent}: cannot be read: No such file or directory\n"
    assert said_in(tmp_path, "replay", absent, main=spreeze.main) == (2, "", line)
    code, _, errors = said_in(tmp_path, "replay", recorded / "run.json", main=spreeze.main)
    assert code == 2
    assert "is no recording" in errors
    for words, said in [
        (
            ["--record", "smapler"],
            '--record smapler: expected a role or a process such as sampler-0 (did you mean "sampler"?)',
        ),
        (
            ["--record", "evaluator-1"],
            "--record evaluator-1: this run has at most 1 of evaluator, numbered from 0",
        ),
        (["--record", "sampler", "--record-mb", "0"], "--record-mb 0: a size above 0 is expected"),
    ]:
        found = said_in(tmp_path, "pendulum", "--check", *words)
        assert found == (2, "", f"spreeze-launch: {said}\n")
