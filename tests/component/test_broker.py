"""The broker as a real process; the test plays all its peers, the launcher included."""

import json
import os
import signal
import time

import numpy as np
import pytest

from spreeze_zmq.base.journal import read_journal
from spreeze_zmq.plan import tuning
from spreeze_zmq.wire import Message, channels


def end(peers, name):
    """A process's end of the report channel, opened once."""
    if name not in peers.ends:
        peers.ends[name] = channels.open_channel(peers.plan.channels["report"], "push", name, 1)
    return peers.ends[name]


class Voice:
    """A process of the run that reports at steady rates.

    ``cpu`` is the number of cores that it uses. A process that is ``busy`` for longer than that sleeps.
    """

    def __init__(self, peers, role, index, per_s, cpu, **shares):
        self.peers, self.role, self.name = peers, role, f"{role}-{index}"
        self.per_s, self.cpu, self.shares = per_s, cpu, shares
        self.began_s, self.greeted = time.monotonic(), False

    def speak(self):
        """Send a report of what it did until now, and before the first one a hello."""
        if not self.greeted:
            hello = {"role": self.role, "name": self.name, "pid": 1, "protocol": 1, "host": "here"}
            self.greeted = end(self.peers, self.name).try_push(Message("hello", hello))
        end(self.peers, self.name).try_push(self.report())

    def report(self):
        """What it did until now."""
        t_s = time.monotonic() - self.began_s
        clock = {name: self.shares.get(name, 0.0) * t_s for name in ("busy", "blocked", "starved", "idle")}
        fields = {"role": self.role, "name": self.name, "pid": 1, "time_s": 0.0, "uptime_s": t_s}
        fields |= {"cpu_s": self.cpu * t_s, "rss_bytes": 1000, "clock_s": clock, "counters": {}, "gauges": {}}
        amount = int(self.per_s * t_s)
        if self.role == "sampler":
            fields["pushed"] = {"critic_learner": amount, "actor_learner": amount}
        if self.role == "critic_learner":
            taken = {"first": 0, "last": amount, "received": amount, "refused": 0, "lost": 0}
            fields["taken"] = {"sampler-0/1": taken}
            fields["counters"] = {
                "env_steps": amount,
                "critic_updates": amount // 8,
                "trained_transitions": 32 * amount,
            }
        return Message("report", fields)


def run(peers, voices, kind, enough=lambda fields: True):
    """Speak twice a second until a message of a kind is ``enough``; returns its fields."""
    spoken_s = 0.0

    def speak():
        nonlocal spoken_s
        if time.monotonic() >= spoken_s:
            spoken_s = time.monotonic() + 0.5
            for voice in voices:
                voice.speak()

    peers.meanwhile = speak
    while not enough(fields := peers.next(kind).fields):
        pass
    return fields


def is_count(entry, count):
    """Whether an entry says that the broker has heard of this number of samplers."""
    return entry["topic"] == "workers" and entry["about"]["count"] == count


def say(peers, kind, **fields):
    """Send a message of the launcher to the broker."""
    end(peers, "launcher").try_push(Message(kind, fields))


def terminated(peers):
    """SIGTERM ends the broker."""
    peers.lives[0].process.terminate()
    assert peers.lives[0].process.wait(30) == 0


def begin(peers, num_samplers, per_s):
    """Start a broker; returns the processes of a run whose environments sleep and whose learners starve."""
    peers.play("broker")
    peers.start()
    say(peers, "workers", role="sampler", count=num_samplers, reason="as the topology says")
    samplers = [
        Voice(peers, "sampler", index, per_s / num_samplers, cpu=0.05, busy=1.0)
        for index in range(num_samplers)
    ]
    learners = {"critic_learner": per_s, "actor_learner": 0}
    return samplers + [
        Voice(peers, role, 0, each, cpu=0.2, busy=0.2, starved=0.8) for role, each in learners.items()
    ]


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


def test_an_observer_is_told_what_the_journal_holds(peers):
    """A subscriber gets every topic of the feed, and a late one the last entry of each."""
    peers.play("broker")
    peers.start()
    hello = {"role": "sampler", "name": "sampler-0", "pid": 1, "protocol": 1, "host": "here"}
    score = {"version": 1, "env_steps": 10, "mean_return": -2e3, "std_return": 1.0, "min": -3e3, "max": 3.0}
    score |= {"mean_length": 5.0, "num_episodes": 2, "wall_s": 0.1, "best": True}
    says = {
        "hello": hello,
        "workers": {"role": "sampler", "count": 2, "reason": "as the topology says"},
        "evaluation": score,
        "failure": {"name": "sampler-0", "summary": "ValueError", "traceback": "x" * 50_000},
        "exited": {"name": "sampler-0", "how": "was killed by SIGKILL", "restarting": True},
    }
    senders = {"evaluation": "evaluator-0", "workers": "launcher", "exited": "launcher"}
    for kind, fields in says.items():
        end(peers, senders.get(kind, "sampler-0")).try_push(Message(kind, fields))
    ended = {"returns": np.array([-1.0, -3.0], np.float32), "lengths": np.array([200, 200], np.int32)}
    end(peers, "sampler-0").try_push(Message("episodes", {}, ended))

    def entries_of(messages):
        return {message.fields["topic"]: message.fields for message in messages}

    topics = {*says, "episodes", "status"}
    peers.until("", "entries", lambda: set(entries_of(peers.rest("entry"))) >= topics)
    entries = entries_of(peers.rest("entry"))
    for kind in ("hello", "workers", "evaluation", "exited"):
        assert entries[kind]["about"] == says[kind]
    assert entries["failure"]["about"]["traceback"] == "x" * 8000
    expected = {"count": 2, "mean": -2.0, "std": 1.0, "min": -3.0, "max": -1.0}
    assert entries["episodes"]["about"] == expected
    lines = read_journal(peers.folder.metrics)
    journal = [line for line in lines if line["kind"] in says and line.get("name") != "broker-0"]
    told = [{**entries[kind]["about"], "t_s": entries[kind]["t_s"], "kind": kind} for kind in says]
    assert sorted(journal, key=str) == sorted(told, key=str)
    late, found = peers.opened("feed", "sub", "late", 2), set()

    def all_found():
        while (message := late.receive()) is not None:
            found.add(message.fields["topic"])
        return found >= topics

    try:
        peers.until("", "the last entry of each topic", all_found)
    finally:
        late.close()


def test_what_an_observer_asks_for_is_done_and_written_down(peers):
    """A number reaches every learner that has the option, also from a broker that is started again; what the
    run cannot do is refused; a stop ends it.
    """
    peers.play("broker")
    peers.start()

    def ask(**fields):
        end(peers, "script").try_push(Message("request", {"who": "Plateau", **fields}))

    def told(count):
        # What is kept for who comes late may come twice, and then before what is new.
        rows = {(message.incarnation, message.sequence): message.fields for message in peers.rest("set")}
        lives = list(dict.fromkeys(life for life, _ in rows))  # in the order in which they were heard
        order = sorted(rows, key=lambda place: (lives.index(place[0]), place[1]))
        return [rows[place] for place in order] if len(rows) >= count else None

    ask(what="set", option="learning_rate", value=0.25)
    ask(what="set", option="gamma", value=0.5)
    ask(what="set", option="replay_ratio", value=2)
    ask(what="note", text="a plateau")
    learners = ("critic_learner", "actor_learner")
    expected = [{"role": role, "option": "learning_rate", "value": 0.25} for role in learners]
    expected.append({"role": "critic_learner", "option": "replay_ratio", "value": 2.0})
    assert peers.until("", "sets", lambda: told(3)) == expected
    lines = [
        "Plateau: set learning_rate 0.003 -> 0.25",
        "Plateau: set replay_ratio 32 -> 2",
        "Plateau: a plateau",
    ]

    def shown():
        for message in peers.rest("status"):
            status = message.fields
            words = [row["word"] for row in status["refusals"]]
            if len(status.get("requests", ())) == 3 and "bad_request" in words:
                return status
        return None

    status = peers.until("", "a status with the requests", shown)
    assert [row["line"] for row in status["requests"]] == lines
    assert status["replay_ratio"]["target"] == 2.0
    (refused,) = [row for row in status["refusals"] if row["word"] == "bad_request"]
    assert "gamma" in refused["first"]
    assert "may not move" in refused["first"]
    kinds = [entry["kind"] for entry in read_journal(peers.folder.metrics)]
    assert kinds.count("request") == 3
    state = peers.folder.broker_state

    def kept():
        return state.exists() and len(json.loads(state.read_text())["record"]["turned"]) == 2

    peers.until("", "state", kept)
    peers.lives[0].process.kill()
    peers.lives[0].process.wait()
    peers.start()
    assert peers.until("", "the sets once more", lambda: (told(6) or [])[-3:]) == expected
    ask(what="stop", text="solved")
    stop = peers.next("stop").fields
    assert stop["reason"] == "Plateau: solved"
    terminated_again = peers.lives[1].process
    terminated_again.terminate()
    assert terminated_again.wait(30) == 0


def test_a_broker_that_is_behind_says_so_and_misses_nothing_of_the_sums(peers):
    """While it is stopped, few reports wait for it. The newest ones are read once it goes on; what is no
    report finds its place, and the last report of each sampler is in the account.
    """
    voices = begin(peers, 6, 0.0)
    samplers = voices[:6]
    run(peers, voices, "status", lambda status: status["workers"].get("sampler", {}).get("count") == 6)
    broker, outboxes = peers.lives[0].process, [end(peers, one.name) for one in samplers]
    broker.send_signal(signal.SIGSTOP)
    stopped_s = time.monotonic()
    for one in samplers:
        one.per_s, most = 1000.0, 200
        taken = [end(peers, one.name).post(one.report()) for _ in range(most)].count(True)
        assert taken <= 100
    ended = {"returns": np.full(2, -1.0, np.float32), "lengths": np.full(2, 200, np.int32)}
    assert all(outbox.post(Message("episodes", {}, ended)) for outbox in outboxes)
    while time.monotonic() < stopped_s + 3.0:
        time.sleep(0.05)
    broker.send_signal(signal.SIGCONT)
    late = run(peers, [], "status", lambda status: "reports_late_s" in status)
    assert 1.0 <= late["reports_late_s"] <= 30.0
    lasts = [one.report() for one in samplers]
    for outbox, last in zip(outboxes, lasts, strict=True):
        outbox.patient_until_s = time.monotonic() + 60
        assert outbox.post(Message("bye", {**last.fields, "reason": "told to"}))
    pushed = sum(last.fields["pushed"]["critic_learner"] for last in lasts)
    run(peers, [], "status", lambda status: status["samples"]["produced"] == pushed)
    terminated(peers)
    summary = json.loads(peers.folder.summary.read_text())
    assert summary["samples"]["produced"] == pushed > 0
    assert summary["episodes"] == 12


@pytest.mark.parametrize("skew_s", [-86_400, 86_400])
def test_the_runs_clock_is_nobodys_wall_clock(peers, skew_s):
    """With a file server a day behind or ahead, the run (of a minute) neither ends at once nor stops
    listening. A broker that was killed or terminated continues with the clock and the record.
    """
    stamp = time.time() + skew_s
    os.utime(peers.folder.run_file, (stamp, stamp))
    peers.play("broker")
    started_s, broker = time.monotonic(), peers.start()
    say(peers, "workers", role="sampler", count=2, reason="as the topology says")
    peers.until("", "the workers", lambda: any(is_count(m.fields, 2) for m in peers.rest("entry")))
    said = peers.next("status")
    began_s, latest_s = started_s - said.fields["t_s"], time.monotonic() - said.fields["t_s"]
    assert 0 < said.fields["t_s"] < 3600
    for number in (signal.SIGTERM, signal.SIGKILL):
        until_s = said.fields["t_s"] + 1.5
        while said.fields["t_s"] < until_s:
            said = peers.next("status")
        peers.until("", "its state", peers.folder.broker_state.exists)
        os.utime(peers.folder.run_file, (stamp, stamp + skew_s))
        broker.send_signal(number)
        broker.wait(30)
        started_s, broker, before = time.monotonic(), peers.start(), said.incarnation
        while said.incarnation == before:
            said = peers.next("status")
        assert started_s - latest_s - 1.0 < said.fields["t_s"] < time.monotonic() - began_s + 1.0
        assert not peers.between(None, None, "stop")

    def summed_up():
        return json.loads(peers.folder.summary.read_text())["workers"].get("sampler")

    assert peers.until("", "the workers in the summary", summed_up)[0][1] == 2
