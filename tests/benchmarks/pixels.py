"""Time until a pole is balanced from images: CartPole-v1 drawn at 64 x 64, by DQN with convolutions.

    python tests/benchmarks/pixels.py --target 195 --minutes 5
    python tests/benchmarks/pixels.py --stack 1             # one image shows no velocity

From the repository's root: the environment is this file's ``Drawn``.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import gymnasium
import numpy as np

SIZE, GROUND, POLE, CART = 64, 56, 40, (4, 10)
#: Half the width of the track, and of the image: an episode ends beyond it.
HALF_TRACK = 2.4


class Drawn(gymnasium.Env):
    """CartPole-v1 seen from the side, uint8 [64, 64]: a grey cart, a white pole."""

    def __init__(self):
        self._env = gymnasium.make("CartPole-v1")
        self.action_space = self._env.action_space
        self.observation_space = gymnasium.spaces.Box(0, 255, (SIZE, SIZE), np.uint8)

    def reset(self, *, seed=None, options=None):
        """Reset CartPole-v1."""
        state, info = self._env.reset(seed=seed, options=options)
        return drawn(state), info

    def step(self, action):
        """Step CartPole-v1."""
        state, *outcome = self._env.step(action)
        return drawn(state), *outcome


def drawn(state):
    """The image of a state: position, velocity, angle and its velocity."""
    image = np.zeros((SIZE, SIZE), np.uint8)
    middle = (state[0] / HALF_TRACK + 1) * SIZE / 2
    height, width = CART
    left = int(np.clip(middle - width / 2, 0, SIZE - 1))
    image[GROUND : GROUND + height, left : left + width] = 128
    along = np.linspace(0, POLE, 2 * POLE)
    rows = (GROUND - along * np.cos(state[2])).astype(int)
    columns = (middle + along * np.sin(state[2])).astype(int)
    inside = (columns >= 1) & (columns < SIZE)
    image[rows[inside], columns[inside]] = image[rows[inside], columns[inside] - 1] = 255
    return image


def main():
    """Play one run and print its time and counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stack", type=int, default=3, help="images that the network takes at once")
    parser.add_argument("--target", type=float, default=195, help="mean return at which to stop")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shift", type=int, default=0, help="pixels of random shift")
    parser.add_argument("--set", action="append", default=[], help="further settings of the run")
    arguments = parser.parse_args()
    settings = {
        "run.env": "tests.benchmarks.pixels:Drawn",
        "run.seed": arguments.seed,
        "run.stop.return": arguments.target,
        "run.stop.minutes": arguments.minutes,
        "algorithm.network": "nature_cnn",
        "algorithm.frame_stack": arguments.stack,
        "algorithm.random_shift": arguments.shift,
        "algorithm.precision": "bf16",
        "algorithm.batch_size": 64,
        "algorithm.learning_rate": 3e-4,
        "algorithm.n_step": 3,
        "algorithm.replay_capacity": 100_000,
        "balance.replay_ratio": 4,
    }
    written = [f"{name}={value}" for name, value in settings.items()] + arguments.set
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "spreeze_zmq.commands.launch", "cartpole_dqn"]
        command += ["--run-dir", f"{folder}/run", *(word for item in written for word in ("--set", item))]
        subprocess.run(command, check=True, stdout=sys.stderr)
        summary = json.loads(Path(folder, "run", "summary.json").read_text())
    names = ("exit_reason", "wall_s", "env_steps", "env_steps_per_s", "critic_updates", "best_return")
    print(json.dumps({name: summary[name] for name in names}))


if __name__ == "__main__":
    main()
