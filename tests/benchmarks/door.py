"""CPU time of a batch's step beside another version's, in pairs: what checking every step costs.

    python tests/benchmarks/door.py OTHER_PYTHON --pairs 10

``OTHER_PYTHON`` is the interpreter of an environment in which the other version is installed.
"""

import argparse
import json
import statistics
import subprocess
import sys

#: Environment, backend, number of environments and steps of one turn.
LOOPS = (
    ("CartPole-v1", "gymnasium", 16, 1500),
    ("CartPole-v1", "numpy", 16, 6000),
    ("Pendulum-v1", "gymnasium", 16, 1000),
    ("HalfCheetah-v5", "mujoco", 16, 600),
)
TURN = """
import json, sys, time
from spreeze_zmq import envs
times = []
for env_id, backend, num_envs, steps in json.loads(sys.argv[1]):
    env = envs.make(env_id, num_envs, seed=1, backend=backend, step_info=False)
    env.reset()
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(64)]
    turns = []
    for turn in range(5):
        began_s = time.process_time()
        for step in range(steps):
            env.step(actions[step % 64])
        turns.append(time.process_time() - began_s)
    times.append(min(turns) / steps / num_envs * 1e9)
print(json.dumps(times))
"""


def turn(python):
    """Nanoseconds of CPU time of one environment's step in each loop: the quickest of five."""
    done = subprocess.run([python, "-c", TURN, json.dumps(LOOPS)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    """Print the ratio of each pair of turns, and their median."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other")
    parser.add_argument("--pairs", type=int, default=10)
    arguments = parser.parse_args()
    turn(sys.executable), turn(arguments.other)  # fill the caches
    pairs = [(turn(sys.executable), turn(arguments.other)) for _ in range(arguments.pairs)]
    for number, (env_id, backend, *_) in enumerate(LOOPS):
        ratios = sorted(ours[number] / theirs[number] for ours, theirs in pairs)
        now, then = (statistics.median(side[number] for side in sides) for sides in zip(*pairs, strict=True))
        shown = " ".join(f"{ratio:.3f}" for ratio in ratios)
        print(f"{env_id} {backend}: {statistics.median(ratios):.3f} ({now:.0f} and {then:.0f} ns; {shown})")


if __name__ == "__main__":
    main()
