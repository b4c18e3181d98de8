"""What ``--graph`` prints of a topology: its processes and channels."""

from __future__ import annotations

import textwrap

from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.processes import ChannelPlan, Count
from spreeze_zmq.plan.roles import NODE

_ARROWS = {"push_pull": "<==", "pub_sub": "-->"}
_PATTERNS = {"push_pull": "PUSH/PULL", "pub_sub": "PUB/SUB"}


def graph(plan: Plan) -> str:
    """The processes and channels of a plan as text, with the roles at both ends."""
    width = max(map(len, plan.components))
    counts = {role: _counted(component.count) for role, component in plan.components.items()}
    wide = max(map(len, counts.values()))
    lines = [f"{plan.name}: {plan.run.algorithm} on {plan.run.env}", "", "processes"]
    for role in plan.components:
        lines.append(f"  {role:{width}}  {counts[role]:{wide}}  {_process(plan, role)}")
    lines += ["", "channels, the binding role first: <== receives from, --> publishes to"]
    for name, channel in plan.channels.items():
        lines += ["", f"  {name}"]
        lines += [f"    {line}" for line in _channel(name, channel)]
    return "\n".join(lines)


def _process(plan: Plan, role: str) -> str:
    component, parts = plan.components[role], [plan.components[role].use]
    if role in plan.placement:
        where = plan.placement[role]
        parts.append("on a machine that joins" if where == NODE else f"on a machine called {where}")
    if f"{role}.threads" not in plan.left_to_node:
        parts.append(f"{component.threads} thread{'s' if component.threads != 1 else ''} each")
    if "device" in component.options and f"{role}.device" not in plan.left_to_node:
        parts.append(component.options["device"])
    if component.nice:
        parts.append(f"nice {component.nice}")
    if not component.launched:
        parts.append("not launched, its place is free")
    return ", ".join(parts)


def _counted(count: Count) -> str:
    if count.minimum == count.maximum:
        return f"x {count.initial}"
    return f"x {count.initial} ({count.minimum} to {count.maximum})"


def _channel(name: str, channel: ChannelPlan) -> list[str]:
    endpoint = channel.endpoint or f"ipc://SOCKETS/{name}"
    queued = f"{channel.high_water_mark} messages queued at each end"
    carries = ", ".join(channel.kinds) + (f" of {', '.join(channel.fields)}" if channel.fields else "")
    return [
        f"{channel.binds} {_ARROWS[channel.pattern]} {', '.join(channel.connects) or 'nobody'}",
        f"{_PATTERNS[channel.pattern]} at {endpoint}, {queued}",
        *textwrap.wrap(f"carries {carries}", width=96, subsequent_indent="  "),
    ]
