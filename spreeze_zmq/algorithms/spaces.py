"""Which action spaces an algorithm or a distribution can act in."""

from __future__ import annotations

from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.errors import InvalidEnvironment
from spreeze_zmq.finite import LARGEST

ACTION_KINDS = ("box", "discrete", "multi_discrete")


def check_actions(who: str, acts_in: tuple[str, ...], needs_bounds: bool, env: EnvironmentSpec) -> None:
    """Raise InvalidEnvironment that ``who`` cannot act in ``env``, unless its actions are of one of the kinds
    ``acts_in``, and a box has finite bounds if ``needs_bounds``.
    """
    if env.action_kind not in acts_in:
        raise InvalidEnvironment(
            f"{who} acts in {' or '.join(acts_in)} action spaces, this environment's is {env.action_kind}"
        )
    if env.action_kind == "box" and needs_bounds and not env.has_bounds:
        raise InvalidEnvironment(
            f"{who} scales its actions to finite bounds of at most {LARGEST:g}, this environment has "
            f"{env.loose_bounds or 'none'}; give its action_space bounds that it can reach"
        )
