"""The broker as a real process; the test plays all its peers, the launcher included."""

import json
import os
import signal
import time

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from spreeze_zmq.base.journal import Journal, read_journal
from spreeze_zmq.wire import Message
from tests.component.voices import begin, end, is_count, run, say, terminated
from tests.protocol.golden_messages import MESSAGES


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


def test_the_points_of_the_run_that_one_goes_on_from_are_as_far_apart_as_they_were(peers):
    """TensorBoard's axes of time have them before the first one of the new run, not all at its start."""
    journal = Journal(peers.folder.metrics)
    status = {name: value for name, value in MESSAGES["status"].fields.items() if name != "t_s"}
    for t_s in (10.0, 40.0):
        journal.write("status", t_s, {**status, "gauges": {}, "env_steps": int(10 * t_s)})
    journal.write("resumed", 50.0, {"run": "a", "checkpoint": "1", "counts": {"env_steps": 400}})
    journal.close()
    peers.play("broker")
    peers.start()
    peers.until("", "a status", lambda: peers.rest("status"))
    events = EventAccumulator(str(peers.folder.path)).Reload()
    first, last = (point.wall_time for point in events.Scalars("time/total_timesteps"))
    assert last - first == pytest.approx(30.0, abs=20.0)
    assert time.time() - last >= 10.0
