"""From cumulative reports to what every process did over the same seconds."""

from dataclasses import replace

import pytest

from spreeze_zmq.autoscale.windows import Windows

CORES = 4


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


def fed(seconds, granule=16.0, **critic):
    """Windows that have heard two samplers and both learners twice a second."""
    windows = Windows(replay_ratio=8.0, granule=granule, cores=CORES)
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
    window = fed(10).window(2, 0.0, 10.0)
    sampler = window.samplers[1]
    assert (sampler.index, sampler.busy, sampler.blocked, sampler.cpu) == (1, 0.75, 0.25, 0.5)
    assert sampler.produced_per_s == 50
    assert (window.critic.received_per_s, window.critic.trained_per_s) == (100, 800)
    assert (window.busy_cores, window.cores) == (3.0, CORES)
    assert window.measured_ratio == 8.0
    assert window.steady


def test_a_window_begins_after_the_last_change():
    """Four seconds must have passed."""
    assert fed(10).window(2, 7.0, 10.0) is None
    assert fed(10).window(2, 6.0, 10.0) is not None


def test_rare_and_large_rollouts_make_it_longer():
    """Eight of 80 transitions come in 6.4 s: four seconds say too little, eight are enough."""
    window = fed(10, granule=80.0).window(2, 0.0, 10.0)
    assert window.critic.span_s == pytest.approx(8.0)
    assert fed(10, granule=80.0).window(2, 3.0, 10.0) is None


def test_another_number_of_samplers_than_expected_says_nothing():
    """One is starting, or somebody started one by hand."""
    assert fed(10).window(1, 0.0, 10.0) is None
    assert fed(10).window(3, 0.0, 10.0) is None


def test_a_ratio_that_is_not_kept_is_not_steady():
    """As after the warm-up, when the learner catches up with what was collected."""
    assert not fed(10, slow=0.5).window(2, 0.0, 10.0).steady


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
    assert not windows.window(2, 0.0, 12.0).steady


@pytest.mark.parametrize("interval_s", [0.505, 0.54, 0.58, 0.7, 0.9])
@pytest.mark.parametrize("phase_s", [0.0, 0.02, 0.25])
def test_steady_rates_are_steady_however_reports_and_looks_fall_together(interval_s, phase_s):
    """All report at once, ``phase_s`` after a look or in any beat with looks once a second."""
    windows, report_s, look_s, seen = Windows(8.0, 16.0, CORES), phase_s, 0.0, []
    while look_s < 30.0:
        now_s = min(report_s, look_s)
        if now_s == report_s:
            for role in ("sampler", "critic_learner", "actor_learner"):
                windows.take(f"{role}-0", 1, report(role, now_s, per_s=100), now_s)
            report_s += interval_s
        if now_s == look_s:
            seen.append(windows.window(1, 0.0, now_s))
            look_s += 1.02
    assert all(window.steady for window in seen if window is not None)
    assert len([window for window in seen if window is not None]) >= 24


def test_a_new_life_begins_anew():
    """Counters that fall with a restart are no negative rates."""
    windows = fed(10)
    windows.take("sampler-0", 2, report("sampler", 0.5, per_s=50), 10.5)
    assert windows.window(2, 0.0, 10.5) is None
    windows.lose("sampler-1")
    assert "sampler-1" not in windows.spells(6.0, 10.0)


def test_what_is_refused_and_how_many_work_are_in_a_spell():
    """Of the critic-learner what it dropped, of a sampler its workers."""
    windows = Windows(replay_ratio=8.0, granule=16.0, cores=CORES, lanes={"sampler": 4})
    for t_s in range(5):
        fields = report("critic_learner", t_s, per_s=100)
        fields["taken"] = {"sampler-0/1": {"received": 60 * t_s, "refused": 40 * t_s}}
        windows.take("critic_learner-0", 1, fields, t_s)
        windows.take("sampler-0", 1, report("sampler", t_s, per_s=100), t_s)
    spells = windows.spells(0.0, 4.0)
    critic = spells["critic_learner-0"]
    assert (critic.received_per_s, critic.refused_per_s, critic.lanes) == (60, 40, 1)
    assert spells["sampler-0"].lanes == 4


def test_steps_under_way_and_switches_are_in_a_spell():
    """Of a sampler whose first rollout is not done, and of one that does not tell."""
    windows = Windows(replay_ratio=8.0, granule=16.0, cores=CORES)
    for t_s in range(5):
        fields = report("sampler", t_s) | {"counters": {"stepped_transitions": 40 * t_s}}
        fields |= {"switches": {"voluntary": 30 * t_s, "involuntary": 2 * t_s}}
        windows.take("sampler-0", 1, fields, t_s)
        windows.take("sampler-1", 1, report("sampler", t_s), t_s)
    told, silent = (windows.spells(0.0, 4.0)[f"sampler-{index}"] for index in range(2))
    assert (told.stepped_per_s, told.voluntary_per_s, told.involuntary_per_s) == (40, 30, 2)
    assert (silent.stepped_per_s, silent.voluntary_per_s, silent.involuntary_per_s) == (0, 0, 0)


def test_a_sampler_limps_that_does_less_than_half_of_what_others_do():
    """In as much time of work; how long it is blocked does not matter."""
    window = fed(10).window(2, 0.0, 10.0)
    first, second = window.samplers
    assert window.limping == frozenset()
    slow = replace(second, busy=1.0, produced_per_s=20.0)
    assert replace(window, samplers=(first, slow)).limping == {1}
    blocked = replace(second, busy=0.3, produced_per_s=20.0)
    assert replace(window, samplers=(first, blocked)).limping == frozenset()
