"""What a run that goes on from another one has to share with it, so that it gives the same numbers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import SAMPLER


def facts_of(plan: Mapping[str, Any]) -> dict[str, Any]:
    """These facts of a run.json, by what they are called in words."""
    sampler = plan["components"][SAMPLER]
    return {
        "environment": [plan["environment"], plan["run"]["randomize"]],
        "algorithm": plan["algorithm"],
        "balance": plan["balance"],
        "samplers": [sampler["count"]["initial"], sampler["options"]],
        **({"data": data} if (data := plan.get("data")) else {}),
    }


def digest_of(plan: Plan) -> str:
    """A digest of them."""
    facts = facts_of(json.loads(plan.to_json()))
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def differing(before: Mapping[str, Any], plan: Plan) -> list[str]:
    """The words of those in which a plan differs from the run.json of the run that it goes on from."""
    here = facts_of(json.loads(plan.to_json()))
    try:
        there = facts_of(before)
    except (KeyError, TypeError):
        return list(here)
    return [name for name in {**here, **there} if there.get(name) != here.get(name)]
