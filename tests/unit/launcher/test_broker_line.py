"""What the launcher tells while one broker has ended and the next one is not heard yet."""

import contextlib
import os
from pathlib import Path

import pytest

from spreeze_zmq.base.pauses import Pauses
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.launcher.broker_line import BrokerLine
from spreeze_zmq.launcher.launcher import Launch
from spreeze_zmq.launcher.news import News
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder, write_plan
from spreeze_zmq.screen.terminal.view import View
from spreeze_zmq.supervisor.logs import MOST_BYTES
from spreeze_zmq.wire import channels
from spreeze_zmq.wire.channels import poll
from tests.protocol.golden_messages import MESSAGES
from tests.unit.launcher.test_ends import exited

TIMEOUT_S = 30.0


class Broker:
    """Its two ends; the next one has them too, with another incarnation."""

    def __init__(self, plan):
        self.control, self.reports = (
            channels.open_channel(plan.channels[name], end, "broker-0", 1)
            for name, end in (("control", "pub"), ("report", "pull"))
        )

    def heard_by(self, line, incarnation):
        """Publish a status, until the launcher has heard it."""
        self.control.incarnation = incarnation
        self.control.publish(MESSAGES["status"])
        assert poll([line.control], timeout_s=TIMEOUT_S)
        assert [message.incarnation for message in line.hear()] == [incarnation]
        line.serve()

    def close(self):
        """Both."""
        self.control.close()
        self.reports.close()


@pytest.fixture
def plan(tmp_path):
    """Of a run without processes."""
    plan, sockets = write_plan(topology.load("pendulum"), RunFolder.create("run", str(tmp_path)))
    yield plan
    sockets.remove()


def test_the_next_broker_hears_what_is_told_from_the_end_of_the_last_one_on(plan):
    """What the last one has said may come late; its connection may stand, and take what nobody will read."""
    with contextlib.closing(BrokerLine(plan, 7)) as line, contextlib.closing(Broker(plan)) as broker:
        assert poll([broker.control], timeout_s=TIMEOUT_S)
        broker.control.serve()
        broker.heard_by(line, 1)
        line.tell("workers", **MESSAGES["workers"].fields)
        assert broker.reports.pull(TIMEOUT_S).kind == "workers"
        line.be_silent()
        line.tell("exited", **MESSAGES["exited"].fields)
        broker.heard_by(line, 1)
        assert broker.reports.pull(0.1) is None
        broker.heard_by(line, 2)
        line.tell("failure", **MESSAGES["failure"].fields)
        heard = [broker.reports.pull(TIMEOUT_S).kind for _ in range(3)]
        assert heard == ["exited", "workers", "failure"]


def test_a_status_that_is_read_after_the_death_of_its_broker_ends_no_silence(plan):
    """It may be the first that the launcher reads of this broker."""
    with contextlib.closing(BrokerLine(plan, 7)) as line, contextlib.closing(Broker(plan)) as broker:
        assert poll([broker.control], timeout_s=TIMEOUT_S)
        broker.control.serve()
        name = channels.Claim.take(Path(plan.socket_dir) / "broker-0", incarnation=1)
        line.be_silent()
        line.tell("exited", **MESSAGES["exited"].fields)
        broker.heard_by(line, 1)
        assert broker.reports.pull(0.1) is None
        name.release()
        broker.heard_by(line, 2)
        assert broker.reports.pull(TIMEOUT_S).kind == "exited"


@pytest.mark.parametrize("heard", [True, False])
def test_the_next_broker_is_told_again_what_holds(plan, heard):
    """The last one has died before it wrote that down, perhaps before it had said anything: without the
    numbers of processes the next one ends a run as if nobody had started it.
    """
    line = BrokerLine(plan, 7, lives=lambda: ["sampler-0"])
    with contextlib.closing(line), contextlib.closing(Broker(plan)) as broker:
        assert poll([broker.control], timeout_s=TIMEOUT_S)
        broker.control.serve()
        if heard:
            broker.heard_by(line, 1)
        about = {"reason": "the balance", "role": "sampler"}
        ends = [{"name": f"sampler-{index}", "how": "left", "restarting": True} for index in range(2)]
        told = [("workers", {**about, "count": count}) for count in (2, 1)]
        told += [("exited", end) for end in ends]
        for kind, fields in told:
            line.tell(kind, **fields)
            assert broker.reports.pull(TIMEOUT_S).kind == kind
        line.be_silent()
        broker.heard_by(line, 2)
        again = [broker.reports.pull(TIMEOUT_S) for _ in range(2)]
        assert [message.kind for message in again] == ["workers", "exited"]
        assert again[0].fields["count"] == 1
        assert again[1].fields == {**ends[1], "restarting": False}  # sampler-0 lives by now
        assert broker.reports.pull(0.1) is None


def test_a_log_that_has_grown_too_large_is_said_and_shortened(tmp_path):
    """By the run itself, while it lives."""
    folder, said = RunFolder.create("run", str(tmp_path)), []
    launch = Launch(topology.load("pendulum"), folder, View())
    launch.view.note, launch.supervisor.poll = said.append, list
    log = folder.logs / "sampler-0.log"
    with log.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, MOST_BYTES + (1 << 20))
    try:
        launch.watch()
        assert [line for line in said if "its middle is dropped" in line]
        assert log.stat().st_blocks * 512 < MOST_BYTES // 4
    finally:
        launch.line.close()
        launch.sockets.remove()
        launch.crew.close()
        launch.pinning.close()


@pytest.mark.parametrize(
    ("went_on", "says"),
    [
        (False, "the run stood still for 40 s, which do not count, and goes on"),
        (True, "the launcher was held up for 40 s, in which the run went on"),
    ],
)
def test_of_a_pause_the_launcher_says_what_the_runs_clock_says(tmp_path, went_on, says):
    """Where it alone was stopped, as by a slow disk, the time counts, and its statuses have piled up."""
    plan, said, now_s = topology.load("pendulum"), [], 0.0
    launch, record = Launch(plan, RunFolder.create("run", str(tmp_path)), View()), RunRecord(plan)
    launch.view.note, launch.pauses = said.append, Pauses(lambda: now_s)
    launch.news = News(launch.folder, lambda: now_s)
    try:
        launch.hear_status(record.status("training", {}, 10.0))
        now_s = 40.0
        launch.heed_pause()
        for tick in range(1, 6):
            now_s += 0.5
            launch.hear_status(record.status("training", {}, 10.0 + 40.0 * went_on + tick / 2))
        assert said == [says]
    finally:
        launch.line.close()
        launch.sockets.remove()
        launch.crew.close()
        launch.pinning.close()


def test_who_has_ended_with_a_broker_is_told_to_the_next_one(tmp_path):
    """As where memory ran out: the learners begin before the broker, and their ends come before its own."""
    launch = Launch(topology.load("pendulum"), RunFolder.create("run", str(tmp_path)), View())
    ended = [exited(name, number=9, restarting=True) for name in ("critic_learner-0", "broker-0")]
    told = []
    launch.line._reports.push = lambda message, *_: told.append(message.kind) is None
    launch.supervisor.poll = lambda: ended
    try:
        launch.watch()
        assert told == []
        launch.line.go_on()
        launch.line.serve()
        assert told.count("exited") == 2
    finally:
        launch.line.close()
        launch.sockets.remove()
        launch.crew.close()
        launch.pinning.close()
