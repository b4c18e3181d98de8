"""Whether two machines have the same releases of what a run depends on."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from functools import cache

from spreeze_zmq.base.errors import is_installed
from spreeze_zmq.base.importing import import_folder
from spreeze_zmq.base.provenance import LEFT_BEHIND, OURS, normal
from spreeze_zmq.base.trust import modules_folder
from spreeze_zmq.envs.engines import ENGINES
from spreeze_zmq.evaluation.saved import own_modules
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import EVALUATOR, MEMBER, NODE, SAMPLER

#: Packages whose releases must be equal, where both machines have them.
SHARED = (OURS, "torch", "gymnasium", "mujoco")
#: Packages of which the first number of the version must be equal.
MAJOR = ("numpy",)
#: Packages that a node cannot do without.
NEEDED = (OURS, "numpy")


def engine_of_samplers(plan: Plan) -> str:
    """The engine that steps the environments of a run, on whichever machine: the one that does at the head,
    where "auto" might find another. Empty for a sampler of the user's own.
    """
    sampler, seen = plan.components[SAMPLER], plan.timing.get("backend")
    if sampler.use != SAMPLER:
        return ""
    stated = str(sampler.options["backend"])
    return str(seen) if stated == "auto" and seen in ENGINES else stated


def may_take(host: str, wanted: str) -> bool:
    """Whether a machine of this name may take a role that the plan's placement gives to ``wanted``."""
    return wanted == NODE or fnmatch(host, wanted)


def difference(
    plan: Plan, here: Mapping[str, str], there: Mapping[str, str], *, host: str = "", samples: bool = True
) -> str:
    """What keeps another machine from taking part in a run, in words; empty if nothing does. The packages of
    the run's environment and algorithm count, whose code runs there, unless it is sent along, and the library
    that steps the environments.

    Args:
        plan: of the run.
        here: the head's packages.
        there: the node's.
        host: the node's name.
        samples: whether samplers may run there.
    """
    own = _own(plan) | dict.fromkeys(_libraries(plan, host, samples=samples), True)
    for name in (*SHARED, *own, *MAJOR):
        needed = name in NEEDED or own.get(name, False)
        if name not in here or (name not in there and not needed):
            continue
        ours, theirs = _compared(name, here[name]), _compared(name, str(there.get(name, "")))
        number = here[name].partition("+")[0]
        if ours != theirs:
            if name == OURS and theirs.partition("+")[0] == number:
                return f"it has another {name} {theirs}, the run {ours}: pip install the same commit there"
            has = f"has {name} {theirs}" if theirs else f"has no {name}"
            return f"it {has}, the run {ours}: pip install '{name}=={number}' there"
    return ""


def _libraries(plan: Plan, host: str, *, samples: bool) -> list[str]:
    """The packages of the engines that step environments on a machine: for samplers, its own or those of a
    group that it may take, and for the evaluator, which takes the one that was chosen at the head.
    """
    takes = {role for role, wanted in plan.placement.items() if may_take(host, wanted)}
    found = []
    if (samples or MEMBER in takes) and not plan.offline:
        found.append(engine_of_samplers(plan))
    if EVALUATOR in takes and plan.components[EVALUATOR].use == EVALUATOR:
        found.append(str(plan.timing.get("backend")))
    return [name for name in found if name in ENGINES and ENGINES[name].module]


def _compared(name: str, version: str) -> str:
    """What of a package's version two machines must share: of this library its code too, of others no build,
    which depends on the machine's GPU.
    """
    release = version if name == OURS else version.partition("+")[0]
    return release.partition(".")[0] if name in MAJOR else release


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
        owners |= {normal(owner): not is_sent for owner in _owners(module)}
    return owners


@cache
def _owners(module: str) -> Sequence[str]:
    """The packages that a module belongs to; none where what an installer has left behind cannot be read."""
    from importlib import metadata

    with contextlib.suppress(*LEFT_BEHIND):
        return [owner for owner in metadata.packages_distributions().get(module, ()) if owner]
    return []
