"""The broker's view of the balance: feeds reports and the machine's load to the rule, returns its decisions.

The caller passes all times, in seconds since the run began, and carries the decisions out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any

from spreeze_zmq.base.machine import core_time
from spreeze_zmq.base.usage import Gpus, busy_cpu_s
from spreeze_zmq.broker.hosts import HERE, Host
from spreeze_zmq.broker.knobs import BatchSize, Knob, Samplers
from spreeze_zmq.broker.machines import Machine
from spreeze_zmq.broker.rule import Change, Rule
from spreeze_zmq.broker.window import Window
from spreeze_zmq.broker.windows import Windows
from spreeze_zmq.plan import tuning
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import LEARNERS, SAMPLER
from spreeze_zmq.plan.shares import come_to_nothing
from spreeze_zmq.plan.tuning import Tuning

#: The time that rates take to settle after a process came or went.
SETTLE_S = 1.0
#: The seconds that the journal's figures of each process cover.
JOURNAL_S = 4.0
#: The machines of a run that nobody has joined.
NONE: Mapping[str, Machine] = MappingProxyType({})


class Balancer:
    """Watches a run and decides when its number of samplers or the learners' batch size changes.

    Attributes:
        samplers: the number of samplers.
        batch_size: the learners' batch size; None where the topology fixes it.
        rule: tries values, and keeps them or goes back.
        windows: the reports.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.cores, self.gpus = plan, core_time(), Gpus()
        first, *others = plan.learning.learners
        critics = [f"{first}-{index}" for index in range(plan.components[first].count.initial)]
        followers = [f"{role}-0" for role in others]
        sampler = plan.components[SAMPLER]
        own, start_s = sampler.count.maximum if sampler.launched else 0, sampler.start_timeout_s
        self.windows = Windows(plan.balance.replay_ratio, self.cores, critics, followers, own, start_s)
        self.samplers, self.batch_size = _samplers(plan), _batch_size(plan)
        knobs: list[Knob | None] = [self.samplers, self.batch_size]
        self.rule = Rule([knob for knob in knobs if knob is not None])
        self.last_change = ""
        self._decision: dict[str, Any] = {}
        self._since_s = 0.0
        self._training = False
        self._own = self.samplers.minimum, self.samplers.maximum, self.samplers.movable
        self._hosts: dict[str, Host] = {}
        self._before: dict[str, int] = {}

    def take(self, sender: str, incarnation: int, fields: Mapping[str, Any], now_s: float) -> None:
        """Enter a report."""
        begins = self.windows.take(sender, incarnation, fields, now_s)
        if begins and fields["role"] in (SAMPLER, *LEARNERS):
            self.disturb(now_s)

    def set_replay_ratio(self, target: float, now_s: float) -> None:
        """Keep another ratio from now on."""
        self.windows.replay_ratio = target
        self.disturb(now_s)

    def lose(self, sender: str, now_s: float) -> None:
        """Forget a process that has ended."""
        self.windows.lose(sender)
        self.disturb(now_s)

    def disturb(self, now_s: float) -> None:
        """Discard what was measured until ``SETTLE_S`` from now, since the run has changed."""
        self._since_s = now_s + SETTLE_S

    def set_batch_size(self, batch_size: int) -> None:
        if self.batch_size is not None:
            self.batch_size.present = batch_size

    def step(
        self, num_samplers: int, now_s: float, *, training: bool, machines: Mapping[str, Machine] = NONE
    ) -> Change | None:
        """The change to make now, if any; to be called about once a second.

        Args:
            num_samplers: how many samplers the launcher keeps on its own machine; 0 where it keeps none.
            now_s: the time.
            training: the learners have begun to train.
            machines: the other machines of the run, by name.
        """
        self.windows.take_busy(busy_cpu_s(), now_s)
        if training != self._training:
            self._training = training
            self.disturb(now_s)
        hosts = self._look(num_samplers, machines)
        granule = self._granule() if training else 0.0  # whether samplers sleep shows in any window
        window = self.windows.window(hosts, granule, self._since_s, now_s)
        if window is None:
            return None
        self.samplers.look(window)
        self._hosts = {host.name: host for host in window.hosts}
        change = self.rule.decide(window, now_s) if training else self.rule.begin(window)
        steady = window.steady and training
        self._decision = self.rule.figures(window) if steady else {**self._decision, "steady": False}
        if change is not None:
            self.last_change = change.reason
            self.disturb(now_s)
            if change.option:
                self.set_batch_size(change.count)
            else:
                change = replace(change, hosts=self._spread(change.count, window))
        return change

    def _look(self, num_samplers: int, machines: Mapping[str, Machine]) -> list[Host]:
        """The machines as they are now, each with what a sampler made there when it was last measured."""
        minimum, maximum, movable = self._own
        least, most = (minimum, maximum) if movable and num_samplers else (num_samplers, num_samplers)
        cpus = self.plan.pinning.get("cpus", {}).get(SAMPLER)
        room = len(cpus) if cpus else math.inf
        hosts = [Host(self.cores, 0.0, HERE, num_samplers, least, most, sampler_cores=room)]
        hosts += [
            Host(machine.cores, machine.busy, name, machine.samplers, 0, machine.most)
            for name, machine in machines.items()
            if machine.most
        ]
        self.windows.machines = {
            process: name for name, machine in machines.items() for process in machine.processes
        }
        known = self._hosts
        return [
            replace(host, makes_per_s=known[host.name].makes_per_s) if host.name in known else host
            for host in hosts
        ]

    def _spread(self, count: int, window: Window) -> dict[str, int]:
        """The numbers of a change by machine; one that goes back restores those before it."""
        now = {host.name: host.samplers for host in window.hosts}
        counts, self._before = self._before, now
        if counts.keys() != now.keys() or sum(counts.values()) + self.samplers.by_hand != count:
            counts = self.samplers.spread(count, window)
        return {name: number for name, number in counts.items() if number != now[name]}

    def tuning(self) -> Tuning | None:
        """The settled number of samplers, for the next run; None where it is fixed or has not settled, where
        other machines had a part in it, or where it is that of a replay ratio that a request has set.
        """
        is_stated = self.windows.replay_ratio == self.plan.balance.replay_ratio
        if not (self.samplers.movable and self.rule.settled and is_stated) or len(self._hosts) > 1:
            return None
        figures = self._decision
        return Tuning(figures["samplers"], figures["produced_per_s"], figures["trained_per_s"])

    def status(self) -> dict[str, Any]:
        """The balance in the run's status: whether worker counts may change, whether the last steady window
        requested no change, and the last change with its reason.
        """
        return {
            "movable": self.samplers.movable,
            "settled": self.rule.settled,
            "last_change": self.last_change,
        }

    def figures(self, now_s: float, *, rows: bool = True) -> dict[str, Any]:
        """Every figure that decisions rest on, for the journal; with ``rows`` those of each process."""
        spells = self.windows.spells(now_s - JOURNAL_S, now_s) if rows else {}
        return {
            "cores": self.cores,
            "busy_cores": self.windows.busy_cores(now_s - JOURNAL_S, now_s),
            "gpus": self.gpus.figures(),
            "processes": {name: asdict(spell) for name, spell in spells.items()},
            "decision": self._decision,
            **self.status(),
        }

    def _granule(self) -> float:
        """Transitions that arrive, or are needed, at once: those of a rollout, or of one update."""
        sampler = self.plan.components[SAMPLER].options
        rollout = sampler.get("rollout_steps", 1) * sampler.get("envs", 1)
        batch = self.batch_size.present if self.batch_size else self.plan.learning.batch_size
        update = len(self.windows.critics) * batch / self.windows.replay_ratio
        return max(1.0, float(rollout), update)


def _samplers(plan: Plan) -> Samplers:
    count = plan.components[SAMPLER].count
    least, most = (count.minimum, count.maximum) if tuning.movable(plan) else (count.initial, count.initial)
    return Samplers(count.initial, least, most)


def _batch_size(plan: Plan) -> BatchSize | None:
    """The knob over the curve that was measured before the run, of the sizes of which each of the data's
    shares is a transition; None where the topology fixes the size.
    """
    if (choice := plan.measured.get("batch_size")) is None:
        return None
    chosen = int(choice["chosen"])
    curve = {int(s): float(rate) for s, rate in choice["curve"] if not come_to_nothing(plan.data, int(s))}
    return BatchSize(chosen, min(curve), chosen, curve=curve)
