"""One run of RLtools' SAC with the defaults of its Python package, as one JSON line like that of ``sb3.py``.

    .venv-peers/bin/python tests/benchmarks/rltools_peer.py Pendulum-v1 --seed 1 --minutes 1

Its training loop is compiled for each task, once; that time is left out, and so are its evaluations: the mean
return of ten episodes with the mean action, in Python.
"""

import argparse
import json
import time

BEGAN_S = time.monotonic()

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
from gymnasium.wrappers import RescaleAction  # noqa: E402
from rltools import SAC  # noqa: E402

#: Of the package: transitions in an update. There is one for each env step, from this number of them on.
BATCH = 100
#: Transitions kept. The package's default is its number of steps.
CAPACITY = 1_000_000
#: Env steps between two looks at the clock.
STRIDE = 100


class Clock:
    """Wall and CPU time of the process but for what is left out."""

    def __init__(self):
        self.out_s = self.out_core_s = 0.0

    def now(self):
        """Seconds, and CPU seconds."""
        return time.monotonic() - BEGAN_S - self.out_s, time.process_time() - self.out_core_s

    def left_out(self, function):
        """The result of a function whose time does not count."""
        began_s, began_core_s = time.monotonic(), time.process_time()
        result = function()
        self.out_s += time.monotonic() - began_s
        self.out_core_s += time.process_time() - began_core_s
        return result


def mean_return(state, env, episodes, seed):
    """The mean return of some episodes with the mean action."""
    total = 0.0
    for episode in range(episodes):
        obs, _ = env.reset(seed=seed + episode)
        ended = False
        while not ended:
            obs, reward, terminated, truncated, _ = env.step(state.action(np.asarray(obs, np.float32)))
            total += float(reward)
            ended = terminated or truncated
    return total / episodes


def main():
    """Train until the minutes are over, and print the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("env", help="a Gymnasium id")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--every", type=int, default=2000, help="env steps between two evaluations")
    parser.add_argument("--episodes", type=int, default=10, help="of one evaluation")
    arguments = parser.parse_args()

    def make():
        env = RescaleAction(gymnasium.make(arguments.env), -1, 1)
        env.reset(seed=arguments.seed)
        return env

    clock, env = Clock(), make()
    built = clock.left_out(
        lambda: SAC(make, enable_evaluation=False, STEP_LIMIT=2**40, REPLAY_BUFFER_CAP=CAPACITY)
    )
    state, steps, rows = built.State(arguments.seed), 0, []
    while clock.now()[0] < 60 * arguments.minutes:
        for _ in range(STRIDE):
            state.step()
        steps += STRIDE
        if steps % arguments.every == 0:
            spent = clock.now()
            found = clock.left_out(lambda: mean_return(state, env, arguments.episodes, 1000 * arguments.seed))
            rows.append((*spent, steps, BATCH * max(0, steps - BATCH), found))
    wall_s, core_s = clock.now()
    walls, cores, counts, trained, returns = zip(*rows, strict=True) if rows else ((),) * 5
    over = {"wall_s": walls, "core_s": cores, "env_steps": counts, "trained_transitions": trained}
    cost = {"wall_s": wall_s, "core_s": core_s, "env_steps": steps}
    about = {
        "env": arguments.env,
        "seed": arguments.seed,
        "trained_transitions": BATCH * max(0, steps - BATCH),
    }
    print(json.dumps({**about, **cost, "over": over, "returns": returns}))


if __name__ == "__main__":
    main()
