"""Samplers on several machines: how many each has, and why."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spreeze_zmq.broker.hosts import BY_HAND, HERE, Host, first_to_keep, spread
from spreeze_zmq.broker.knobs import Samplers
from spreeze_zmq.broker.rule import Rule
from spreeze_zmq.broker.window import Spell, Window

hosts = st.lists(
    st.builds(
        Host,
        cores=st.integers(1, 64),
        busy_cores=st.floats(0, 64),
        samplers=st.integers(1, 9),
        minimum=st.integers(0, 1),
        maximum=st.integers(9, 20),
        makes_per_s=st.floats(0, 1000),
    ),
    min_size=1,
    max_size=5,
).map(
    lambda made: [replace(host, name=f"node-{index}" if index else HERE) for index, host in enumerate(made)]
)


@given(hosts, st.integers(0, 100), st.integers(0, 3))
def test_whatever_is_wanted_is_spread_within_the_bounds(machines, total, room):
    """And as near to it as they allow; nobody loses while the number grows, or gets more while it shrinks."""
    counts = spread(total, first_to_keep(machines), {host.name: room for host in machines})
    assert all(host.minimum <= counts[host.name] <= host.maximum for host in machines)
    least, most = sum(host.minimum for host in machines), sum(host.maximum for host in machines)
    assert sum(counts.values()) == min(max(total, least), most)
    signs = {(counts[host.name] > host.samplers) - (counts[host.name] < host.samplers) for host in machines}
    assert signs <= {0, 1} or signs <= {0, -1}


class Lab:
    """Machines of which each has its own pace: seconds of a sample, on a core, and cores.

    ``takes_per_s`` samples/s are what the learners, which use one core of the launcher's machine, can take.
    """

    def __init__(self, takes_per_s, paces, waits=False):
        self.takes_per_s, self.paces, self.waits = takes_per_s, paces, waits

    def window(self, counts, ratio=8.0):
        """What would be measured with so many samplers on each machine."""
        able, cpu = {}, 0.0 if self.waits else 1.0
        for name, (step_s, cores) in self.paces.items():
            free = cores - (name == HERE)
            share = 1.0 if self.waits else min(1.0, free / max(counts[name], 1e-9))
            able[name] = share / step_s
        produced = sum(able[name] * counts[name] for name in counts)
        taken = min(produced, self.takes_per_s)
        busy = taken / produced if produced else 0.0
        spells = [
            Spell(
                "sampler",
                index,
                5.0,
                busy,
                1 - busy,
                0.0,
                cpu * busy,
                produced_per_s=busy * able[name],
                host=name,
            )
            for name, count in counts.items()
            for index in range(count)
        ]
        work = taken / self.takes_per_s
        rates = {"received_per_s": taken, "trained_per_s": ratio * taken}
        critic = Spell("critic_learner", 0, 5.0, work, 0.0, 1 - work, work, **rates)
        machines = [
            Host(
                cores=cores,
                busy_cores=min(cores, cpu * busy * counts[name] + work * (name == HERE)),
                name=name,
                samplers=counts[name],
                minimum=int(name == HERE),
                maximum=16,
                makes_per_s=able[name],
            )
            for name, (_, cores) in self.paces.items()
        ]
        order = first_to_keep(machines)
        places = [host.name for host in order]
        spells.sort(key=lambda spell: places.index(spell.host))
        return Window(tuple(spells), (critic,), (), ratio, tuple(order))

    def settle(self, counts, decisions=8):
        """The counts in the end, and how many changes that took."""
        knob, changes = Samplers(0, 0, 0), 0
        rule = Rule([knob])
        for turn in range(decisions):
            window = self.window(counts)
            knob.look(window)
            change = rule.decide(window, 1000.0 * turn)
            if change is not None:
                counts, changes = knob.spread(change.count, window), changes + 1
        return counts, changes


def test_a_slow_machine_is_the_first_to_lose():
    """Two machines of which one takes three times as long for a step; a third of their samples is taken."""
    lab = Lab(1500, {HERE: (0.001, 2), "fast": (0.001, 4), "slow": (0.003, 4)})
    counts, _ = lab.settle({HERE: 1, "fast": 4, "slow": 4})
    assert counts["slow"] == 0
    assert counts[HERE] + counts["fast"] in (2, 3)


def test_a_crowded_launchers_machine_loses_before_the_others():
    """Its samplers take cores from the learners."""
    crowded = Host(2, 2.0, HERE, samplers=2, minimum=1, makes_per_s=1000.0)
    node = Host(4, 4.0, "node-1", samplers=4, makes_per_s=500.0)
    assert spread(4, first_to_keep([crowded, node]), {}) == {HERE: 1, "node-1": 3}
    idle = replace(crowded, busy_cores=0.5)
    assert spread(4, first_to_keep([idle, node]), {}) == {HERE: 2, "node-1": 2}


def test_who_starves_gets_samplers_where_cores_are_free():
    """None more where all cores are in use: the free ones of the third are far more than enough."""
    lab = Lab(8000, {HERE: (0.001, 2), "node-1": (0.001, 2), "node-2": (0.001, 6)})
    counts, changes = lab.settle({HERE: 1, "node-1": 2, "node-2": 2})
    assert counts["node-1"] == 2
    assert 2 < counts["node-2"] <= 6
    assert sum(counts.values()) == 9
    assert changes == 1


@pytest.mark.parametrize("takes_per_s", [300, 1000, 3000])
def test_samplers_that_wait_are_as_many_as_are_needed_on_machines_of_any_size(takes_per_s):
    """Steps of 10 ms without computing: ten samplers make what a core would."""
    lab = Lab(takes_per_s, {HERE: (0.01, 2), "node-1": (0.01, 2), "node-2": (0.01, 8)}, waits=True)
    counts, _ = lab.settle({HERE: 1, "node-1": 2, "node-2": 8}, decisions=12)
    made = 100 * sum(counts.values())
    assert made >= 0.97 * min(takes_per_s, 100 * 3 * 16)
    assert made <= max(1.5 * takes_per_s, 1100)


def test_whoever_was_started_by_hand_stays():
    """The others make up for what these do not make."""
    knob = Samplers(1, 1, 4)
    window = Lab(10_000, {HERE: (0.001, 4)}).window({HERE: 1})
    theirs = [replace(window.samplers[0], index=9 + index, host=BY_HAND) for index in range(2)]
    knob.look(replace(window, samplers=(*theirs, *window.samplers)))
    assert (knob.present, knob.minimum, knob.maximum) == (3, 3, 18)
    assert knob.spread(5, window) == {HERE: 3}
