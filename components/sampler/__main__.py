"""Sampler: steps a batch of environments with the newest policy and pushes rollouts to the learners."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq import envs
from spreeze_zmq.base.errors import WireError
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.broker.sightings import Sightings
from spreeze_zmq.component import Component, prepare_to_act, run
from spreeze_zmq.component.going_on import SamplerState
from spreeze_zmq.component.sampling import Acting, RolloutOutlet
from spreeze_zmq.envs.packed import Packing, packed, sent
from spreeze_zmq.envs.seeds import seed_for, shared_generators_seeded
from spreeze_zmq.evaluation.arena import timing_of, workers_of_sampler
from spreeze_zmq.plan.plan import first_index
from spreeze_zmq.plan.roles import SAMPLER
from spreeze_zmq.policy import FrameStack, MaskRows, Played, Policy, places, played, usable
from spreeze_zmq.policy.own_environment import choices

if TYPE_CHECKING:
    from spreeze_zmq.envs.batched import BatchedEnv

log = logging.getLogger("spreeze")

#: Shortest time between two reports of episodes that have ended.
EPISODES_INTERVAL_S = 0.5
#: Time for the learners to drain their queues before this process closes its sockets: messages that the
#: kernel holds for a full queue are lost then.
SETTLE_S = 0.2


class Collector:
    """Steps the environments and turns their steps into rollouts.

    Args:
        component: the sampler.
        log_prob: whether a learner asks for the actions' log probabilities.
    """

    def __init__(self, component: Component, *, log_prob: bool) -> None:
        spec = component.environment
        self.component = component
        self.log_prob = log_prob
        self.num_steps: int = component.options["rollout_steps"]
        self.num_envs: int = component.options["envs"]
        self.place = places(self.num_envs, component.index)
        seeds = component.seed_sequence()
        first, shared = map(int, seeds.generate_state(2))
        with shared_generators_seeded(shared):
            self.envs = self.make_envs(seed_for(first, self.num_envs))
        self.rng = np.random.default_rng(seeds)
        self.obs_dtype, self.packing, self.sent = np.dtype(spec.obs_dtype), Packing.of(spec), sent(spec)
        self.action_dtype = np.dtype(np.float32 if spec.action_kind == "box" else np.int64)
        self.obs = self.envs.reset()[0].astype(self.obs_dtype, copy=False)
        self.frames = FrameStack()
        self.state = SamplerState(component) if component.plan.balance.in_order else None
        if self.state is not None:
            self.obs = self.state.restore(self.envs, self.rng, self.obs)
        #: Reward of all rollouts in which no environment failed, 0 if none is below.
        self.lowest = 0.0 if self.state is None else self.state.lowest
        self.policy: Policy | None = None
        self.actions: list[NDArray[Any]] = []
        self.log_probs: list[NDArray[np.float32]] = []
        self.steps: Iterator[Played] | None = None
        self.returns: list[float] = []
        self.lengths: list[int] = []
        self.sightings = Sightings(spec, self.envs.single_observation_space)
        component.figures["gauges"] = self.sightings.figures
        self.episodes_due_s = time.monotonic() + EPISODES_INTERVAL_S

    def make_envs(self, seed: int) -> BatchedEnv:
        """The batch of environments."""
        component, spec = self.component, self.component.environment
        workers = workers_of_sampler(component.plan, timing_of(component.plan), component.index)
        if workers:
            log.info("%d workers step the environments", workers)
        return envs.remade(
            spec,
            self.num_envs,
            backend=component.options["backend"],
            num_workers=workers,
            step_timeout_s=component.options["step_timeout_s"],
            max_failures=component.options["max_failures"],
            on_failure=lambda failure: component.report_failure(failure.summary, failure.traceback),
            on_tick=component.breathe,
            step_info=False,
            seed=seed,
            randomize=component.plan.run.randomize,
            first_index=first_index(component.plan, SAMPLER, component.index),
        )

    def check_choices(self, policy: Policy) -> None:
        """Raise WireError if the policy chooses among more or fewer actions than the environments take."""
        mine, about = self.component.environment.action_sizes, policy.description.get("distribution")
        theirs = choices(about) if about else ()
        if mine and theirs and theirs != mine:
            raise WireError(
                "bad_policy", f"it chooses among {list(theirs)} actions, the environments take {list(mine)}"
            )

    def act(self, frames: FrameStack) -> NDArray[Any]:
        """The actions ``[N, *action_shape]`` that the environments take; notes those that the policy drew,
        and their log probabilities ``[N]`` if a learner asks for them.

        Raises:
            WireError: the policy cannot act in this environment.
        """
        policy = self.policy
        assert policy is not None
        action, log_prob = policy.act(
            frames.seen,
            self.rng,
            place=self.place,
            log_prob=self.log_prob,
            memory=frames.memory,
            action_mask=frames.action_mask,
        )
        shape = (self.num_envs, *self.component.environment.action_shape)
        if action.dtype != self.action_dtype or action.size != math.prod(shape):
            raise WireError(
                "bad_policy",
                f"its actions are {action.dtype} {list(action.shape)}, "
                f"the environments take {self.action_dtype} {list(shape)}",
            )
        action = action.reshape(shape)  # a multi-discrete action of one choice has one dimension more
        self.actions.append(action)
        if log_prob is not None:
            self.log_probs.append(log_prob)
        return policy.env_action(action)

    def collect(self, policy: Policy) -> Rollout | None:
        """Take ``num_steps`` steps of every environment, and send reports when they are due meanwhile. None
        if this process is to stop before the last one, which of slow environments may take minutes; in order
        each rollout is finished.

        The rollout's arrays are new ones, since ZeroMQ may still be sending those of the last rollout.

        Raises:
            WireError: the policy cannot act in this environment.
        """
        self.check_choices(policy)
        shape = (self.num_steps, self.num_envs)
        (obs_shape, obs_dtype), packing = self.sent, self.packing
        obs = np.empty((self.num_steps + 1, self.num_envs, *obs_shape), obs_dtype)
        reward = np.empty(shape, np.float32)
        terminated, truncated, failed = (np.zeros(shape, np.bool_) for _ in range(3))
        self.policy, self.actions, self.log_probs = policy, [], []
        final_obs = [np.empty((0, *self.obs.shape[1:]), self.obs_dtype)]
        num_told = len(self.returns)
        obs[0] = self.obs if packing is None else packing.pack(self.obs)
        if self.steps is None:
            self.frames = policy.frame_stack()
            self.frames.begin(self.obs, self.envs.action_mask)
            if self.state is not None:
                self.state.restore_frames(self.frames)
            self.steps = played(self.envs, self.frames, self.act)
        history = self.frames.history() if self.frames.stack > 1 else None
        memory = self.frames.memory.copy() if policy.memory_size else None
        masks = None if self.frames.action_mask is None else MaskRows(self.frames.action_mask)
        for t, step in zip(range(self.num_steps), self.steps, strict=False):
            obs[t + 1] = step.obs if packing is None else packing.pack(step.obs)
            self.obs, reward[t] = step.obs, step.reward
            terminated[t], truncated[t], info = step.terminated, step.truncated, step.info
            if masks is not None:
                masks.add(info, step.ended)
            if "_final_obs" in info:
                final_obs.append(info["final_obs"][step.ended])
                failed[t], whole = step.failed, step.ended & ~step.failed
                self.returns.extend(info["episode"]["r"][whole])
                self.lengths.extend(info["episode"]["l"][whole])
                self.sightings.ended(info["episode"]["l"][whole], terminated[t][whole])
            self.component.breathe()
            if not self.component.running and self.state is None:
                del self.returns[num_told:], self.lengths[num_told:]
                return None
        lowest = min(self.lowest, float(reward.min()))
        reward[failed] = lowest  # 0 would be the best of all where others are negative
        if not failed.any():  # what a simulation pays as it blows up is not remembered
            self.lowest = lowest
        state = None
        if self.state is not None:
            state = self.state.of(self.envs, self.rng, self.obs, self.frames, self.lowest)
        rollout = Rollout(
            sampler=self.component.name,
            incarnation=self.component.incarnation,
            sequence=0,  # each channel counts its messages, and each outlet sets ``produced``
            produced=0,
            policy_version=policy.version,
            num_steps=self.num_steps,
            num_envs=self.num_envs,
            obs=obs,
            action=np.stack(self.actions),
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            final_obs=np.concatenate(final_obs, dtype=self.obs_dtype),
            final_index=np.argwhere(terminated | truncated).astype(np.int32),
            log_prob=np.stack(self.log_probs) if self.log_prob else None,
            history=history,
            memory=memory,
            state=state,
            **({} if masks is None else masks.arrays()),
        )
        rollout = packed(rollout, packing)
        self.sightings.take(rollout)
        return rollout

    def report_episodes(self) -> None:
        """Report to the broker which episodes have ended since the last report."""
        self.episodes_due_s = time.monotonic() + EPISODES_INTERVAL_S
        if self.returns:
            returns, lengths = np.array(self.returns, np.float32), np.array(self.lengths, np.int32)
            self.component.report("episodes", {}, {"returns": returns, "lengths": lengths})
            self.returns, self.lengths = [], []


def main(component: Component) -> None:
    """Wait for room at every learner, collect under the newest policy, push, report ended episodes."""
    outlets = [RolloutOutlet(component, learner) for learner in component.plan.learning.learners]
    component.figures["pushed"] = lambda: {outlet.learner: outlet.produced for outlet in outlets}
    acting = Acting(component, outlets)
    prepare_to_act(component)  # seeds torch's generator, which a run that goes on brings back after that
    collector = Collector(component, log_prob=any("log_prob" in outlet.fields for outlet in outlets))
    component.at_end.append(collector.envs.close)
    component.ready()
    while component.running:
        for outlet in outlets:
            outlet.wait_for_place()
        if (policy := acting.next()) is None:
            break
        with usable(policy.version):
            rollout = collector.collect(policy)
        if rollout is None:
            break
        for outlet in outlets:
            outlet.push(rollout)
        component.poll()
        if time.monotonic() >= collector.episodes_due_s:
            collector.report_episodes()
    collector.report_episodes()
    component.poll(timeout_s=SETTLE_S, draining=True)


if __name__ == "__main__":
    sys.exit(run("sampler", main))
