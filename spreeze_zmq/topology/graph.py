"""The picture that ``--graph`` prints: processes, and the channels between them."""

from __future__ import annotations

from spreeze_zmq.topology.plan import ChannelPlan, ComponentPlan, Count, Plan

_ARROWS = {
    "push_pull": ("<==", "PUSH to PULL, waits when full"),
    "pub_sub": ("-->", "PUB to SUB, newest wins"),
}


def graph(plan: Plan) -> str:
    """Processes and channels of a plan as text: who binds, who connects, in which direction messages flow."""
    width = max(map(len, plan.components))
    lines = [f"{plan.name}: {plan.run.algorithm} on {plan.run.env}", "", "processes"]
    lines += [f"  {role:{width}}  {_process(component)}" for role, component in plan.components.items()]
    lines += ["", "channels (BINDER first; <== pulls from, --> publishes to)"]
    for name, channel in plan.channels.items():
        lines += _channel(name, channel, plan)
    return "\n".join(lines)


def _process(component: ComponentPlan) -> str:
    threads = f"{component.threads} thread{'s' if component.threads != 1 else ''} each"
    device = f", {component.options['device']}" if "device" in component.options else ""
    free = "" if component.launched else "; not launched, its place is free"
    return f"x {_count(component.count):6}  {component.use}: {threads}{device}, nice {component.nice}{free}"


def _count(count: Count) -> str:
    if count.minimum == count.maximum:
        return str(count.initial)
    return f"{count.initial} in {count.minimum}..{count.maximum}"


def _channel(name: str, channel: ChannelPlan, plan: Plan) -> list[str]:
    arrow, pattern = _ARROWS[channel.pattern]
    endpoint = channel.endpoint or f"ipc, {name} in the run's socket folder"
    carries = ", ".join(channel.kinds) + (f" of {', '.join(channel.fields)}" if channel.fields else "")
    return [
        f"  {name}",
        f"    {channel.binds} {arrow} {', '.join(channel.connects) or 'nobody'}",
        f"    {pattern}; {channel.high_water_mark} messages at each end; {endpoint}",
        f"    carries {carries}",
    ]
