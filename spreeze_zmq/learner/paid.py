"""How a run pays and discounts rewards: returns that an earlier run has counted may be of other ones."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from typing import Any

from spreeze_zmq.base.trust import TIME_LIMIT
from spreeze_zmq.plan.plan import Plan

#: The key of a learner's state.
PAID = "paid"

log = logging.getLogger("spreeze")


def paid_by(plan: Plan) -> dict[str, Any]:
    """``gamma``, and a digest of the arguments and ranges that environments are made with, as text; how long
    an episode may last pays nothing.
    """
    arguments = {**plan.environment.kwargs, TIME_LIMIT: None}
    made = json.dumps([arguments, plan.run.randomize], sort_keys=True)
    return {"gamma": plan.algorithm["gamma"], "made": hashlib.sha256(made.encode()).hexdigest()[:16]}


def paid_alike(state: Mapping[str, Any], plan: Plan) -> bool:
    """Whether the returns of a learner's state are of this run's discount and environment; says so where they
    are not. A state of an earlier release does not say, and is taken as alike.
    """
    before, now = state.get(PAID), paid_by(plan)
    if before is None or before == now:
        return True
    of_gamma = f"gamma was {before['gamma']:g} and is {now['gamma']:g}"
    why = of_gamma if before["gamma"] != now["gamma"] else "the environment is made in another way"
    log.info("%s: what rewards are divided by begins anew", why)
    return False
