"""Deadlines of a run's processes, over a clock that the test moves."""

import pytest

from spreeze_zmq.launcher.deadlines import Deadlines
from spreeze_zmq.plan import topology


class Clock:
    """Time that the test moves."""

    now_s, starved_s = 100.0, 0.0

    def __call__(self):
        """The time now."""
        return self.now_s


@pytest.fixture
def clock():
    """The clock of ``deadlines``."""
    return Clock()


@pytest.fixture
def deadlines(clock):
    """30 s to start, 15 s between two signs of life."""
    return Deadlines(topology.load("pendulum"), lambda name: clock.starved_s, clock)


def test_what_a_rare_status_tells_is_waited_for(clock):
    """Its broker was restarted for a silence that it was told to keep, a process before any status of it."""
    plan = topology.load("pendulum", ["components.broker.status_interval_s=40"])
    deadlines = Deadlines(plan, lambda name: clock.starved_s, clock)
    deadlines.hear_status({})
    deadlines.begin("sampler-0")
    clock.now_s += 119
    assert deadlines.missed("broker-0", {}) == deadlines.missed("sampler-0", {}) == ""
    clock.now_s += 2
    assert "for 121 s" in deadlines.missed("broker-0", {})
    assert "not ready after 121 s" in deadlines.missed("sampler-0", {})


def row(*, ready, silent_s=0.0, waiting_for=""):
    """What a status says of a process."""
    return {"ready": ready, "silent_s": silent_s, "waiting_for": waiting_for}


def test_a_process_works_from_when_it_is_ready_to_its_last_report(deadlines, clock):
    """Neither its start nor a silence is work, be it killed for them or not; each life counts for itself."""
    deadlines.begin("sampler-0")
    clock.now_s += 20
    assert deadlines.missed("sampler-0", row(ready=False)) == ""
    assert deadlines.worked_s("sampler-0") == 0
    for seconds, silent_s, worked_s in ((1, 0.0, 0), (10, 0.5, 9.5), (2, 2.5, 9.5), (14, 16.5, 9.5)):
        clock.now_s += seconds
        late = deadlines.missed("sampler-0", row(ready=True, silent_s=silent_s))
        assert bool(late) == (silent_s > 15)
        assert deadlines.worked_s("sampler-0") == worked_s
    deadlines.begin("sampler-0")
    assert deadlines.worked_s("sampler-0") == deadlines.worked_s("sampler-1") == 0


def test_a_start_without_a_sign_is_late_after_its_time(deadlines, clock):
    """Whether or not the status has a row of it; silence alone is no fault before it is ready."""
    deadlines.begin("sampler-0")
    clock.now_s += 29
    assert deadlines.missed("sampler-0", {}) == ""
    assert deadlines.missed("sampler-0", row(ready=False, silent_s=20)) == ""
    clock.now_s += 2
    assert "not ready after 31 s" in deadlines.missed("sampler-0", {})


def test_time_without_a_core_does_not_count(deadlines, clock):
    """Of a start, of what follows in it, and of a silence, whatever was waited for before."""
    deadlines.begin("sampler-0")
    clock.now_s, clock.starved_s = clock.now_s + 59, 30.0
    assert deadlines.missed("sampler-0", {}) == ""
    clock.now_s += 2
    assert deadlines.missed("sampler-0", {}) == "not ready after 61 s, in 30 s of which it waited for a core"
    assert deadlines.missed("sampler-0", row(ready=False, waiting_for="a policy")) == ""
    clock.now_s, clock.starved_s = clock.now_s + 39, 40.0
    assert deadlines.missed("sampler-0", row(ready=False, waiting_for="a policy")) == ""
    clock.now_s += 2
    assert "41 s, in 10 s" in deadlines.missed("sampler-0", row(ready=False, waiting_for="a policy"))
    assert deadlines.missed("sampler-0", row(ready=True)) == ""
    assert deadlines.missed("sampler-0", row(ready=True, silent_s=6)) == ""
    clock.starved_s += 8
    assert deadlines.missed("sampler-0", row(ready=True, silent_s=20)) == ""
    assert "for 24 s, in 8 s" in deadlines.missed("sampler-0", row(ready=True, silent_s=24))
    assert deadlines.missed("sampler-0", row(ready=True)) == ""
    assert deadlines.missed("sampler-0", row(ready=True, silent_s=6)) == ""
    assert "for 16 s, longer" in deadlines.missed("sampler-0", row(ready=True, silent_s=16))


def test_a_process_that_its_server_has_forked_late_keeps_the_servers_time(deadlines, clock):
    """What kept the server from a core kept the process from its start."""
    deadlines.begin("critic_learner-0")
    clock.now_s, clock.starved_s = clock.now_s + 80, 70.0
    assert deadlines.missed("critic_learner-0", {}) == ""
    clock.now_s, clock.starved_s = clock.now_s + 10, 1.0
    assert deadlines.missed("critic_learner-0", {}) == ""
    clock.now_s += 12
    late = "not ready after 102 s, in 71 s of which it waited for a core"
    assert deadlines.missed("critic_learner-0", {}) == late


def test_a_start_that_gets_on_has_all_the_time(deadlines, clock):
    """It says each time how far it is; from where it stands still its time runs."""
    deadlines.begin("sampler-0")
    for step in range(10):
        clock.now_s += 29
        assert deadlines.missed("sampler-0", row(ready=False, waiting_for=f"step {step}")) == ""
    clock.now_s += 31
    said = deadlines.missed("sampler-0", row(ready=False, waiting_for="step 9"))
    assert said == "not ready after 31 s"


def test_a_process_that_was_ready_is_late_when_it_is_silent(deadlines, clock):
    """Also under a broker that was started again and does not know yet that it was."""
    deadlines.begin("sampler-0")
    assert deadlines.missed("sampler-0", row(ready=True)) == ""
    clock.now_s += 1000
    assert deadlines.missed("sampler-0", row(ready=False, silent_s=14, waiting_for="a policy")) == ""
    assert "for 16 s" in deadlines.missed("sampler-0", row(ready=False, silent_s=16))


def test_one_that_is_killed_for_it_is_late_once(deadlines, clock):
    """However long its end takes on a busy machine; its next life has all the time of a start."""
    deadlines.begin("sampler-0")
    assert deadlines.missed("sampler-0", row(ready=True)) == ""
    assert "for 16 s" in deadlines.missed("sampler-0", row(ready=True, silent_s=16))
    deadlines.give_up("sampler-0")
    clock.now_s += 40
    assert deadlines.missed("sampler-0", row(ready=True, silent_s=56)) == ""
    deadlines.begin("sampler-0")
    assert deadlines.missed("sampler-0", {}) == ""
    clock.now_s += 31
    assert "not ready after 31 s" in deadlines.missed("sampler-0", {})


def test_the_brokers_own_silence_is_that_of_its_status(deadlines, clock):
    """What its last status said of itself stays as it was."""
    deadlines.begin("broker-0")
    deadlines.hear_status({})
    clock.now_s += 14
    assert deadlines.missed("broker-0", row(ready=True)) == ""
    clock.now_s += 2
    assert "for 16 s" in deadlines.missed("broker-0", row(ready=True))
    deadlines.hear_status({})
    assert deadlines.missed("broker-0", row(ready=True)) == ""


def test_the_time_in_which_the_launcher_itself_was_stopped_does_not_count(deadlines, clock):
    """After Ctrl-Z and fg a start and the broker's silence have as much time left as before, and no more
    where processes waited for a core meanwhile.
    """
    deadlines.begin("sampler-0")
    deadlines.hear_status({})
    clock.now_s, clock.starved_s = clock.now_s + 3600, 1800.0
    deadlines.postpone(3600)
    assert deadlines.missed("sampler-0", {}) == deadlines.missed("broker-0", row(ready=True)) == ""
    clock.now_s += 31
    assert "not ready after 31 s" in deadlines.missed("sampler-0", {})
    assert "has not reported for 31 s" in deadlines.missed("broker-0", row(ready=True))
