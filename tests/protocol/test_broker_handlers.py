"""Whatever a peer says, the broker takes it or refuses it with a word, and what it keeps stays small."""

import contextlib
import os
import time
from types import SimpleNamespace

import numpy as np
import pytest
from extreme_messages import ODD_NAMES, REPORTS, SENDERS, extremes
from golden_messages import MESSAGES
from hostile_values import THOROUGH, changed, costing_little, travelled
from hypothesis import given
from hypothesis import strategies as st

from components.broker.__main__ import Broker
from spreeze_zmq.base.pauses import Pauses
from spreeze_zmq.broker.claims import most_cpu_s
from spreeze_zmq.broker.figures import ProcessRecord
from spreeze_zmq.broker.problems import Refused
from spreeze_zmq.screen.terminal.words import plain_line
from spreeze_zmq.wire import Message, encode
from spreeze_zmq.wire.channels import Claim, open_channel


@THOROUGH
@given(st.sampled_from(REPORTS), st.data())
def test_the_broker_takes_any_report(broker, kind, data):
    """Its record can still be published, written and read again."""
    golden = MESSAGES[kind]
    sender = SENDERS.get(kind, "sampler-0")
    if kind in ("hello", "report", "bye"):
        sender = golden.fields["name"]
    fields = changed(data, golden.fields)
    arrays = {name: np.array(array) for name, array in golden.arrays.items()}
    if arrays and data.draw(st.booleans()):
        arrays["returns"][0] = data.draw(st.sampled_from([np.nan, np.inf, -3e38]))
    message = Message(kind, fields, arrays, sender, data.draw(st.integers(1, 5)), 0)
    if (heard := travelled(message)) is not None:
        broker.hear(heard)
    broker.notes.note_episodes(broker.now_s, last=True)
    broker.helm.show(broker.now_s)
    broker.record.stop_condition(1.0)
    broker.helm.balance(broker.now_s)
    summary = broker.record.summary("", 1.0, final=True)
    for samples in (summary["samples"], *summary["samples_by_channel"].values()):
        assert samples["produced"] == samples["received"] + samples["dropped"] + samples["in_flight"]
    assert plain_line(broker.helm.status(broker.now_s), {})


@pytest.mark.parametrize("kind", REPORTS)
def test_no_number_of_a_report_sizes_what_the_broker_does(broker, kind):
    """Each field at its extremes, and what the broker does with it later: status, files, balance."""
    for message in extremes(kind):
        sender = SENDERS.get(kind, message.fields.get("name", "sampler-0"))
        if (heard := travelled(message._replace(sender=sender, incarnation=1))) is None:
            continue
        with costing_little(message):
            broker.hear(heard)
            broker.helm.show(broker.now_s)
            samplers, machines = broker.record.num_workers("sampler"), broker.record.machines.present
            for training in (False, True):
                for later_s in (60.0, 120.0):
                    now_s = broker.now_s + later_s
                    broker.balancer.step(samplers, now_s, training=training, machines=machines)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_text_may_be_the_name_of_a_sender(broker, name):
    """It leads to no file: not to a lock, and not to the log in which a process is told of refusals."""
    for kind in REPORTS:
        fields = {**MESSAGES[kind].fields, **({"name": name} if kind in ("hello", "report", "bye") else {})}
        message = MESSAGES[kind]._replace(fields=fields, sender=name, incarnation=3)
        if (heard := travelled(message)) is not None:
            broker.hear(heard)
    rows = [Refused("broker-0", name, "hello", "wrong_sender", 1, "said in a test")]
    broker.notes.refusals(rows, broker.now_s)


def test_a_forged_report_keeps_no_learner_from_its_checkpoints(broker):
    """One report in a learner's name, of another life, would make it one that has not said hello."""
    names = [f"{role}-0" for role in broker.plan.learning.learners]
    for name in names:
        about = {"role": name.removesuffix("-0"), "name": name}
        hello = {**MESSAGES["hello"].fields, **about}
        report = {**MESSAGES["report"].fields, **about, "taken": {}}
        broker.record.lose(name, "was killed by SIGKILL")  # a life of another test
        for kind, fields, life in (("hello", hello, 91), ("report", report, 91), ("report", report, 92)):
            broker.hear(Message(kind, fields, {}, name, life))
    assert broker.record.learners_are_ready
    assert [broker.record.processes[name].incarnation for name in names] == [91, 91]


def test_a_broker_that_begins_late_asks_for_the_last_checkpoint_once_it_is_heard(houses):
    """A learner that was there before it tries each of its sockets again: one finds it before the other."""
    house = houses("cartpole_dqn", "run.stop.env_steps=64")
    late = Broker(house.component("broker"))
    about = {"role": "critic_learner", "name": "critic_learner-0"}
    counters = {"env_steps": 64, "critic_updates": 1, "trained_transitions": 32}
    report = {**MESSAGES["report"].fields, **about, "taken": {}, "counters": counters}
    for kind, fields in (("hello", {**MESSAGES["hello"].fields, **about}), ("report", report)):
        late.hear(Message(kind, fields, {}, about["name"], 91))
    late.helm.decide(late.now_s)
    assert late.helm.exit_reason.startswith("env_steps 64")
    control = open_channel(house.plan.channels["control"], "sub", about["name"], 91)
    until_s, heard = time.monotonic() + 30.0, []
    while "checkpoint" not in heard and time.monotonic() < until_s:
        late.component.poll(timeout_s=0.05)
        late.helm.decide(late.now_s)
        while (message := control.receive()) is not None:
            heard.append(message.kind)
    control.close()
    late.notes.journal.close()
    assert "checkpoint" in heard, heard


def test_an_end_that_is_told_late_is_not_that_of_the_next_life(broker, house):
    """Where the broker was killed with a learner, the new learner may be heard before the launcher is."""
    names = [f"{role}-0" for role in broker.plan.learning.learners]
    claims = [Claim.take(house.sockets.path / name, 95) for name in names]
    for name in names:
        broker.record.lose(name, "was killed by SIGKILL")  # a life of another test
        about = {**MESSAGES["hello"].fields, "role": name.removesuffix("-0"), "name": name}
        broker.hear(Message("hello", {**about, "pid": os.getpid()}, {}, name, 95))
        end = {"name": name, "how": "was killed by SIGKILL", "restarting": True}
        broker.hear(Message("exited", {**end, "pid": os.getpid() + 1}, {}, "launcher", 1))
    assert broker.record.learners_are_ready
    assert set(names) <= broker.helm.status(broker.now_s)["processes"].keys()
    for name, claim in zip(names, claims, strict=True):
        end = {"name": name, "how": "exited with code 1", "restarting": False, "pid": os.getpid()}
        broker.hear(Message("exited", end, {}, "launcher", 1))
        claim.release()
    assert not broker.record.learners_are_ready


def test_what_a_life_says_late_counts_though_another_has_its_name(broker, house):
    """It has ended, and its last words come behind the first ones of the next life: its transitions count, it
    is no sender of something wrong, and the next one goes on. One that has not ended is refused.
    """
    name, first, next_life = "sampler-0", 96, 97
    report = {**MESSAGES["report"].fields, "role": "sampler", "name": name, "pushed": {"critic_learner": 64}}
    bye = {**report, "pushed": {"critic_learner": 96}, "reason": "failed: x"}
    ended = {name: MESSAGES["episodes"].arrays[name] for name in ("returns", "lengths")}
    claim = Claim.take(house.sockets.path / name, next_life)

    def say(kind, fields, life, arrays=None):
        before = sum(row["count"] for row in broker.reports.refusals.rows())
        broker.hear(Message(kind, fields, arrays or {}, name, life))
        return sum(row["count"] for row in broker.reports.refusals.rows()) - before

    broker.record.lives.begin(name, first, "sampler", 1, broker.now_s)
    say("report", report, first)
    account, episodes = broker.record.accounts["critic_learner"], broker.record.episodes
    assert say("report", {**report, "pushed": {"critic_learner": 16}}, next_life) == 0
    produced, count = account.totals().produced, episodes.count
    assert say("report", report, first) + say("hello", {**report, "protocol": 1}, first) == 0
    assert say("bye", bye, first) + say("episodes", {}, first, ended) == 0
    assert (account.totals().produced - produced, episodes.count - count) == (32, len(ended["returns"]))
    process = broker.record.processes[name]
    assert (process.incarnation, process.gone, process.pushed) == (next_life, "", 16)
    assert say("bye", {**bye, "pushed": {"critic_learner": 2**53 - 1}}, first) == 1
    assert say("report", report, 98) == 1
    claim.release()


def test_an_evaluation_and_a_part_of_a_life_that_has_ended_are_not_wrong(broker, house, monkeypatch):
    """It was finished: it is in the curve, and the best one until the next life has said which policy
    it holds. A part is passed over, as the learner has gone back.
    """
    monkeypatch.setattr(broker.record, "processes", processes := {})
    monkeypatch.setattr(broker.record.lives, "_processes", processes)
    num_refused = sum(row["count"] for row in broker.reports.refusals.rows())
    evaluation, curve = {**MESSAGES["evaluation"].fields, "best": True}, broker.record.evaluations.all
    with contextlib.ExitStack() as claims:
        for name in ("evaluator-0", "critic_learner-0"):
            claims.callback(Claim.take(house.sockets.path / name, 97).release)
            about = {"role": name.removesuffix("-0"), "name": name}
            for life in (96, 97):
                broker.record.lives.begin(name, life, about["role"], 1, broker.now_s)
        broker.hear(Message("evaluation", evaluation, {}, "evaluator-0", 96))
        processes["evaluator-0"].ready = True
        broker.hear(Message("evaluation", evaluation, {}, "evaluator-0", 96))
        assert [one["best"] for one in curve[-2:]] == [True, False]
        part = {**MESSAGES["part"].fields, "folder": broker.checkpoints.begin(7, broker.now_s)}
        broker.hear(Message("part", part, {}, "critic_learner-0", 96))
        assert "critic_learner" in broker.checkpoints.missing
    assert sum(row["count"] for row in broker.reports.refusals.rows()) == num_refused


@pytest.mark.parametrize(("each", "counts"), [(1, False), (2, False), (10, True)])
def test_a_time_in_which_the_broker_alone_was_held_up_counts(broker, monkeypatch, each, counts):
    """By the reports that have come meanwhile: who stood still too has at most one that was waiting, and a
    new one.
    """
    ticks, reports = [100.0], SimpleNamespace(num_gathered=7)
    processes = {f"sampler-{number}": ProcessRecord("sampler", number) for number in range(3)}
    processes["broker-0"] = ProcessRecord("broker", 9)
    processes["sampler-9"] = ProcessRecord("sampler", 8, gone="done")

    def gather():
        reports.num_gathered += 3 * each

    reports.gather = gather
    monkeypatch.setattr(broker, "pauses", Pauses(lambda: ticks[0]))
    monkeypatch.setattr(broker, "reports", reports)
    monkeypatch.setattr(broker.record, "processes", processes)
    monkeypatch.setattr(broker, "began_s", 50.0)
    stood_still = []
    monkeypatch.setattr(broker.record.cores, "stood_still", lambda: stood_still.append(broker.began_s))
    ticks[0] += 8.0
    broker.heed_pause()
    assert broker.began_s == (50.0 if counts else 58.0)
    assert bool(stood_still) is not counts


@pytest.mark.parametrize("role", ["sampler", "evaluator"])
def test_what_no_process_can_have_done_is_in_no_sum(broker, role):
    """A report that claims 2^53 pushed transitions, or CPU seconds, in a run of some seconds."""
    about = {**MESSAGES["report"].fields, "role": role, "name": f"{role}-0", "taken": {}}
    truth = {"critic_learner": 64} if role == "sampler" else {}

    def num_refused():
        return sum(row["count"] for row in broker.reports.refusals.rows())

    broker.record.lose(f"{role}-0", "was killed by SIGKILL")  # a life of another test
    broker.hear(Message("report", {**about, "cpu_s": 1.0, "pushed": truth}, {}, f"{role}-0", 93))
    before, core_s = broker.record.accounts["critic_learner"].totals(), broker.record.core_s
    refused = num_refused()
    for claimed in (1, 10**12, 2**53 - 1):
        if claimed > 1 or role != "sampler":
            lie = {**about, "cpu_s": 1.0, "pushed": {"critic_learner": claimed}}
            broker.hear(Message("report", lie, {}, f"{role}-0", 93))
    assert broker.record.accounts["critic_learner"].totals() == before
    assert num_refused() == refused + 2 + (role != "sampler")
    broker.hear(Message("report", {**about, "cpu_s": 1e15, "pushed": truth}, {}, f"{role}-0", 93))
    assert broker.record.core_s - core_s <= most_cpu_s(broker.now_s, is_elsewhere=False)


def test_thousands_of_reports_leave_a_small_record(broker):
    """Failures of 60 KB, evaluations, lives and names without end."""
    rng = np.random.default_rng(1)
    base = {**MESSAGES["report"].fields, "role": "sampler", "taken": {}}
    for number in range(1200):
        failure = {"name": "sampler-0", "summary": "x" * 1000, "traceback": "y" * 60_000}
        broker.hear(Message("failure", failure, {}, "launcher", 1))
        name = f"sampler-{number}"
        gauges = {f"g{number} {index}": 1.0 for index in range(60)}
        fields = {**base, "name": name, "pushed": {"critic_learner": number}, "gauges": gauges}
        broker.hear(Message("report", fields, {}, name, int(rng.integers(1, 2**53))))
        broker.record.lose("sampler-0", "was killed by SIGKILL")
        broker.hear(Message("report", {**fields, "name": "sampler-0"}, {}, "sampler-0", number + 1))
        workers = {"role": "sampler", "count": number, "reason": "z" * 5000}
        broker.hear(Message("workers", workers, {}, "launcher", 1))
    broker.helm.show(broker.now_s)
    assert len(encode(Message("status", broker.helm.status(broker.now_s)))[0]) < 64 * 1024
    broker.write()
    assert (broker.component.folder.summary).stat().st_size < 20_000_000
    assert broker.record.failures.count >= 1200
    assert len(broker.record.failures.first) == 100


def test_a_long_record_is_written_less_often(broker):
    """The share of time that this costs stays small, also where news come with each look: only what decides
    the run, as a best policy does, waits for nothing.
    """
    broker.record.evaluations.all += [{"t_s": 1.0, **MESSAGES["evaluation"].fields}] * 10_000
    now_s, began_s = broker.now_s, time.process_time()
    broker.write()
    spent_s = time.process_time() - began_s
    broker.record.evaluations.all.clear()
    assert broker.next_write_s - now_s > 10 * spent_s
    for best in (False, True):
        look = {**MESSAGES["evaluation"].fields, "best": best}
        broker.hearing.on_evaluation(Message("evaluation", look), broker.now_s)
        assert broker.owes_write is best
    heard = []
    broker.notes._hear = lambda kind, *_: heard.append(kind)
    broker.note()
    assert "status" in heard
    assert broker.next_note_s < broker.now_s + 2.0, "the doctor hears as often as ever"
    broker.write()
    broker.record.evaluations.all.clear()


def test_parts_are_taken_from_learners_for_the_folder_that_was_asked_for(broker, tmp_path, monkeypatch):
    """Nothing is written elsewhere, and a part that is not on the disk is refused."""
    reasons = []
    monkeypatch.setattr(broker.reports, "refuse", lambda error, *_: reasons.append(error.reason))
    asked = broker.helm.checkpoint(broker.now_s)
    outside = tmp_path / "outside"
    outside.mkdir()
    for sender, folder, part in (
        ("sampler-0", asked, {}),
        ("critic_learner-0", f"../../{outside}", {}),
        ("critic_learner-0", "elsewhere", {}),
        ("critic_learner-0", asked, {"a": {"name": "a", "bytes": 1, "crc32": 1}}),
        ("actor_learner-0", asked, {"b": {}}),
        ("actor_learner-0", asked, {"b": {"name": "../b", "bytes": "x", "crc32": 1}}),
        ("actor_learner-0", asked, {"b": {"name": "b", "bytes": 1, "crc32": 1}}),
    ):
        living = broker.record.processes.get(sender)
        incarnation = 1 if living is None else living.incarnation
        broker.hear(Message("part", {"folder": folder, "part": part}, {}, sender, incarnation))
    assert list(outside.iterdir()) == []
    assert not list(broker.component.folder.checkpoints.rglob("MANIFEST.json"))
    assert reasons.count("wrong_sender") >= 1
    assert reasons.count("bad_part") >= 3
