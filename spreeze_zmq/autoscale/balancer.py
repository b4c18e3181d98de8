"""What the broker knows of the balance: windows over the reports, the machine, and the decision that follows.

Times are the caller's, in seconds since the run began; nothing is sent from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from spreeze_zmq.autoscale import tuning
from spreeze_zmq.autoscale.batch_size import BatchSize
from spreeze_zmq.autoscale.envs_per_sampler import EnvsPerSampler
from spreeze_zmq.autoscale.forecast import Forecast
from spreeze_zmq.autoscale.rebalance import Change, Rebalancer
from spreeze_zmq.autoscale.spell import Window
from spreeze_zmq.autoscale.tuning import Tuning
from spreeze_zmq.autoscale.windows import Windows
from spreeze_zmq.metrics import Gpus, busy_cpu_s
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import CRITIC_LEARNER, LEARNERS, SAMPLER
from spreeze_zmq.topology.resolve import available_cores

if TYPE_CHECKING:
    from spreeze_zmq.plan.status import Balance

#: After a process has come or gone the rates need this long to be those of the new count.
SETTLE_S = 1.0
#: From when all processes are there, what each does is looked at for this long before the first decision.
FORECAST_S = 1.0
#: What the journal says of each process covers this long.
JOURNAL_S = 4.0


class Balancer:
    """Watches a run and says when its number of samplers, of environments in each, or the learners' batch
    should change.

    Attributes:
        rebalancer: decides; where the topology or the mode leaves nothing to decide it keeps figures.
        envs: decides how many environments each sampler steps together.
        batch_size: decides how large the learners' batches are; None where the topology says it.
        forecast: decides once, at the start; None where the run does not begin by measuring, and afterwards.
        windows: of the reports.
    """

    def __init__(self, plan: Plan) -> None:
        count = plan.components[SAMPLER].count
        self.cores = available_cores()
        lanes = {SAMPLER: max(1, plan.components[SAMPLER].options.get("workers", 0))}
        critics = plan.components[CRITIC_LEARNER].count.initial
        self.windows = Windows(plan.balance.replay_ratio, 1.0, self.cores, lanes, critics)
        limits = (count.minimum, count.maximum) if tuning.movable(plan) else (count.initial, count.initial)
        self.rebalancer = Rebalancer(*limits)
        sampler = plan.components[SAMPLER]
        envs = int(sampler.options.get("envs", 1))
        least, most = sampler.ranges.get("envs", (envs, envs))
        self.envs = EnvsPerSampler(least, most, envs, self.rebalancer.restraint)
        choice, shared = plan.measured.get("batch_size"), self.rebalancer.restraint
        self.batch_size = BatchSize.measured(choice, shared) if choice else None
        self._granule_of = partial(_granule, plan)
        self.go_on_with(envs=envs)
        self.forecast = _forecast(plan) if tuning.measures(plan) else None
        self.first_figures: dict[str, Any] = {}
        self.gpus = Gpus()
        self.last_change = ""
        self._since_s = self._met_s = 0.0
        self._training = False
        self._incarnations: dict[str, int] = {}

    def take(self, sender: str, incarnation: int, fields: Mapping[str, Any], now_s: float) -> None:
        """Enter a report; the first one of a life tells how long its start took."""
        self.windows.take(sender, incarnation, fields, now_s)
        if self.forecast is not None:
            self.forecast.take(sender, fields.get("rehearsal", {}))
        if self._incarnations.get(sender) != incarnation:
            self._incarnations[sender] = incarnation
            if fields["role"] in (SAMPLER, *LEARNERS):
                self.disturb(now_s)
                self._met_s = now_s
            if fields["role"] == SAMPLER:
                self.rebalancer.restraint.start_s = fields["uptime_s"]

    def lose(self, sender: str, now_s: float) -> None:
        """A process is gone."""
        self.windows.lose(sender)
        self.disturb(now_s)

    def disturb(self, now_s: float) -> None:
        """Something changed: what was measured until now and a little longer says nothing of what comes."""
        self._since_s = now_s + SETTLE_S

    def step(self, num_samplers: int, now_s: float, *, training: bool) -> Change | None:
        """Look at the machine and decide; to be called about once a second.

        Args:
            num_samplers: how many the launcher keeps; 0 where it keeps none.
            now_s: the time.
            training: the learners are at work.
        """
        self.windows.take_busy(busy_cpu_s(), now_s)
        if training and not self._training:
            self.disturb(now_s)
        self._training = training
        if num_samplers == 0:
            return None
        change = self._begin(num_samplers, now_s)
        if change is None and training:
            window = self.windows.window(num_samplers, self._since_s, now_s)
            change = self._decide(window, now_s) if window is not None else None
        if change is not None:
            self.last_change = change.reason
            self.disturb(now_s)
        return change

    def _begin(self, num_samplers: int, now_s: float) -> Change | None:
        """The change that the forecast asks for, once all are there and have told enough; not any more once
        a window of the run itself is known.
        """
        if self.forecast is None or now_s < self._met_s + FORECAST_S:
            return None
        if self.rebalancer.figures.get("steady"):
            self.forecast = None
            return None
        limits = self.rebalancer.minimum, self.rebalancer.maximum
        spells, busy = self.windows.spells(self._met_s, now_s), self.windows.busy_cores(self._met_s, now_s)
        change = self.forecast.decide(spells, num_samplers, limits, self.cores, busy)
        if self.forecast.figures:
            self.first_figures, self.forecast = self.forecast.figures, None
        if change is not None:
            self.rebalancer.restraint.note(now_s)
        return change

    def go_on_with(self, envs: int | None = None, batch_size: int | None = None) -> None:
        """So many environments are in each sampler now, or batches are so large."""
        if envs is not None:
            self.envs.present = envs
        if batch_size is not None and self.batch_size is not None:
            self.batch_size.present = batch_size
        present = self.batch_size.present if self.batch_size is not None else None
        self.windows.granule = self._granule_of(self.envs.present, present)

    def _decide(self, window: Window, now_s: float) -> Change | None:
        """The number of samplers first; where that is right, the environments in each; where these are too,
        the batch of the learners.
        """
        change = self.rebalancer.decide(window, now_s)
        if change is not None:
            self.envs.forget()
        elif self.rebalancer.settled:
            change = self.envs.decide(window, now_s)
            if change is not None:
                self.rebalancer.forget()
                self.go_on_with(envs=change.count)
            elif self.envs.settled and self.batch_size is not None:
                return self._decide_batch(self.batch_size, window, now_s)
        if change is not None and self.batch_size is not None:
            self.batch_size.forget()
        return change

    def _decide_batch(self, batch_size: BatchSize, window: Window, now_s: float) -> Change | None:
        change = batch_size.decide(window, now_s)
        if change is not None:
            self.rebalancer.forget()
            self.envs.forget()
            self.go_on_with(batch_size=change.count)
        return change

    @property
    def movable(self) -> bool:
        """Whether there is anything that it may move."""
        return self.rebalancer.movable or self.envs.movable

    @property
    def settled(self) -> bool:
        """The count is what the last steady window asked for."""
        return self.rebalancer.settled

    def found(self) -> Tuning | None:
        """What is worth knowing for the next run; None where the count is fixed or has not settled."""
        if not self.movable or not self.rebalancer.settled:
            return None
        figures = self.rebalancer.figures
        rates = figures["produced_per_s"], figures["trained_per_s"]
        return Tuning(figures["samplers"], *rates, self.envs.present if self.envs.movable else None)

    def status(self) -> Balance:
        """What the run's status says of the balance."""
        return {
            "movable": self.movable,
            "settled": self.settled,
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
            "decision": {
                **({"at_the_start": self.first_figures} if self.first_figures else {}),
                **self.rebalancer.figures,
                **(self.envs.figures() if self.envs.movable else {}),
                **(self.batch_size.figures if self.batch_size is not None else {}),
            },
            **self.status(),
        }


def _forecast(plan: Plan) -> Forecast:
    """The first decision of a plan."""
    critic = plan.components[CRITIC_LEARNER]
    on_cpu = critic.options.get("device", "cpu") == "cpu"
    delay = plan.learning.policy_delay
    return Forecast(critic.count.initial, plan.balance.replay_ratio, delay, on_cpu)


def _granule(plan: Plan, envs: int, batch_size: int | None) -> float:
    """Transitions that come or are asked for at once, with so many environments in each sampler, and batches
    of ``batch_size``, or of what the plan says.
    """
    rollout = plan.components[SAMPLER].options.get("rollout_steps", 1) * envs
    batch_size = batch_size or plan.learning.batch_size
    critics = plan.components[CRITIC_LEARNER].count.initial
    update = critics * batch_size / plan.balance.replay_ratio if isinstance(batch_size, int) else 1.0
    return max(1.0, float(rollout), update)
