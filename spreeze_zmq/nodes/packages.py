"""Whether two machines have the same releases of what a run depends on."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache

from spreeze_zmq.base.errors import is_installed
from spreeze_zmq.base.trust import import_folder, modules_folder
from spreeze_zmq.envs.engines import ENGINES
from spreeze_zmq.evaluation.saved import own_modules
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import MEMBER, SAMPLER

#: Packages whose releases must be equal, where both machines have them.
SHARED = ("spreeze-zmq", "torch", "gymnasium", "mujoco")
#: Packages of which the first number of the version must be equal.
MAJOR = ("numpy",)
#: Packages that a node cannot do without.
NEEDED = ("spreeze-zmq", "numpy")


@cache
def installed() -> Mapping[str, str]:
    """The version of every installed package, by its normalized name, and ``python``'s, as they were when it
    was first asked for: a look at all of them takes a second on a busy machine.
    """
    from importlib import metadata  # with email, for machines that join alone

    found = {
        _normal(each.metadata["Name"]): each.version
        for each in metadata.distributions()
        if each.metadata["Name"]
    }
    return {**found, "python": ".".join(map(str, sys.version_info[:2]))}


def engine_of_samplers(plan: Plan) -> str:
    """The engine that steps the environments of a run, on whichever machine: the one that does at the head,
    where "auto" might find another. Empty for a sampler of the user's own.
    """
    sampler, seen = plan.components[SAMPLER], plan.timing.get("backend")
    if sampler.use != SAMPLER:
        return ""
    stated = str(sampler.options["backend"])
    return str(seen) if stated == "auto" and seen in ENGINES else stated


def difference(plan: Plan, here: Mapping[str, str], there: Mapping[str, str], *, samples: bool = True) -> str:
    """What keeps another machine from taking part in a run, in words; empty if nothing does. The packages of
    the run's environment and algorithm count, whose code runs there, unless it is sent along, and the library
    that steps the environments.

    Args:
        plan: of the run.
        here: the head's packages.
        there: the node's.
        samples: whether samplers may run there.
    """
    own = _own(plan)
    if (samples or MEMBER in plan.placement) and not plan.offline:
        engine = ENGINES.get(engine_of_samplers(plan))
        own |= {engine.name: True} if engine is not None and engine.module else {}
    for name in (*SHARED, *own, *MAJOR):
        needed = name in NEEDED or own.get(name, False)
        if name not in here or (name not in there and not needed):
            continue
        ours, theirs = here[name].partition("+")[0], str(there.get(name, "")).partition("+")[0]
        if name in MAJOR:
            ours, theirs = ours.partition(".")[0], theirs.partition(".")[0]
        if ours != theirs:
            has = f"has {name} {theirs}" if theirs else f"has no {name}"
            return f"it {has}, the run {ours}: pip install '{name}=={here[name].partition('+')[0]}' there"
    return ""


def _own(plan: Plan) -> dict[str, bool]:
    """The packages of the user's own modules, and whether a machine must have each: what is not installed but
    in a folder of the user's (``pip install -e``) is sent along. It is searched there before what is
    installed, but for the topology's folder, which is searched last.
    """
    beside, owners = str(modules_folder(plan.topology_file).absolute()), dict[str, bool]()
    for module in {module.partition(".")[0]: None for module in own_modules(plan)}:
        folder = import_folder(module, [*sys.path, beside])
        is_sent = bool(folder) and not is_installed(folder)
        if is_sent and folder != beside:
            continue
        owners |= {_normal(owner): not is_sent for owner in _owners(module)}
    return owners


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


@cache
def _owners(module: str) -> Sequence[str]:
    """The packages that a module belongs to."""
    from importlib import metadata

    return metadata.packages_distributions().get(module, ())
