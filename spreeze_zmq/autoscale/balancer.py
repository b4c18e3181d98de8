"""What the broker knows of the balance: windows over the reports, the machine, and the decision that follows.

Times are the caller's, in seconds since the run began; nothing is sent from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from spreeze_zmq.autoscale import tuning
from spreeze_zmq.autoscale.knobs import SMALLEST_BATCH, BatchSize, Knob, Samplers
from spreeze_zmq.autoscale.rule import Change, Rule
from spreeze_zmq.autoscale.tuning import Tuning
from spreeze_zmq.autoscale.windows import Windows
from spreeze_zmq.metrics import Gpus, busy_cpu_s
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import LEARNERS, SAMPLER
from spreeze_zmq.topology.resolve import available_cores

if TYPE_CHECKING:
    from spreeze_zmq.plan.status import Balance

#: After a process has come or gone the rates need this long to be those of the new count.
SETTLE_S = 1.0
#: What the journal says of each process covers this long.
JOURNAL_S = 4.0


class Balancer:
    """Watches a run and says when its number of samplers or the learners' batch should change.

    Attributes:
        samplers: the number of them.
        batch_size: of the learners; None where the topology says it.
        rule: tries values, and keeps them or goes back.
        windows: of the reports.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.cores, self.gpus = plan, available_cores(), Gpus()
        first, *others = plan.learning.learners
        critics = [f"{first}-{index}" for index in range(plan.components[first].count.initial)]
        followers = [f"{role}-0" for role in others]
        self.windows = Windows(plan.balance.replay_ratio, self.cores, critics, followers)
        self.samplers, self.batch_size = _samplers(plan), _batch_size(plan)
        knobs: list[Knob | None] = [self.samplers, self.batch_size]
        self.rule = Rule([knob for knob in knobs if knob is not None and knob.movable])
        self.last_change = ""
        self._decision: dict[str, Any] = {}
        self._since_s = 0.0
        self._training = False

    def take(self, sender: str, incarnation: int, fields: Mapping[str, Any], now_s: float) -> None:
        """Enter a report."""
        begins = self.windows.take(sender, incarnation, fields, now_s)
        if begins and fields["role"] in (SAMPLER, *LEARNERS):
            self.disturb(now_s)

    def lose(self, sender: str, now_s: float) -> None:
        """A process is gone."""
        self.windows.lose(sender)
        self.disturb(now_s)

    def disturb(self, now_s: float) -> None:
        """Something changed: what was measured until now and a little longer says nothing of what comes."""
        self._since_s = now_s + SETTLE_S

    def go_on_with(self, batch_size: int) -> None:
        """Batches are so large now."""
        if self.batch_size is not None:
            self.batch_size.present = batch_size

    def step(self, num_samplers: int, now_s: float, *, training: bool) -> Change | None:
        """Look at the machine and decide; to be called about once a second.

        Args:
            num_samplers: how many the launcher keeps; 0 where it keeps none.
            now_s: the time.
            training: the learners are at work.
        """
        self.windows.take_busy(busy_cpu_s(), now_s)
        if training != self._training:
            self._training = training
            self.disturb(now_s)
        if num_samplers == 0:
            return None
        self.samplers.present = num_samplers
        window = self.windows.window(num_samplers, self._granule(), self._since_s, now_s)
        if window is None:
            return None
        change = self.rule.decide(window, now_s) if training else self.rule.begin(window)
        steady = window.steady and training
        self._decision = self.rule.figures(window) if steady else {**self._decision, "steady": False}
        if change is not None:
            self.last_change = change.reason
            self.disturb(now_s)
            if change.option:
                self.go_on_with(change.count)
        return change

    def found(self) -> Tuning | None:
        """What is worth knowing for the next run; None where the count is fixed or has not settled."""
        if not (self.samplers.movable and self.rule.settled):
            return None
        figures = self._decision
        return Tuning(figures["samplers"], figures["produced_per_s"], figures["trained_per_s"])

    def status(self) -> Balance:
        """What the run's status says of the balance."""
        return {
            "movable": self.samplers.movable,
            "settled": self.rule.settled,
            "last_change": self.last_change,
        }

    def figures(self, now_s: float) -> dict[str, Any]:
        """Every number that decisions are made from, for the journal."""
        spells = self.windows.spells(now_s - JOURNAL_S, now_s)
        return {
            "cores": self.cores,
            "busy_cores": self.windows.busy_cores(now_s - JOURNAL_S, now_s),
            "gpus": self.gpus.figures(),
            "processes": {name: asdict(spell) for name, spell in spells.items()},
            "decision": self._decision,
            **self.status(),
        }

    def _granule(self) -> float:
        """Transitions that come or are asked for at once: those of a rollout, or of what one update needs."""
        sampler = self.plan.components[SAMPLER].options
        rollout = sampler.get("rollout_steps", 1) * sampler.get("envs", 1)
        batch = self.batch_size.present if self.batch_size else self.plan.learning.batch_size
        update = len(self.windows.critics) * batch / self.plan.balance.replay_ratio
        return max(1.0, float(rollout), update)


def _samplers(plan: Plan) -> Samplers:
    count = plan.components[SAMPLER].count
    least, most = (count.minimum, count.maximum) if tuning.movable(plan) else (count.initial, count.initial)
    return Samplers(count.initial, least, most)


def _batch_size(plan: Plan) -> BatchSize | None:
    """From what was measured before the run: {chosen, curve: [[size, rate], ...]}."""
    if (choice := plan.measured.get("batch_size")) is None:
        return None
    curve, chosen = {int(size): float(rate) for size, rate in choice["curve"]}, int(choice["chosen"])
    return BatchSize(chosen, SMALLEST_BATCH, chosen, curve=curve)
