"""A run in order that goes on from the last checkpoint of another one gives the numbers of one whole run."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spreeze_zmq.learner.own_draws import go_on_drawing, kept_draws, may_draw
from spreeze_zmq.plan.plan import Plan, digests_of, gpus_of
from spreeze_zmq.replay import RoundStore
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.sampler_state import state_file

if TYPE_CHECKING:
    from spreeze_zmq.learner.learner import Learner

log = logging.getLogger("spreeze")

#: The key of a learner's state.
GOES_ON = "goes_on"


class GoingOn:
    """What a checkpoint holds beside a learner's state once that has done all that its samples allow: its
    place among the rollouts and versions of the run, and the state of each sampler.

    Args:
        learner: whose experience, outlet and record go on.
    """

    def __init__(self, learner: Learner) -> None:
        self._learner = learner

    def state(self) -> dict[str, Any]:
        """The place, of types that torch reads without running code; empty where nothing exact follows."""
        learner = self._learner
        if not learner.experience.keeps_order:
            return {}
        others = None if learner.others is None else [learner.others.came, learner.others.num_taken]
        place: dict[str, Any] = {
            "facts": digests_of(learner.component.plan)[0],
            "devices": _devices(learner.component.plan),
            "others": others,
            "lines": learner.record.lines,
        }
        if may_draw(learner.component.plan):
            place["draws"] = kept_draws()
        place |= {"published": learner.cadence.published, "outlet": learner.outlet.get_state()}
        return {GOES_ON: {**place, "experience": learner.experience.order()}}

    def restore(self, state: Mapping[str, Any]) -> bool:
        """Go on from :meth:`state`, after the rest; False where this run is another, or has no replay."""
        learner, place = self._learner, state.get(GOES_ON)
        experience, plan = learner.experience, learner.component.plan
        lost = not isinstance(experience.replay, RoundStore) and not len(experience.replay)
        if place is None or lost or not experience.keeps_order or not _is_of(plan, place):
            return False
        before = experience.go_on(place["experience"])
        learner.outlet.set_state(place["outlet"], before)
        learner.cadence.published = place["published"]
        learner.outlet.published = not learner.outlet.of_policy  # policies have readers that are new
        if learner.others is not None:
            learner.others.go_on(*place["others"])
        if "draws" in place:  # earlier releases have none
            go_on_drawing(place["draws"])
        if plan.run.resume_from is not None:
            folder = RunFolder(Path(plan.run.resume_from).parents[1])
            learner.record.go_on(folder.losses(learner.component.role), place["lines"])
        log.info("goes on exactly where the run before was")
        return True

    def wait_at(self, env_steps: int | None) -> bool:
        """Have the learner be done where all is done that so many transitions allow; see
        :meth:`Experience.rest_at`.
        """
        return self._learner.experience.rest_at(env_steps)

    def counts(self) -> dict[str, float]:
        """The learner's counters, as of the state."""
        return dict(self._learner.counters())

    def files(self) -> dict[str, bytes]:
        """The state of each sampler after the rollout that has been taken last, by the file's name."""
        states = self._learner.experience.intake.states
        return {state_file(sampler): state.tobytes() for sampler, state in states.items()}


def _devices(plan: Plan) -> dict[str, str]:
    return gpus_of(json.loads(plan.to_json()))


def _is_of(plan: Plan, place: Mapping[str, Any]) -> bool:
    """Whether a run of this plan gives the numbers of the one that the place is of. Places of earlier
    releases have no devices.
    """
    here = _devices(plan)
    return bool(place["facts"] in digests_of(plan) and place.get("devices", here) == here)
