"""A run that two other machines join by the line that its launcher prints, as far as one machine shows it."""

import json
import os
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from spreeze_zmq.base.endpoints import read_keys, write_keys
from spreeze_zmq.base.journal import read_journal
from spreeze_zmq.commands.nodes import machines_of
from spreeze_zmq.commands.spreeze import main
from spreeze_zmq.evaluation.contestant import Contestant
from spreeze_zmq.run.history import read_run
from spreeze_zmq.wire import decode, rollout_from
from spreeze_zmq.wire.channels import RecordingReader, make_keys
from tests.system import arm
from tests.system.conftest import adds_up
from tests.system.sshd import SSHD, Server

TOPOLOGY = """
run = { env = "arm_of_mine:Arm", algorithm = "dqn", stop = { minutes = 30 } }
algorithm = { hidden_sizes = [16], learning_starts = 256 }
placement = { evaluator = "node" }
components = { sampler = { count = 1 }, critic_learner = { start_timeout_s = 120 } }
"""


@pytest.fixture
def ssh(tmp_path, monkeypatch):
    """A server that the launcher logs in at."""
    if SSHD is None or os.geteuid() != 0:
        pytest.skip("no ssh server, or not its user: apt install openssh-server")
    (tmp_path / "ssh").mkdir()
    server = Server(tmp_path / "ssh")
    monkeypatch.setenv("SPREEZE_SSH", server.ssh)
    yield server
    server.close()


@pytest.fixture
def run(ssh, launch, tmp_path, monkeypatch):
    """A run that listens, of an environment that is not beside its topology; it records what reaches its
    learner.
    """
    for folder in ("mine", "src"):
        (tmp_path / folder).mkdir()
    shutil.copy(arm.__file__, tmp_path / "src" / "arm_of_mine.py")
    topology = tmp_path / "mine" / "arm.toml"
    topology.write_text(TOPOLOGY)
    more = ("--listen", "127.0.0.1", "--nodes", "ssh:desk2", "--record", "critic_learner")
    with monkeypatch.context() as here:
        here.setenv("PYTHONPATH", str(tmp_path / "src"))
        return launch(*more, topology=str(topology))


def foreign(run, tmp_path):
    """The key of somebody else, who knows the head's public one."""
    server = read_keys(run.folder / "join.key").server
    return write_keys(replace(make_keys(), server=server), tmp_path / "other.key")


def takers(run):
    """The samplers whose rollouts the broker knows to have arrived."""
    state = run.folder / "broker.json"
    accounts = json.loads(state.read_text())["record"]["accounts"] if state.exists() else {}
    receipts = [streams for account in accounts.values() for streams in account["takers"].values()]
    return {stream.partition("/")[0] for streams in receipts for stream in streams}


def evaluates_again(run, least=2):
    """Whether an evaluation has come from a second life of the evaluator, or of as many as these."""
    lives = 0
    for entry in read_journal(run.folder / "metrics.jsonl"):
        lives += entry["kind"] == "hello" and entry["role"] == "evaluator"
        if lives >= least and entry["kind"] == "evaluation":
            return True
    return False


def rollouts_of(run):
    """By sampler, the observations of each rollout that its learner received."""
    found = {}
    for path in (run.folder / "recordings").glob("critic_learner-0*"):
        for entry in RecordingReader(path).entries():
            if entry.channel.startswith("experience") and not entry.sent:
                rollout = rollout_from(decode(entry.frames))
                found.setdefault(rollout.sampler, []).append(np.array(rollout.obs))
    return found


@pytest.mark.long("three machines' processes start one after another, and one dies")
def test_machines_that_join_are_parts_of_one_run(run, join, tmp_path, capsys):
    """One by the line as printed, one over ssh; nothing but the key is theirs. Each sampler has a name and
    episodes of its own. A machine that is killed takes its processes along, and its account is closed. The
    evaluator runs on one of them, in the end on the other, and the best policy is here. At the end the other
    leaves with code 0, and nothing is left.
    """
    samplers = ("--samplers", "1")
    first = join(run, *samplers)
    stranger = join(run, *samplers, key=foreign(run, tmp_path))
    run.until(lambda: "evaluator-0 runs on" in run.output.read_text(), "a machine for the evaluator")
    run.until(lambda: run.output.read_text().count(" has joined as ") == 2, "both machines", 120)
    run.until(lambda: len(takers(run)) >= 3, "rollouts of every machine", 90)
    assert stranger.half.wait(60) == 2, stranger.said()
    assert "does not accept this machine's key" in stranger.said()
    run.until(lambda: evaluates_again(run, least=1), "an evaluation elsewhere")
    first.half.kill()
    run.until(lambda: "is gone: not heard for 5 s" in run.output.read_text(), "the loss of a machine")
    before = run.summary()["env_steps"]
    run.until(lambda: run.summary()["env_steps"] > before + 1000, "that the others go on")
    node = re.search(r"joined arm as (node-\d+)", first.said())[1]
    if re.search(r"evaluator-0 runs on .*\((node-\d+)\)", run.output.read_text())[1] == node:
        run.until(lambda: evaluates_again(run), "an evaluation on the other machine")
    run.until(lambda: any(one["lost_s"] for one in machines_of(read_run(run.folder))), "the loss, written")
    assert main(["nodes", str(run.folder)]) == 0
    _, *there, lost = capsys.readouterr().out.splitlines()
    assert len(there) == 1
    assert lost.startswith(node)
    run.interrupt()
    assert run.end() == 0, run.said()
    assert "joined arm as" in (run.folder / "logs" / "ssh-desk2.log").read_text()
    summary = run.summary()
    assert summary["failures"] == []
    [refused] = [row for row in summary["refusals"] if row["taker"] == "launcher"]
    assert (refused["word"], refused["count"]) == ("bad_keys", 1)
    assert summary["best"]["final"]
    assert Contestant.read(run.folder / "policy.safetensors").final
    assert not list((run.folder / "outbox").glob("*"))
    assert all(map(adds_up, summary["samples_by_channel"].values()))
    assert all(one["in_flight"] == 0 for one in summary["samples_by_channel"].values())
    found = rollouts_of(run)
    assert {"sampler-0", "sampler-1", "sampler-2"} <= set(found)
    everything = [obs.tobytes() for each in found.values() for obs in each]
    assert len(set(everything)) == len(everything)
    assert run.leftovers() == []
    assert not (run.folder / "join.key").exists()
