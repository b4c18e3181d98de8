"""An algorithm that draws for itself: its ``act`` from torch's generator, its loss from those that all code
of a process shares.
"""

import random

import numpy as np
import torch

from spreeze_zmq.algorithms.sac import SAC


class Noisy(SAC):
    """SAC whose noise has one size in every state, and whose critics' loss has a random weight."""

    def act(self, obs, greedy):
        """``[N, size]`` to ``[N, actions]``."""
        mode = self.actions.mode(self.policy(obs))
        return mode if greedy else mode + 0.3 * torch.randn_like(mode)

    def critic_loss(self, batch):
        """Another weight at each update."""
        loss = super().critic_loss(batch)
        return loss._replace(loss=loss.loss * (0.5 + random.random() * np.random.rand()))
