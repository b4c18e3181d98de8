"""Tasks whose steps wait, as for a slow device: more samplers help on few cores, which are mostly free."""

import time

from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv
from gymnasium.wrappers import TimeLimit


class Napping:
    """Steps sleep for ``nap_s``, which takes no core."""

    nap_s = 0.001

    def step(self, action):
        """Sleep, then step."""
        time.sleep(self.nap_s)
        return super().step(action)


class NappingPendulum(Napping, PendulumEnv):
    """Pendulum."""


class NappingCartPole(Napping, CartPoleEnv):
    """CartPole."""


def make(nap_s=0.001, render_mode=None):
    """The environment with the time limit of Pendulum-v1."""
    return _napping(NappingPendulum(render_mode=render_mode), nap_s, 200)


def cartpole(nap_s=0.001, render_mode=None):
    """The environment with the time limit of CartPole-v1."""
    return _napping(NappingCartPole(render_mode=render_mode), nap_s, 500)


def _napping(env, nap_s, steps):
    env.nap_s = nap_s
    return TimeLimit(env, steps)
