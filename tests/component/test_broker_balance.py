"""The broker as a real process that moves numbers by the rates of its peers, all of which the test plays."""

import json

import pytest

from spreeze_zmq.base.journal import read_journal
from spreeze_zmq.plan import tuning
from spreeze_zmq.wire import Message
from tests.component.voices import Voice, begin, end, is_count, run, say, terminated


@pytest.mark.parametrize("peers", [["components.sampler.count=[1, 8]"]], indirect=True)
def test_starving_learners_get_more_samplers(peers):
    """The broker sends count and reason, journals every number, and remembers the result for the next run."""
    voices = begin(peers, 1, 1000)
    scale = run(peers, voices, "scale")
    assert scale["role"] == "sampler"
    assert scale["count"] == 6  # 1.05 x 5,000 / 1,000
    assert scale["reason"].startswith("samplers 1 -> 6: critic_learner starved 80 %")
    say(peers, "workers", **scale)
    run(peers, voices, "entry", lambda entry: is_count(entry, scale["count"]))
    terminated(peers)
    summary = json.loads(peers.folder.summary.read_text())
    assert summary["workers"]["sampler"][-1][1:] == [scale["count"], scale["reason"]]
    balance = [line for line in read_journal(peers.folder.metrics) if line["kind"] == "balance"]
    decided = [line["decision"] for line in balance if line["decision"].get("trial")]
    assert decided[-1]["produced_per_s"] == pytest.approx(1000, rel=0.1)
    assert decided[-1]["learners_take_per_s"] == pytest.approx(5000, rel=0.1)
    # Reports cover the time of a line while this process keeps them coming.
    covered = [line for line in balance if "sampler-0" in line["processes"]]
    assert covered[-1]["processes"]["sampler-0"]["busy"] == pytest.approx(1.0)
    assert 0 < max(line["busy_cores"] for line in balance) <= balance[-1]["cores"] + 0.5


@pytest.mark.long("rates are watched for as long as the broker's rule looks back")
@pytest.mark.parametrize("peers", [["components.sampler.count=[1, 8]"]], indirect=True)
def test_samplers_that_gain_nothing_leave_again(peers):
    """The broker asks for six; together they produce no more than one did, and it asks for one."""
    voices = begin(peers, 1, 1000)
    say(peers, "workers", **run(peers, voices, "scale"))
    learners = [voice for voice in voices if voice.role != "sampler"]
    six = [Voice(peers, "sampler", index, 1000 / 6, cpu=0.05, busy=1.0) for index in range(6)]
    back = run(peers, six + learners, "scale")
    assert back["count"] == 1
    assert back["reason"].startswith("samplers 6 -> 1: 6 trained 3")
    assert ", 1 trained 3" in back["reason"]


@pytest.mark.parametrize("peers", [["components.sampler.count=1"]], indirect=True)
def test_starving_learners_get_samplers_of_a_machine_that_joined(peers):
    """The launcher's own number is fixed. The machine's row says how many it runs, and why."""
    voices = begin(peers, 1, 1000)
    voices.append(Voice(peers, "sampler", 1, 1000, cpu=0.05, busy=1.0))
    about = {"node": "node-1", "host": "desk2", "cores": 8, "busy": 0.1, "memory_bytes": 1, "most": 4}
    about |= {"sent_bytes_per_s": 0.0, "received_bytes_per_s": 0.0}
    say(peers, "machine", **about, samplers=1, processes=["sampler-1"], gone=False)
    scale = run(peers, voices, "scale")
    assert (scale["role"], scale["count"], scale["node"]) == ("sampler", 4, "node-1")
    assert scale["reason"].startswith(
        "desk2 (node-1): 1 -> 4 there; samplers 2 -> 5: critic_learner starved 80 %"
    )
    status = run(peers, voices, "status", lambda fields: fields["machines"]["node-1"]["samplers"] == 4)
    assert scale["reason"].endswith(status["machines"]["node-1"]["why"])


@pytest.mark.parametrize(
    "peers", [["components.sampler.count=1", "algorithm.batch_size=auto"]], indirect=True
)
def test_starving_learners_get_smaller_batches_where_no_sampler_may_be_added(peers):
    """Both learners receive it, the summary has time, size and reason, and the journal what was tried."""
    voices = begin(peers, 1, 1000)
    told = run(peers, voices, "set")
    assert (told["role"], told["option"]) == ("critic_learner", "batch_size")
    assert told["value"] < 256
    assert told["reason"].startswith(f"batch size 256 -> {told['value']}: critic_learner starved 80 %")
    other = run(peers, voices, "set")
    assert (other["role"], other["value"]) == ("actor_learner", told["value"])
    run(peers, voices, "status")
    terminated(peers)
    moves = json.loads(peers.folder.summary.read_text())["moves"]["critic_learner.batch_size"]
    assert [move[1:] for move in moves] == [[told["value"], told["reason"]]]
    decided = [line["decision"] for line in read_journal(peers.folder.metrics) if line["kind"] == "balance"]
    assert "256" in decided[-1]["tried_trained_per_s"]["batch_size"]


@pytest.mark.parametrize("teller", ["sampler-0", "launcher"])
@pytest.mark.parametrize("peers", [["components.sampler.count=[1, 2]"]], indirect=True)
def test_what_settled_is_kept_for_the_next_run(peers, teller, tmp_path, monkeypatch):
    """Two samplers are the most that the topology allows. A failure of an environment, of which its sampler
    tells, spoils no rates, that of a process does.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    voices = begin(peers, 2, 1000)
    run(peers, voices, "status", lambda fields: fields["balance"]["settled"])
    failure = {"name": "sampler-0", "summary": "OSError: the arm", "traceback": ""}
    end(peers, teller).try_push(Message("failure", failure))
    terminated(peers)
    found = tuning.recall(peers.plan)
    assert (found is None) == (teller == "launcher")
    if found is not None:
        assert found.samplers == 2
        assert found.env_steps_per_s == pytest.approx(1000, rel=0.1)
