"""The learner: one half of an algorithm, what it learns from and what publishes it; and its loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import torch

from spreeze_zmq.base import kept_memory
from spreeze_zmq.base.errors import CheckpointError, Diverged, InputError, WireError
from spreeze_zmq.component import Component, Weights
from spreeze_zmq.learner.cadence import cadence_of
from spreeze_zmq.learner.course import Course
from spreeze_zmq.learner.delayed import DelayExperience
from spreeze_zmq.learner.device import prepare_device, remark
from spreeze_zmq.learner.experience import Counts, Experience
from spreeze_zmq.learner.fusing import Fusion
from spreeze_zmq.learner.gauges import with_losses
from spreeze_zmq.learner.going_on import GoingOn
from spreeze_zmq.learner.offline import OfflineExperience, OfflineFollower
from spreeze_zmq.learner.own_draws import prepared
from spreeze_zmq.learner.publication import Outlet, Record
from spreeze_zmq.learner.ratio import RatioExperience
from spreeze_zmq.learner.rounds import RoundExperience
from spreeze_zmq.learner.setup import check_memory
from spreeze_zmq.learner.vault import Vault
from spreeze_zmq.nn.device import Work
from spreeze_zmq.plan import moves
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import ACTOR_LEARNER, CRITIC, POLICY
from spreeze_zmq.wire.channels import Subscriber

log = logging.getLogger("spreeze")

#: Between updates that are shorter than this the sockets are served once in this time, s.
POLL_INTERVAL_S = 0.005
#: Rollouts taken between two updates, at most; after so long, s, no further one is, unless in order.
ROLLOUTS_AT_ONCE, LONG_S = 8, 1.0


class Learner:
    """One half of an algorithm: receives rollouts and the other half's weights, trains, publishes its own.

    Attributes:
        half: the half of the algorithm that this learner trains.
        arithmetic: the arithmetic of an update, and the device's limit.
        cadence: when it publishes.
        work: runs and times updates on the device.
        outlet: publishes the half's weights.
        others: the other half's weights; None for a lone learner.
        counts: what a checkpoint holds of its counts.
        experience: what it learns from.
        fusion: shares the half's model with other groups; None in a run of one.
        course: moves the options that are schedules.
        metrics: those of the newest update that measured them, 0-d float32 on the device.
    """

    def __init__(self, component: Component) -> None:
        self.component, plan, role = component, component.plan, component.role
        device = prepare_device(component)
        if (memory := kept_memory.inherited()) is not None and kept_memory.is_new(memory):
            check_memory(plan, role)  # not after a crash: by then the other learners' replays have grown
        self.half, self.arithmetic = prepared(component, device)
        self.half.remarks.tell(lambda line: remark(component, line))
        self.cadence = cadence_of(component)
        self.work = Work(device)
        self.record = Record(component.folder.losses(role), self.cadence)
        self.outlet = Outlet(component, self.half, self.cadence)
        self.others: Weights | None = None
        if len(plan.learning.learners) > 1:
            channel = component.open(CRITIC if self.outlet.of_policy else POLICY, Subscriber)
            self.others = Weights(channel, in_turn=plan.balance.in_order)
        self.counts = Counts()
        self.experience = _kind_of(plan, role)(component, self.half, self.outlet, self.others, self.counts)
        is_one, of_policy, in_order = plan.groups.count == 1, self.outlet.of_policy, plan.balance.in_order
        self.fusion = None if is_one else Fusion(component, self.half, self.experience, of_policy=of_policy)
        leads = (self.others is None or not of_policy) and plan.groups.number == 0
        self.course = Course(self.half, self.counts, plan.run.stop.counted(in_order), leads, in_order)
        self.metrics: Mapping[str, Any] = {}
        self._poll_s = 0.0
        component.on("set", self.on_set)
        component.on("status", self.course.time.hear)
        component.figures.update(counters=self.counters, gauges=self.gauges, device=self.device_figures)
        component.figures["publication"] = self.cadence.figures

    # --- what it does

    def on_set(self, fields: Mapping[str, Any]) -> None:
        """Use another value of an option; messages are handled between two updates. Options that this learner
        does not know are passed over.
        """
        option, value, plan = fields["option"], fields["value"], self.component.plan
        if fields["role"] != self.component.role or option not in (moves.BATCH, *moves.moves_of(plan)):
            return
        try:
            if option != moves.BATCH:
                value = moves.checked(plan, option, value)
                log.info("%s = %g from now on", option, value)
            if option in plan.learning.movable:
                self.half.turn(option, value)
        except InputError as error:
            self.component.report_failure(f"{option} is not followed: {error}", "")
            return
        self.experience.set(option, value)

    def wait(self) -> bool:
        """Serve the sockets, if that is due; if there is nothing to do, wait up to a second for rollouts and
        weights. Returns whether to look for them now: in order always, as what is trained on follows from it.
        """
        experience = self.experience
        if experience.ready or (experience.wants and experience.intake.ready):
            if time.monotonic() < self._poll_s:
                return experience.in_order
            self.component.poll()
        else:
            wants = experience.wants or experience.in_order
            channels: list[Any] = [experience.intake.puller] if wants else []
            if self.others is not None and experience.wants_weights:
                channels.append(self.others.subscriber)
            self.component.poll(channels, timeout_s=1.0, charge="starved", waiting_for=experience.owed)
        self._poll_s = time.monotonic() + POLL_INTERVAL_S
        return True

    def take_weights(self) -> None:
        """Load the other half's newest weights, or in order the next version of them."""
        if self.others is None or not self.experience.wants_weights:
            return
        if (message := self.others.take()) is None:
            return
        layout = message.fields.get("layout")
        try:
            self.half.load(message.kind, message.arrays, layout)
        except WireError as error:
            self.others.refuse(message, error)
        else:
            if layout is None:
                self.others.say_once(message, "names no layout: only the number of its parameters is checked")
            self.experience.meet(message)
            self.course.hear(message)

    def take_rollouts(self) -> None:
        """Add some of the rollouts that have arrived to the experience, as far as it wants them."""
        until_s = time.monotonic() + LONG_S
        self.experience.intake.fetch()
        for _ in range(ROLLOUTS_AT_ONCE):
            if not self.experience.wants or (rollout := self.experience.intake.take()) is None:
                return
            self.experience.add(rollout)
            if time.monotonic() >= until_s and not self.experience.in_order:
                return

    def update(self) -> None:
        """One gradient step on the next batch."""
        if (drawn := self.experience.next()) is None:
            return
        batch, measured = drawn
        self.course.advance()
        metrics = self.half.update(batch, measured)
        if measured:
            self.metrics = metrics
        self.counts.trained += self.experience.trained(batch)

    def publish(self, *, is_new: bool = False) -> None:
        """Publish the weights, unless they have to wait; ``is_new`` if a policy differs from the last one."""
        if (news := self.experience.news()) is not None:
            # On-policy, no update may come between: a publication changes how observations are normalised.
            wait = self.component.plan.learning.on_policy or not self.experience.ready
            self.outlet.publish(**news, is_new=is_new, wait=wait)

    def publish_if_due(self) -> None:
        """Publish the weights when they are due, and again when samplers wait for a new limit."""
        ready = self.experience.ready
        if not self.outlet.serve(wait=not ready):
            return
        if self.outlet.owed:
            self.outlet.publish_owed(all_heard=self.experience.intake.has_heard_all)
            return
        if self.outlet.published and self.experience.due():
            self.publish(is_new=True)
            self._poll_s = 0.0  # on-policy the next round begins with weights that have come during this one
            self.record.write(self.experience.recorded(), self.metrics)
        elif not self.outlet.published or (not ready and self.experience.limits_due()):
            self.publish()

    # --- what it reports and keeps

    def device_figures(self) -> dict[str, float]:
        """For reports: the device's largest arithmetic rate, and a GPU's load."""
        return {**self.work.figures(), "limit_flops_per_s": self.arithmetic.limit_flops_per_s}

    def counters(self) -> dict[str, float]:
        """Cumulative figures of every report; the critic-learner, even alone, counts the experience."""
        part, counts = self.component.role.removesuffix("_learner"), self.counts
        counted = {f"{part}_flops": counts.trained * self.arithmetic.flops_per_transition}
        if self.outlet.of_policy:
            counted["policy_version"] = self.outlet.versions.newest
        if self.component.role != ACTOR_LEARNER:
            counted |= {"env_steps": counts.env_steps, "sampled_transitions": counts.sampled}
            counted["trained_transitions"] = counts.trained
        return {**counted, f"{part}_updates": self.half.num_updates}

    def gauges(self) -> dict[str, float]:
        """Momentary figures of every report, with the losses; waits for the device."""
        rates = self.half.rates() if self.half.moves or self.half.adapts else {}
        return with_losses({**self.experience.gauges(), **rates}, self.metrics, self.half.part)

    def state(self) -> dict[str, Any]:
        """Everything that a restart needs besides the replay, which is saved only with ``save_replay``."""
        self.counts.version = self.outlet.versions.newest
        own = {"half": self.half.state_dict(), "counters": self.counts.state()}
        if average := self.outlet.average.get_state():
            own["average"] = average
        return {**own, **self.experience.state(), **self.course.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state`.

        Raises:
            CheckpointError: the half is of other networks.
            RuntimeError: the device fails, or its memory is full.
        """
        try:
            self.half.load_state_dict(state["half"])
        except (KeyError, RuntimeError) as error:
            problem = str(error).strip().splitlines()[0]
            if isinstance(error, torch.OutOfMemoryError) or "CUDA error" in problem:
                raise
            raise CheckpointError(
                f"the checkpoint's networks differ from this run's: {problem}; where another release chose "
                "them, state its choice, such as algorithm.network=nature_cnn"
            ) from error
        self.counts.restore(state["counters"])
        self.half.env_steps, self.outlet.updates = self.counts.env_steps, self.half.num_updates
        self.outlet.versions.restore(self.counts.version)
        self.outlet.average.set_state(state.get("average", {}))  # earlier releases have none
        self.experience.restore(state)
        self.course.restore(state)

    def go_back(self, state: Mapping[str, Any]) -> None:
        """Load the networks and optimiser of an earlier :meth:`state`; samples and counts go on."""
        num_updates = self.half.num_updates
        self.half.load_state_dict(state["half"])
        self.half.num_updates, self.half.env_steps = num_updates, self.counts.env_steps
        self._poll_s = 0.0
        self.outlet.average.set_state(state.get("average", {}))
        self.experience.go_back()
        if self.fusion is not None:
            self.fusion.forget()


def _kind_of(plan: Plan, role: str) -> type[Experience]:
    """What a learner learns from."""
    if plan.learning.on_policy:
        return RoundExperience
    if role == ACTOR_LEARNER:
        return OfflineFollower if plan.offline else DelayExperience
    return OfflineExperience if plan.offline else RatioExperience


def learn(component: Component, learner: Learner) -> None:
    """Run a learner, from its checkpoint if there is one, until it is stopped; then drain its rollouts."""
    experience = learner.experience
    going_on = GoingOn(learner)
    vault = Vault(component, learner.state, experience.replay, lambda: experience.done, going_on)
    state = vault.restore()
    experience.begin()
    if state is not None:
        try:
            learner.restore(state)
        except KeyError as error:
            problem = f"the checkpoint's {learner.component.role} has no {error}"
            raise CheckpointError(f"{problem}: resume with the release that wrote it") from error
        going_on.restore(state)
    component.ready()
    if learner.outlet.owed:
        learner.outlet.publish_owed(all_heard=False)
    elif not learner.outlet.published:
        learner.publish()
    while component.running:
        if looks := learner.wait():
            learner.take_weights()
        if looks or experience.intake.has_more:
            learner.take_rollouts()
        try:
            if experience.ready:
                began_s = learner.cadence.work_clock()
                learner.work.run(learner.update)
                learner.cadence.updated(began_s)
            if learner.fusion is not None:
                learner.fusion.serve()
            learner.publish_if_due()
            vault.serve()
        except Diverged as error:
            learner.go_back(vault.last_good(error, learner.half.num_updates))
    learner.cadence.rest()
    for rollout in experience.intake.drain():
        experience.add(rollout)
    learner.outlet.leave()
    if (losses := component.folder.losses(component.role)).exists():
        component.hand_over(losses)
