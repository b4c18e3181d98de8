"""Whole samplers in Python and C++ beside the bare physics, in turn on one core: ``sampler_cpp.py ENV...``.

The bare physics takes states and actions of one policy; the samplers act by that policy and push rollouts
over ipc. The rates are env steps per CPU second of all threads of the process.
"""

import sys
from contextlib import ExitStack

from spreeze_zmq import envs
from spreeze_zmq.commands.bench.figures import in_turn, paired
from spreeze_zmq.commands.bench.physics import bare_physics, policy_actions
from spreeze_zmq.commands.bench.sampler import NUM_ENVS, bench_plan, policy_message, running_sampler
from spreeze_zmq.nodes.building import build_all
from spreeze_zmq.policy import Policy

SECONDS = 20.0


def measure(env_id):
    """One line for each sampler."""
    plans = {use: bench_plan(env_id, "sac", use) for use in ("sampler", "sampler_cpp")}
    build_all(plans["sampler_cpp"], print)
    message = policy_message(plans["sampler"])
    env = envs.make(env_id, NUM_ENVS, step_info=False)
    policy = Policy.from_message(message.fields, message.arrays)
    actions = policy_actions(env, plans["sampler"].environment.action_shape, policy)
    limit, name = bare_physics(env, env_id, actions)
    with ExitStack() as stack:
        whole = {use: stack.enter_context(running_sampler(plan, message)) for use, plan in plans.items()}
        ways = {"limit": limit, **{use: sampler.turn for use, sampler in whole.items()}}
        rates = in_turn(ways, SECONDS)
    by_cpu = {way: [rate.per_cpu_s for rate in measured] for way, measured in rates.items()}
    for use in plans:
        figure = paired(use, "env steps/CPU s", by_cpu["limit"], by_cpu[use])
        print(
            f"{env_id:16} {use:12} {figure.reached:9,.0f} of {figure.limit:9,.0f} {figure.unit} ({name})"
            f"  {figure.ratio:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    for each in sys.argv[1:] or ["HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5"]:
        measure(each)
