"""The plan of a member: one more set of samplers and learners of a run of several groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from spreeze_zmq.plan import devices
from spreeze_zmq.plan.parts import StopPlan
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.processes import ChannelPlan, ComponentPlan
from spreeze_zmq.plan.roles import BROKER, FUSED, LEARNERS, MODELS, ROLES, SAMPLER, channels_of
from spreeze_zmq.plan.topology import resolve

#: What the run's own group has alone: its evaluator names the best policy, its page shows the run.
_LAUNCHED = (BROKER, SAMPLER, *LEARNERS)


def seed_of_group(seed: int, number: int, life: Sequence[int] = ()) -> int:
    """The seed of a group in one of its lives, from that of the run; that of group 0 is the run's own."""
    return int(np.random.SeedSequence([seed, number, *life]).generate_state(1)[0]) if number else seed


def plan_of_member(plan: Plan, number: int, cores: int, life: Sequence[int] = ()) -> Plan:
    """The plan of group ``number`` on a machine of so many cores, not placed yet.

    Args:
        plan: the run's, as the member's process has it: its channels to the fuser are connected to as they
            are.
        number: from 1 on; the run itself is group 0.
        cores: that the group may use.
        life: numbers that its seeds follow from, too: other ones in each life of the group, and in a run that
            goes on from another.
    """
    learners = plan.learning.learners
    fresh = {name: _own(plan.channels[name]) for name in channels_of(learners)}
    shared = {name: replace(plan.channels[name], remote="", back="") for name in (MODELS, FUSED)}
    components = {
        role: replace(component, launched=role in _LAUNCHED)
        for role, component in plan.components.items()
        if not ROLES[role].grouped
    }
    components = _fitting(plan, components, cores, number)
    return replace(
        plan,
        name=f"{plan.name}-{number}",
        run=replace(
            plan.run,
            seed=seed_of_group(plan.run.seed, number, life),
            stop=StopPlan(),
            save_replay=False,
            resume_from=None,
        ),
        components=components,
        channels={**fresh, **shared},
        groups=replace(plan.groups, number=number),
        placement={},
        left_to_node=(),
        pinning={},
        recording={},
        command=(),
        ancestors=(),
        launcher=0,
        run_dir="",
        socket_dir="",
    )


def _own(channel: ChannelPlan) -> ChannelPlan:
    """A channel within the group: in its own folder, whatever address the run's has."""
    return replace(channel, endpoint=None, remote="", back="", curve=False, keys="")


def _fitting(
    plan: Plan, components: Mapping[str, ComponentPlan], cores: int, number: int
) -> dict[str, ComponentPlan]:
    """The components with what the topology leaves open as it suits these cores and group ``number``, the
    learners with as many threads as the run has measured to pay, where the cores allow them.
    """
    fitted, learners, left_open = dict(components), plan.learning.learners, plan.groups.left_open
    if f"{SAMPLER}.count" in left_open:
        most = resolve.most_samplers(components, 1, by_hand=False)
        count = resolve.resolve_count(SAMPLER, "auto", cores, len(learners), most)
        fitted[SAMPLER] = replace(fitted[SAMPLER], count=count)
    num_samplers = fitted[SAMPLER].count.initial
    keys = [key.split(".") for key in left_open]
    for role, name in keys:
        if name not in ("count", "threads"):
            num_devices = devices.num_auto_devices()
            device = devices.resolve_device(role, "auto", num_devices, number, len(learners))
            fitted[role] = replace(fitted[role], options={**fitted[role].options, name: device})
    for role in [role for role, name in keys if name == "threads"]:
        device = fitted[role].options.get("device", "cpu")
        threads = resolve.resolve_threads(role, "auto", cores, num_samplers, len(learners), device)
        most = fitted[role].threads if "threads" in plan.measured else resolve.MOST_UNMEASURED_THREADS
        fitted[role] = replace(fitted[role], threads=min(threads, most))
    return fitted
