"""The environments of the run that this sampler steps, and what a policy's actions are in them."""

import re
import sys
from functools import partial

import gymnasium as gym
import numpy as np
from messages import LARGEST
from policy import act, places


def check_finite(*arrays):
    """What is not finite never travels; the process is started again with other episodes."""
    if not all((np.abs(array) <= LARGEST).all() for array in arrays):
        sys.exit("the environment gave a number that is not finite")


def numbered(value, number):
    """Keyword arguments of the environment with this number."""
    if isinstance(value, dict):
        return {key: numbered(item, number) for key, item in value.items()}
    if isinstance(value, list):
        return [numbered(item, number) for item in value]
    if not isinstance(value, str) or value == "{index}":
        return number if value == "{index}" else value
    form = r"{({\w+(?::[^{}]*)?})}|{index(?::([^{}]*))?}"
    return re.sub(form, lambda m: m[1] or format(number, m[2] or ""), value)


class Environments:
    """N of them, of one sampler."""

    def __init__(self, plan, index, num, rng):
        self.about, self.num, self.rng = plan["environment"], num, rng
        self.place = places(index, num)
        groups = plan["groups"]["count"]
        first = 3 + plan["components"]["evaluator"]["options"].get("episodes", 0) + 2 * groups
        first += (index * groups + plan["groups"]["number"]) * num
        made = [partial(self.make, first + n) for n in range(num)]
        mode = gym.vector.AutoresetMode.SAME_STEP
        self.batch = gym.vector.SyncVectorEnv(made, autoreset_mode=mode)
        self.reset, self.step = self.batch.reset, self.batch.step
        self.are_boxes = isinstance(self.batch.single_observation_space, gym.spaces.Box)

    def make(self, number):
        """The environment with this number."""
        return gym.make(self.about["id"], **numbered(self.about["kwargs"], number))

    def legal(self, info):
        """Which choices of the discrete actions are legal, [N, A]; all where the run uses no masks."""
        if self.about.get("action_mask"):
            return np.array(list(info["action_mask"]), bool)
        return np.ones((self.num, sum(self.about["action_sizes"])), bool)

    def draw(self, fields, weights, obs, masks):
        """N actions as the rollout holds them, as the environments get them, and their log_prob."""
        about, rng, head = self.about, self.rng, fields["description"]["distribution"]
        box, bounded = about["action_kind"] == "box", "action_low" in weights
        if (sizes := head.get("sizes", [head.get("num_actions", 0)] * (not box))) != about["action_sizes"]:
            raise ValueError(f"it chooses among {sizes}, the environment among {about['action_sizes']}")
        if fields["version"] == 0:
            one, _ = act(fields, weights, obs[0], action_mask=masks[0])
            one.reshape(about["action_shape"])  # raises where later versions could not act either
        masks = masks if head.get("action_mask") else np.ones_like(masks)
        if fields["version"] == 0 and bounded:
            low, high = weights["action_low"], weights["action_high"]
            action = rng.uniform(low, high, (self.num, low.size))
            log_prob = np.full(self.num, -low.size * np.log(2))
        elif fields["version"] == 0 and not box:
            parts = np.split(masks, np.cumsum(sizes)[:-1], 1)
            action = np.stack([(part * rng.random(part.shape)).argmax(1) for part in parts], 1)
            log_prob = -sum(np.log(part.sum(1)) for part in parts)
        else:
            action, log_prob = zip(
                *[act(fields, weights, o, rng, p, m) for o, p, m in zip(obs, self.place, masks, strict=True)],
                strict=True,
            )
        action = np.array(action, np.float32 if box else np.int64)
        given = action if box else action + np.array(about.get("action_start", 0))
        given = np.clip(action, weights["action_low"], weights["action_high"]) if bounded else given
        if limits := about.get("action_limits"):  # of a box that is bounded in part
            least, most = np.array(limits, np.float32).T
            given = np.fmin(np.fmax(given, least), most)
        if not np.isfinite(action).all():
            raise ValueError(f"its action is {action.tolist()}")
        shape = (self.num, *about["action_shape"])
        return action.reshape(shape), given.reshape(shape), np.array(log_prob, np.float32)

    def seen(self, fields, frames):
        """What the network takes, [N, size], of the newest observations [k, N, ...]."""
        if fields["description"]["observation"].get("channels_last"):
            frames = np.moveaxis(frames, -1, -3)
        return np.moveaxis(frames, 0, 1).reshape(self.num, -1)
