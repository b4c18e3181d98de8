"""What a resumed run takes over of what the run before scored: its best policy, if that was scored as the new
run scores its own, and the curve up to the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spreeze_zmq.base.errors import InputError, WireError
from spreeze_zmq.base.journal import read_journal, time_of
from spreeze_zmq.base.own_code import changed_files
from spreeze_zmq.base.trust import TIME_LIMIT
from spreeze_zmq.broker.returns import Evaluations
from spreeze_zmq.broker.validation import validated
from spreeze_zmq.envs.same import differences, is_same_id
from spreeze_zmq.evaluation.arena import episode_steps, randomized
from spreeze_zmq.evaluation.contestant import Contestant
from spreeze_zmq.evaluation.saved import SavedPolicy, own_modules
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import EVALUATOR, SAMPLER
from spreeze_zmq.policy import read_file
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.wire import KINDS, Message
from spreeze_zmq.wire.fields import check_fields

if TYPE_CHECKING:
    from spreeze_zmq.launcher.lineage import Origin

#: Why no best policy is taken over where there was none.
HAS_NONE = "it has none"


def why_not_best(plan: Plan, origin: Origin) -> str:
    """Why the parent's best policy is not the first best one of the run, in words; empty where it is."""
    path = RunFolder(origin.run.folder).best_policy
    if not path.exists():
        return HAS_NONE
    described = plan.environment.described
    try:
        if described and "evaluation_seed" not in read_file(path)[2]:
            return HAS_NONE  # it is the newest, of a run that evaluates nothing
        saved = SavedPolicy.load(path, own_modules(plan), described=described)
        Contestant.read(path)
    except (InputError, WireError, KeyError, OverflowError, TypeError, ValueError) as error:
        return f"{path} cannot be used: {error}"
    there, here = saved.environment.to_dict(), json.loads(plan.to_json())["environment"]
    scored, scores = there["max_episode_steps"], episode_steps(plan)
    if scored != scores:
        return f"it was scored in episodes of another length: at most {scored:,} steps, here {scores:,}"
    # the limit of training may be another one: scored episodes are as long
    made, making = ({**each["kwargs"], TIME_LIMIT: None} for each in (there, here))
    if not is_same_id(there["id"], here["id"]) or made != making or any(differences(there, here)):
        return "it was scored in an environment of other arguments"
    code, code_here = (code.get("environment", {}) for code in (origin.run.plan["own_code"], plan.own_code))
    if files := ", ".join(changed_files(code, code_here)):
        return f"it was scored in an environment of other code: {files} changed since"
    if saved.randomize != json.loads(json.dumps(randomized(plan))):
        return "it was scored on models drawn otherwise (run.randomize, components.evaluator.randomize)"
    return ""


def evaluations(plan: Plan, origin: Origin, why_not_best: str) -> list[dict[str, Any]]:
    """The evaluations that a run takes over, the oldest first; of many those that its broker would keep."""
    found = Evaluations()
    for entry in sorted(_evaluations_of(plan, origin, why_not_best), key=lambda one: one["t_s"]):
        found.take(entry, entry["t_s"])
    return found.all


def _evaluations_of(plan: Plan, origin: Origin, why_not_best: str) -> Iterator[dict[str, Any]]:
    """The evaluations of policies up to the checkpoint, and of the best policy if that is taken over, with
    ``t_s`` before the checkpoint's.
    """
    count = origin.run.plan["components"].get(SAMPLER, {}).get("count")
    sampled = not isinstance(count, dict) or count.get("maximum") != 0  # else all are of the same env steps
    for entry in read_journal(RunFolder(origin.run.folder).metrics, ("evaluation",)):
        if time_of(entry) is None:
            continue
        fields = {name: entry[name] for name in KINDS["evaluation"].fields if name in entry}
        try:
            check_fields("evaluation", KINDS["evaluation"], fields)
            fields = validated(Message("evaluation", fields, sender=f"{EVALUATOR}-0"), plan)
        except WireError:
            continue
        fields["best"] = fields["best"] and not why_not_best
        is_before = fields["env_steps"] <= origin.env_steps and (sampled or entry["t_s"] <= origin.t_s)
        if fields["best"] or is_before:
            yield {**fields, "t_s": min(entry["t_s"], origin.t_s)}
