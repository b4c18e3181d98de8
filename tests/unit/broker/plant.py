"""A simulated machine for the tests of the rule: samplers and learners that share cores fairly."""

from dataclasses import dataclass

from spreeze_zmq.broker.hosts import Host
from spreeze_zmq.broker.knobs import Samplers
from spreeze_zmq.broker.rule import Rule
from spreeze_zmq.broker.window import Spell, Window


@dataclass(frozen=True)
class Plant:
    """What a transition costs each process, in seconds on a core and off it.

    ``policies_for``: trained transitions/s that the actor-learner keeps up with; where the lag is bounded by
    count, samplers wait for its policies.
    """

    cores: int = 2
    replay_ratio: float = 8.0
    sampler_cpu_s: float = 1e-4
    sampler_wait_s: float = 0.0
    critic_cpu_s: float = 1e-5
    critic_wait_s: float = 0.0
    actor_cpu_s: float = 1e-5
    foreign: float = 0.0
    slowed: tuple[float, ...] = ()
    policies_for: float = float("inf")

    def step_s(self, index, share):
        """Wall seconds of one sample to one sampler."""
        slow = self.slowed[index] if index < len(self.slowed) else 1.0
        return slow * (self.sampler_cpu_s / share + self.sampler_wait_s)

    def pace(self, count, share):
        """Trained transitions/s at a share of the cores, and what this takes of them."""
        produced = sum(1 / self.step_s(i, share) for i in range(count))
        critic = 1 / (self.critic_cpu_s / share + self.critic_wait_s)
        trained = min(critic, self.replay_ratio * produced, self.policies_for)
        cost_s = self.sampler_cpu_s / self.replay_ratio + self.critic_cpu_s + self.actor_cpu_s
        return trained, trained * cost_s + share * self.foreign

    def run(self, count):
        """Trained transitions/s and the share of the cores that everybody gets."""
        low, high = 1e-4, 1.0
        if self.pace(count, 1.0)[1] <= self.cores:
            return self.pace(count, 1.0)[0], 1.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if self.pace(count, middle)[1] <= self.cores else (low, middle)
        return self.pace(count, low)[0], low

    def best(self, low, high):
        """The most that any fixed count trains."""
        return max(self.run(count)[0] for count in range(low, high + 1))

    def window(self, count, noise=lambda: 1.0):
        """What would be measured."""
        trained, share = self.run(count)
        wanted = sum(1 / self.step_s(i, share) for i in range(count))
        samplers = []
        for index in range(count):
            able = 1 / self.step_s(index, share)
            made = trained / self.replay_ratio * able / wanted
            busy = made / able
            blocked, starved = (0.0, 1 - busy) if trained == self.policies_for else (1 - busy, 0.0)
            cpu = made * self.sampler_cpu_s
            samplers.append(Spell("sampler", index, 5.0, busy, blocked, starved, cpu, made * noise()))
        busy = min(1.0, trained * (self.critic_cpu_s / share + self.critic_wait_s))
        rates = {"received_per_s": trained / self.replay_ratio, "trained_per_s": trained * noise()}
        critic = Spell("critic_learner", 0, 5.0, busy, 0.0, 1 - busy, trained * self.critic_cpu_s, **rates)
        busy = min(1.0, trained * self.actor_cpu_s / share)
        actor = Spell("actor_learner", 0, 5.0, busy, 0.0, 1 - busy, trained * self.actor_cpu_s)
        used = min(self.pace(count, share)[1], self.cores)
        return Window(
            tuple(samplers), (critic,), (actor,), self.replay_ratio, (Host(self.cores, used, samplers=count),)
        )


def live(plant_at, count, seconds, low=1, high=8, noise=lambda: 1.0, start_s=2.0, window_s=5.0):
    """Run the rule on a plant under a fake clock: a window is there once a count has lasted for one.

    Returns:
        ``[(t_s, count, reason)]`` of the changes, and the count in the end.
    """
    knob = Samplers(count, low, high)
    rule = Rule([knob])
    return run(
        rule, knob, lambda now_s: plant_at(now_s).window(knob.present, noise), seconds, start_s, window_s
    )


def run(rule, knob, window_at, seconds, start_s=2.0, window_s=5.0):
    """Have a rule move a knob for ``seconds``; returns the same as ``live``."""
    changes, since_s = [], 0.0
    for tick in range(int(seconds)):
        now_s = float(tick)
        if now_s < since_s + window_s:
            continue
        change = rule.decide(window_at(now_s), now_s)
        if change is not None:
            assert change.before == knob.present
            changes.append((now_s, change.count, change.reason))
            knob.present, since_s = change.count, now_s + start_s
    return changes, knob.present
