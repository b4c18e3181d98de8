"""A peer that sends anything over every socket of a run neither ends nor fills nor misleads it."""

import re
from pathlib import Path

import pytest
import zmq

from spreeze_zmq.broker.problems import UNKNOWN_AFTER_S
from tests.system.conftest import NAPPING
from tests.system.hostile import MESSAGES, attack, raw


@pytest.mark.long("hundreds of messages are made and refused, and memory is watched")
def test_a_hostile_peer_changes_nothing(tmp_path):
    """Sixteen hundred messages here; ``python -m tests.system.hostile --count 1000000`` sends millions."""
    found = attack(tmp_path / "run", 800)
    assert found["exit_code"] == 0, found
    assert found["nobody_restarted"], found
    assert sum(found["refused"].values()) > 320, found
    for samples in found["samples_by_channel"].values():
        assert samples["produced"] == samples["received"] + samples["dropped"] + samples["in_flight"]
    for name, (before_mb, after_mb) in found["memory_mb"].items():
        assert after_mb < before_mb + 50, (name, found["memory_mb"])


SLOW_TO_START = f"""
import sys, time
from spreeze_zmq.component.life import run
from spreeze_zmq.components.sampler.__main__ import main

time.sleep({UNKNOWN_AFTER_S + 4})
sys.exit(run("sampler", main))
"""


@pytest.mark.long("a process takes longer to start than one whose every message is refused is believed in")
def test_what_is_refused_in_the_name_of_a_process_that_starts_ends_no_run(launch, tmp_path):
    """Somebody says hello in its name, and leaves a field out."""
    folder = tmp_path / "slow"
    folder.mkdir()
    (folder / "main.py").write_text(SLOW_TO_START)
    about = (Path(__file__).parents[2] / "components" / "sampler" / "component.toml").read_text()
    command = 'command = ["python", "{folder}/main.py"]'
    (folder / "component.toml").write_text(re.sub(r"^command = .*$", command, about, flags=re.MULTILINE))
    options = (f"components.sampler.use={folder}", "run.stop.env_steps=500", "components.sampler.count=1")
    sets = [word for option in options for word in ("--set", option)]
    run = launch(*NAPPING["cartpole_dqn"], *sets, "--without", "evaluator", topology="cartpole_dqn")
    run.until(lambda: (run.folder / "metrics.jsonl").exists(), "a broker")
    fields = {"role": "sampler", "name": "sampler-0", "protocol": 1, "host": "x"}
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.connect(run.plan()["channels"]["report"]["endpoint"])
        socket.send_multipart(raw(MESSAGES["hello"]._replace(fields=fields, sender="sampler-0")))
        assert run.end() == 0, run.said()
    row = next(row for row in run.summary()["refusals"] if row["kind"] == "hello")
    assert (row["sender"], row["word"], row["count"]) == ("sampler-0", "missing_field", 1)
