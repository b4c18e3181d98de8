"""An algorithm that explores by itself: its ``act`` draws from torch's generator."""

import torch

from spreeze_zmq.algorithms.sac import SAC


class Noisy(SAC):
    """SAC whose noise has one size in every state."""

    def act(self, obs, greedy):
        """``[N, size]`` to ``[N, actions]``."""
        mode = self.actions.mode(self.policy(obs))
        return mode if greedy else mode + 0.3 * torch.randn_like(mode)
