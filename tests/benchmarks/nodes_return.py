"""The time to a return of training by the number of machines, where each step of the environment waits.

    python tests/benchmarks/nodes_return.py 1 4 1 4 1 4 --until -25 --set balance.replay_ratio=16

The machines are those of ``nodes.py``. The clock runs from the first env step that arrives, while others are
still joining. ``returns`` is the curve: env steps -> mean return of the last episodes.
"""

import nodes
from machines import wait_for

#: A return of training is that of at least so many episodes.
EPISODES = 20


def curve(run):
    """Seconds, env steps and the return of the last episodes, as the run's journal has them."""
    for status in nodes.statuses(run):
        if status["episodes"].get("count", 0) >= EPISODES:
            yield status["t_s"], status["env_steps"], status["episodes"]["recent_return"]


def timed(machines, arguments):
    """One run until the return is reached."""
    with nodes.joined(machines, arguments) as (run, codes):
        wait_for(lambda: any(found >= arguments.until for *_, found in curve(run)), 1200)
    began_s = next(status["t_s"] for status in nodes.statuses(run) if status["env_steps"])
    seen = list(curve(run))
    reached_s, env_steps, _ = next(entry for entry in seen if entry[2] >= arguments.until)
    return {
        "machines": len(codes) - 1,
        "seconds": round(reached_s - began_s, 1),
        "env_steps": env_steps,
        "returns": {steps: round(found, 1) for _, steps, found in seen[:: max(1, len(seen) // 12)]},
        "codes": codes,
    }


if __name__ == "__main__":
    until = {"type": float, "required": True, "metavar": "RETURN", "help": "of training"}
    nodes.each(__doc__, timed, ("--until", until))
