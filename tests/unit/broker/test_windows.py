"""From cumulative reports to what every process did over the same seconds."""

from dataclasses import replace

import pytest

from spreeze_zmq.broker.hosts import BY_HAND, HERE, Host
from spreeze_zmq.broker.knobs import Samplers
from spreeze_zmq.broker.receipts import MOST_STREAMS
from spreeze_zmq.broker.windows import Windows

CORES = 4
#: Transitions of a rollout.
GRANULE = 16.0


def last(windows, num_samplers, since_s, now_s, granule=GRANULE):
    """The window that ends now."""
    return windows.window([Host(CORES, 0.0, samplers=num_samplers)], granule, since_s, now_s)


def report(role, t_s, *, busy=1.0, blocked=0.0, per_s=0.0, slow=1.0):
    """The report of a process at work for ``t_s`` at steady rates; ``per_s`` in transitions."""
    clock = {"busy": busy * t_s, "blocked": blocked * t_s, "starved": (1 - busy - blocked) * t_s, "idle": 0.0}
    fields = {"role": role, "clock_s": clock, "cpu_s": 0.5 * t_s, "rss_bytes": 1000, "counters": {}}
    if role == "sampler":
        fields["pushed"] = {"critic_learner": per_s * t_s, "actor_learner": per_s * t_s}
    if role == "critic_learner":
        fields["taken"] = {"sampler-0/1": {"received": per_s * t_s, "refused": 0}}
        fields["counters"] = {"trained_transitions": 8 * slow * per_s * t_s}
    return fields


def fed(seconds, **critic):
    """Windows that have heard two samplers and both learners twice a second."""
    windows = Windows(8.0, CORES, ["critic_learner-0"], ["actor_learner-0"])
    for half in range(2 * seconds + 1):
        t_s = half / 2
        for index in range(2):
            windows.take(
                f"sampler-{index}", 1, report("sampler", t_s, busy=0.75, blocked=0.25, per_s=50), t_s
            )
        windows.take("critic_learner-0", 1, report("critic_learner", t_s, per_s=100, **critic), t_s)
        windows.take("actor_learner-0", 1, report("actor_learner", t_s), t_s)
        windows.take_busy(3.0 * t_s, t_s)
    return windows


def test_shares_and_rates_are_those_between_two_reports():
    """Of each process, and of the machine."""
    window = last(fed(10), 2, 0.0, 10.0)
    sampler = window.samplers[1]
    assert (sampler.index, sampler.busy, sampler.blocked, sampler.cpu) == (1, 0.75, 0.25, 0.5)
    assert sampler.produced_per_s == 50
    assert (window.received_per_s, window.trained_per_s) == (100, 800)
    assert (window.here.busy_cores, window.here.cores) == (3.0, CORES)
    assert window.measured_ratio == 8.0
    assert window.steady


def test_the_rates_of_a_learner_that_hears_thousands_of_lives_are_exact_and_few_lives_are_kept():
    """A report lists some of those that the learner keeps, old ones too."""
    windows = Windows(8.0, CORES, ["critic_learner-0"])
    for life in range(3 * MOST_STREAMS):
        fields = report("critic_learner", life / 10)
        lives = (life, max(0, life - MOST_STREAMS + 1))
        fields["taken"] = {f"sampler-0/{one}": {"received": 20, "refused": 5} for one in lives}
        windows.take("critic_learner-0", 1, fields, life / 10)
    spell = windows.spells(life / 10 - 10.0, life / 10)["critic_learner-0"]
    assert (spell.received_per_s, spell.refused_per_s) == pytest.approx((200, 50))
    assert len(windows._taken["critic_learner-0"]._streams) <= 2 * MOST_STREAMS


def test_a_window_begins_after_the_last_change():
    """Five seconds must have passed."""
    assert last(fed(10), 2, 6.0, 10.0) is None
    assert last(fed(10), 2, 5.0, 10.0) is not None


def test_rare_and_large_rollouts_make_it_longer():
    """Eight of 80 transitions come in 6.4 s: five seconds say too little, ten are enough."""
    window = last(fed(10), 2, 0.0, 10.0, granule=80.0)
    assert window.critics[0].span_s == pytest.approx(10.0)
    assert last(fed(10), 2, 1.0, 10.0, granule=80.0) is None


def test_another_number_of_samplers_than_expected_says_nothing():
    """One is starting, or ending."""
    assert last(fed(10), 1, 0.0, 10.0) is None
    assert last(fed(10), 3, 0.0, 10.0) is None


def test_each_sampler_counts_on_its_machine():
    """One that has joined, or that somebody started by hand: its number is after those of the launcher's."""
    windows = fed(10)
    windows.own, windows.machines = 1, {"sampler-1": "node-1"}
    hosts = [Host(CORES, 0.0, samplers=1), Host(2, 2.0, "node-1", samplers=1)]
    window = windows.window(hosts, GRANULE, 0.0, 10.0)
    assert {spell.host: spell.index for spell in window.samplers} == {HERE: 0, "node-1": 1}
    assert window.core_shares == {HERE: 1.0, "node-1": 0.5 / 0.75}  # its own cores are all in use
    assert [host.makes_per_s > 60 for host in window.hosts] == [True, True]
    windows.machines = {}
    assert [spell.host for spell in last(windows, 1, 0.0, 10.0).samplers] == [BY_HAND, HERE]


def test_samplers_that_start_on_another_machine_are_awaited_for_a_time():
    """The others alone say nothing of their trial; one that never comes does not stop the balance."""
    windows = fed(35)
    windows.own, windows.machines, windows.start_s = 1, {"sampler-1": "node-1"}, 20.0

    def is_there(count, now_s):
        hosts = [Host(CORES, 0.0, samplers=1), Host(2, 0.0, "node-1", samplers=count)]
        return windows.window(hosts, GRANULE, 0.0, now_s) is not None

    assert is_there(1, 12.0)
    assert [is_there(2, now_s) for now_s in (13.0, 32.0, 33.0)] == [False, False, True]
    assert not is_there(3, 33.0)
    assert is_there(1, 33.0)
    windows.take("sampler-2", 1, report("sampler", 33.0), 33.0)
    windows.machines = {"sampler-1": "node-1", "sampler-2": "node-1"}
    assert is_there(2, 33.0)


def test_a_learner_elsewhere_takes_no_cores_of_this_machine():
    """It is no reason to have fewer samplers here, nor does it show whether processes here wait for cores."""
    windows = fed(10)
    room = Samplers(2, 1, 100)._rooms(last(windows, 2, 0.0, 10.0))[HERE]
    windows.machines = {"critic_learner-0": "node-1", "actor_learner-0": "node-2"}
    window = last(windows, 2, 0.0, 10.0)
    assert [spell.host for spell in (*window.critics, *window.followers)] == ["node-1", "node-2"]
    assert Samplers(2, 1, 100)._rooms(window)[HERE] == room + 2  # each used half a core, as a sampler does


def test_a_ratio_that_is_not_kept_is_not_steady():
    """As after the warm-up, when the learner catches up with what was collected."""
    assert not last(fed(10, slow=0.5), 2, 0.0, 10.0).steady


def test_rates_that_drift_are_not_steady():
    """The learner became three times slower in the middle of the window."""
    windows = fed(10)
    for half in range(21, 25):
        fields = report("critic_learner", half / 2, per_s=100)
        worked_s = 10.0 + (half / 2 - 10.0) / 3
        fields |= {
            "taken": {"sampler-0/1": {"received": 100 * worked_s, "refused": 0}},
            "counters": {"trained_transitions": 800 * worked_s},
        }
        windows.take("critic_learner-0", 1, fields, half / 2)
        for name in ("sampler-0", "sampler-1"):
            windows.take(name, 1, report("sampler", half / 2, per_s=50), half / 2)
        windows.take("actor_learner-0", 1, report("actor_learner", half / 2), half / 2)
    assert not last(windows, 2, 0.0, 12.0).steady


@pytest.mark.parametrize("interval_s", [0.505, 0.54, 0.58, 0.7, 0.9])
@pytest.mark.parametrize("phase_s", [0.0, 0.02, 0.25])
def test_steady_rates_are_steady_however_reports_and_looks_fall_together(interval_s, phase_s):
    """All report at once, ``phase_s`` after a look or in any beat with looks once a second."""
    windows, report_s, look_s, seen = (
        Windows(8.0, CORES, ["critic_learner-0"], ["actor_learner-0"]),
        phase_s,
        0.0,
        [],
    )
    while look_s < 30.0:
        now_s = min(report_s, look_s)
        if now_s == report_s:
            for role in ("sampler", "critic_learner", "actor_learner"):
                windows.take(f"{role}-0", 1, report(role, now_s, per_s=100), now_s)
            report_s += interval_s
        if now_s == look_s:
            seen.append(last(windows, 1, 0.0, now_s))
            look_s += 1.02
    assert all(window.steady for window in seen if window is not None)
    assert len([window for window in seen if window is not None]) >= 24


def test_a_restarted_process_has_new_counters():
    """Counters that fall with a restart are no negative rates."""
    windows = fed(10)
    windows.take("sampler-0", 2, report("sampler", 0.5, per_s=50), 10.5)
    assert last(windows, 2, 0.0, 10.5) is None
    windows.lose("sampler-1")
    assert "sampler-1" not in windows.spells(6.0, 10.0)


def test_what_is_refused_counts_for_nothing():
    """Forty of a hundred are dropped as too old: a sampler makes sixty that count."""
    windows = Windows(8.0, CORES, ["critic_learner-0"])
    for t_s in range(11):
        fields = report("critic_learner", t_s, per_s=100)
        fields["taken"] = {"sampler-0/1": {"received": 60 * t_s, "refused": 40 * t_s}}
        windows.take("critic_learner-0", 1, fields, t_s)
        windows.take("sampler-0", 1, report("sampler", t_s, per_s=100), t_s)
    window = last(windows, 1, 0.0, 10.0)
    assert (window.received_per_s, window.useful) == (60, 0.6)
    assert window.makes_per_s == [60]


def test_what_each_side_could_do_is_its_rate_while_it_works():
    """Samplers that are blocked a quarter of their time make a third more than they are asked for; a learner
    that starves half of its time could take twice as much.
    """
    window = last(fed(10, busy=0.5), 2, 0.0, 10.0)
    assert window.makes_per_s == pytest.approx([50 / 0.75] * 2)
    assert window.takes_per_s == pytest.approx(200)
    assert window.starved == 0.5


def test_several_critic_learners_are_one():
    """What they train is added up; without reports of one there is no window."""
    windows = Windows(8.0, CORES, ["critic_learner-0", "critic_learner-1"], ["actor_learner-0"])
    for t_s in range(11):
        for name in ("critic_learner-0", "actor_learner-0", "sampler-0"):
            role = name[:-2]
            windows.take(name, 1, report(role, t_s, per_s=50), t_s)
    assert last(windows, 1, 0.0, 10.0) is None
    for t_s in range(11):
        windows.take("critic_learner-1", 1, report("critic_learner", t_s, per_s=50), t_s)
    window = last(windows, 1, 0.0, 10.0)
    assert (window.trained_per_s, window.received_per_s) == (800, 100)


def test_a_run_without_an_actor_learner_has_windows_too():
    """An algorithm may have one learner."""
    windows = Windows(8.0, CORES, ["critic_learner-0"])
    for t_s in range(11):
        windows.take("critic_learner-0", 1, report("critic_learner", t_s, per_s=50), t_s)
        windows.take("sampler-0", 1, report("sampler", t_s, per_s=50), t_s)
    assert last(windows, 1, 0.0, 10.0).steady


def test_time_that_is_waited_for_a_core_is_no_work():
    """All cores are busy, and the process that waits least for anything else has half a core: a
    sampler that is busy for all of its time would do the same in half of it. One that sleeps would not.
    """
    window = last(fed(10), 2, 0.0, 10.0)
    first, second = window.samplers
    busy, asleep = replace(first, busy=1.0, cpu=0.5), replace(second, busy=1.0, cpu=0.1)
    crowded = replace(window, samplers=(busy, asleep), critics=(), followers=(), hosts=(Host(CORES, 3.9),))
    assert crowded.core_shares[HERE] == 0.5
    assert crowded.makes_per_s == pytest.approx([100, 50 / 0.9])
    assert replace(crowded, hosts=(Host(CORES, 2.0),)).makes_per_s == [50, 50]


def test_rates_do_not_depend_on_how_many_streams_fit_in_a_report():
    """A thousand streams, each report of which lists a fifth and is followed by others at once."""
    windows = Windows(8.0, CORES, ["critic_learner-0"])
    for half in range(21):
        t_s = half / 2
        windows.take("sampler-0", 1, report("sampler", t_s, per_s=1000), t_s)
        for fifth in range(5):
            streams = range(200 * fifth, 200 * fifth + 200)
            fields = report("critic_learner", t_s, per_s=1000)
            fields["taken"] = {f"sampler-{i}/1": {"received": t_s, "refused": t_s} for i in streams}
            windows.take("critic_learner-0", 1, fields, t_s + 0.002 * fifth)
    window = last(windows, 1, 0.0, 10.0)
    assert window.received_per_s == pytest.approx(1000)
    assert window.useful == 0.5
    assert window.steady
