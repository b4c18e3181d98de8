"""A name has one life at a time, as far as the broker hears: nobody else speaks for it."""

import json
import os
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from spreeze_zmq.base.errors import ChannelError, WireError
from spreeze_zmq.broker import machines
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.nodes.leases import Leases
from spreeze_zmq.plan import topology
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import Claim, SocketFolder

NAME, TRUE, FALSE = "critic_learner-0", 7, 8
#: Who has not reported for so long is killed by the launcher.
SILENT_S = topology.load("pendulum").components["broker"].options["heartbeat_timeout_s"]
ABOUT = {"role": "critic_learner", "name": NAME, "pid": 1}
FIGURES = {"clock_s": {"busy": 1.0}, "cpu_s": 1.0, "counters": {}, "gauges": {}}


class Heard:
    """A record, to which messages come as to a broker."""

    def __init__(self, launcher=0):
        self.record = RunRecord(replace(topology.load("pendulum"), launcher=launcher))

    def say(self, kind, incarnation, now_s, **more):
        """A message of a life."""
        fields = {**ABOUT, **(FIGURES if kind in ("report", "bye") else {}), **more}
        self.record.lives.check(Message(kind, fields, {}, NAME, incarnation), now_s)
        take = {
            "hello": self.record.take_hello,
            "report": self.record.take_report,
            "bye": self.record.take_bye,
        }
        if kind in take:
            take[kind](NAME, incarnation, fields, now_s)

    @property
    def lives(self):
        """The life that holds the name, and whether it is ready."""
        process = self.record.processes[NAME]
        return process.incarnation, process.ready


@pytest.fixture
def heard():
    """A learner has begun."""
    made = Heard()
    made.say("hello", TRUE, 0.0)
    made.say("report", TRUE, 0.5)
    return made


@pytest.mark.parametrize("kind", ["hello", "report", "bye", "part", "failure", "request"])
def test_nobody_speaks_for_a_process_that_lives(heard, kind):
    """Whatever is said in its name by another one; the process stays ready, and nothing of it is lost."""
    with pytest.raises(WireError, match=r"wrong_sender.*incarnation 8, while another lives"):
        heard.say(kind, FALSE, 1.0, reason="x")
    heard.say("report", TRUE, 1.5)
    assert heard.lives == (TRUE, True)


@pytest.mark.parametrize("how", ["exited", "bye", "silence"])
def test_the_next_life_takes_the_name(heard, how):
    """When the launcher says that the last one has exited, it said so itself, or it has not reported for
    long.
    """
    later_s = 1.0
    if how == "exited":
        heard.record.lose(NAME, "was killed by SIGKILL")
    elif how == "bye":
        heard.say("bye", TRUE, 0.9, reason="done")
    else:
        later_s = 0.6 + SILENT_S
    heard.say("hello", FALSE, later_s)
    heard.say("report", FALSE, later_s)
    assert heard.lives == (FALSE, True)


def test_a_hello_that_came_too_early_counts(heard):
    """What the launcher said of the last life was lost with a broker; the next one says its hello once. The
    next broker knows who holds the name.
    """
    state, heard = heard.record.to_dict(), Heard()
    heard.record.restore(state, 0.6)
    with pytest.raises(WireError, match="wrong_sender"):
        heard.say("hello", FALSE, 1.0)
    heard.say("report", FALSE, 0.7 + SILENT_S)
    assert heard.lives == (FALSE, True)


MACHINE = {
    **dict.fromkeys(machines.FIGURES, 0),
    **{"node": "node-1", "host": "other", "gone": "", "processes": ["sampler-0", "sampler-1"]},
}


def pushed(record, index, now_s, life=1, since_s=0.0):
    """A sampler's report, of a life that makes 1,000 a second."""
    fields = {"role": "sampler", "name": f"sampler-{index}", "pid": life, "counters": {}, "gauges": {}}
    lives_s, made = now_s - since_s, int(1000 * (now_s - since_s))
    fields |= {"clock_s": {"busy": lives_s}, "cpu_s": lives_s, "pushed": {"critic_learner": made}}
    record.take_report(f"sampler-{index}", life, fields, now_s)


def test_what_was_pushed_before_a_broker_went_is_no_rate_of_the_next_one():
    """Of two samplers of a machine one reports again before the other; each makes 1,000 a second."""
    plan, record = topology.load("pendulum"), None
    for now_s in (300, 301):
        state, record = record and json.loads(json.dumps(record.to_dict())), RunRecord(plan)
        if state:
            record.restore(state, now_s)
        record.machines.take(MACHINE)
        for index in (0, 1):
            pushed(record, index, now_s)
            rows = record.machines.rows(record.processes, now_s + 0.5 * index)
    assert rows["machines"]["node-1"].env_steps_per_s <= 2000


def test_a_machine_goes_on_making_steps_while_one_of_its_samplers_starts_again():
    """It made none a second then, until its sum had risen over two statuses again; so it was where one of its
    samplers was taken away.
    """
    record, seen = RunRecord(topology.load("pendulum")), []
    for tick in range(2, 60):
        now_s = tick / 2
        record.machines.take({**MACHINE, "processes": MACHINE["processes"][: 1 if tick > 40 else 2]})
        pushed(record, 0, now_s)
        if tick <= 20:
            pushed(record, 1, now_s)
        elif 24 <= tick <= 40:
            pushed(record, 1, now_s, life=2, since_s=11.0)
        seen.append(record.machines.rows(record.processes, now_s)["machines"]["node-1"].env_steps_per_s)
    assert min(seen[1:]) == 1000.0
    assert seen[10] == seen[36] == 2000.0
    assert seen[-1] == 1000.0


def test_a_life_that_says_hello_takes_the_name_from_one_that_has_not():
    """So that a report alone, in the moment between two lives, keeps nobody out."""
    heard = Heard()
    heard.say("report", FALSE, 0.0)
    heard.say("hello", TRUE, 0.1)
    heard.say("report", TRUE, 0.2)
    assert heard.lives == (TRUE, True)


@pytest.fixture
def claims():
    """Claims of names in a run's folder."""
    folder = SocketFolder.create("lives")
    yield folder
    folder.remove()


@pytest.mark.parametrize("last", ["none", "exited", "lives"])
def test_who_holds_a_names_lock_has_the_name(claims, last):
    """Whoever has taken it between two lives, and reports ever since, has it until the next one says hello;
    once that one holds the lock, nobody takes it.
    """
    heard = Heard()
    heard.record.lives.holder = partial(SocketFolder.holder, claims.path)
    if last != "none":
        heard.say("hello", 6, 0.0)
    if last == "exited":
        heard.record.lose(NAME, "was killed by SIGKILL")
    if last != "lives":
        heard.say("hello", FALSE, 0.1)
        heard.say("report", FALSE, 0.2)
    claim = Claim.take(claims.path / NAME)
    heard.say("hello", TRUE, 0.3, pid=os.getpid())
    for kind in ("hello", "report", "bye"):
        with pytest.raises(WireError, match=f"wrong_sender: {kind} came from process 1, while {os.getpid()}"):
            heard.say(kind, FALSE, 0.4, reason="x")
    heard.say("report", TRUE, 0.4, pid=os.getpid())
    assert heard.lives == (TRUE, True)
    claim.release()


def test_a_lock_of_a_process_that_is_gone_says_nothing(claims):
    """Its file stays where it was killed."""
    heard = Heard()
    heard.record.lives.holder = partial(SocketFolder.holder, claims.path)
    (claims.path / f"{NAME}.lock").write_text("4194305")
    heard.say("hello", TRUE, 0.0)
    assert heard.lives == (TRUE, True)


def test_a_name_that_is_lent_is_a_process_of_another_machine(claims):
    """The launcher holds its lock, and the process there has whatever id its machine gave it."""
    heard = Heard()
    heard.record.lives.holder = partial(SocketFolder.holder, claims.path)
    claim = Claim.take(claims.path / NAME)
    claim.lend()
    with pytest.raises(ChannelError, match="is taken by process of another machine; stop that one"):
        Claim.take(claims.path / NAME)
    heard.say("hello", TRUE, 0.0)
    heard.say("report", TRUE, 0.1)
    assert heard.lives == (TRUE, True)
    claim.release()


def test_an_end_is_that_of_the_life_which_is_heard_unless_another_holds_the_name(claims):
    """By the name's lock: the process that ended may have been a script that had started the program."""
    heard, own = Heard(), os.getpid()
    heard.record.lives.holder = partial(SocketFolder.holder, claims.path)
    assert not heard.record.lives.has_followed(NAME, 1)
    (claims.path / f"{NAME}.lock").write_text("4194305")
    heard.say("hello", 6, 0.0, pid=4194305)
    assert not heard.record.lives.has_followed(NAME, 1)
    claim = Claim.take(claims.path / NAME, TRUE)
    heard.say("hello", TRUE, 0.1, pid=own)
    assert [heard.record.lives.has_followed(NAME, pid) for pid in (own, own + 1, 0)] == [False, True, True]
    claim.lend(TRUE)
    assert [heard.record.lives.has_followed(NAME, pid) for pid in (own, own + 1, 0)] == [False, True, False]
    claim.lend()
    assert not heard.record.lives.has_followed(NAME, own + 1)
    claim.release()


#: What is said of a process, and by it alone.
OWN = ("hello", "report", "bye", "part", "failure", "evaluation", "episodes")


@pytest.mark.parametrize("last", ["none", "exited", "lives"])
@pytest.mark.parametrize("kind", OWN)
def test_the_incarnation_in_a_names_lock_is_the_one_that_is_heard(claims, kind, last):
    """Between two lives too, and with the process id of the next one: a stranger is no life of a name."""
    heard = Heard(launcher=5)
    heard.record.lives.holder = partial(SocketFolder.holder, claims.path)
    if last != "none":
        before = Claim.take(claims.path / NAME, 6)
        heard.say("hello", 6, 0.0)
        before.release()
    if last == "exited":
        heard.record.lose(NAME, "was killed by SIGKILL")
    claim = Claim.take(claims.path / NAME, TRUE)
    with pytest.raises(WireError, match="incarnation 8, while another holds the name's lock"):
        heard.say(kind, FALSE, 0.1, pid=os.getpid(), reason="x")
    heard.say("hello", TRUE, 0.2)
    heard.say("report", TRUE, 0.3)
    assert heard.lives == (TRUE, True)
    claim.release()
    heard.say("bye", TRUE, 0.4, reason="done")  # which it sent before it let go of the name


@pytest.mark.parametrize("kind", OWN)
def test_nobody_is_heard_in_a_name_that_nobody_has_claimed(kind):
    """Where a launcher started the run; who only asks for something needs no name."""
    heard = Heard(launcher=5)
    with pytest.raises(WireError, match="incarnation 8, while nobody holds the name's lock"):
        heard.say(kind, FALSE, 0.1, reason="x")
    heard.say("request", FALSE, 0.1)
    Heard(launcher=0).say(kind, FALSE, 0.1, reason="x")


def test_a_life_on_another_machine_has_its_name_once_its_machine_has_told(claims):
    """Its machine's beat says which life it is; the next one begins unknown, as the first did."""
    heard, leases = Heard(launcher=5), Leases(claims.path)
    heard.record.lives.holder = partial(SocketFolder.holder, claims.path)
    assert leases.take(NAME)
    heard.say("hello", TRUE, 0.0)
    leases.note(NAME, TRUE)
    heard.record.lose(NAME, "is gone with desk1")
    with pytest.raises(WireError, match="another holds"):
        heard.say("report", FALSE, 0.1)
    leases.note(NAME, 0)
    heard.say("hello", 9, 0.2)
    assert heard.lives == (9, True)
    leases.release()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12 34", (12, 34)),
        ("12 34\n", (12, 34)),
        ("12\n", (12, 0)),
        ("of another machine 34", (0, 34)),
        ("of another machine", (0, 0)),
        ("", (0, 0)),
        ("12\n13\n", (0, 0)),
        ("12 " + "9" * 400, (0, 0)),
    ],
)
def test_a_lock_says_who_holds_it(claims, text, expected):
    """A foreign process writes as much as it can; what says nothing is a holder who is not known."""
    (claims.path / "sampler-3.lock").write_text(text)
    assert SocketFolder.holder(claims.path, "sampler-3") == expected
    assert SocketFolder.holder(claims.path, "sampler-4") is None


@pytest.mark.parametrize(
    "name", ["", "a\0b", "x" * 300, "y" * 60_000, "../outside", "/", "\x1b[2J", "é" * 200]
)
def test_a_sender_that_is_the_name_of_no_process_has_no_lock(claims, name):
    """Anybody may send any text as its name: none becomes a path, in the folder or beside it."""
    heard, beside = Heard(launcher=5), claims.path.with_name("outside.lock")
    heard.record.lives.holder = partial(SocketFolder.holder, claims.path)
    beside.write_text("12 34")
    assert SocketFolder.holder(claims.path, name) is None
    for kind in ("request", "episodes"):
        with suppress(WireError):
            heard.record.lives.check(Message(kind, {}, {}, name, FALSE), 0.1)
    beside.unlink()
