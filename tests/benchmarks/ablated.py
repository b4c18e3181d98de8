"""SAC whose updates are never recorded: Python and autograd make each one. For ``contest.py ablation``."""

from spreeze_zmq.algorithms.sac import SAC
from spreeze_zmq.nn.native.recording import refuse


class Unrecorded(SAC):
    """SAC itself, but for what its losses say to a recording of them."""

    auto_bf16 = SAC.auto_bf16  # one's own algorithms choose it for themselves

    def critic_loss(self, batch):
        """That of SAC."""
        refuse("is computed each time, as an ablation asks")
        return super().critic_loss(batch)

    def policy_loss(self, batch):
        """That of SAC."""
        refuse("is computed each time, as an ablation asks")
        return super().policy_loss(batch)
