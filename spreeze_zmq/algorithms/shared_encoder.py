"""Actor-critics on images: one encoder, which the critics' loss trains and the policy takes as it is (DrQ-v2,
Yarats et al. 2021, arXiv 2107.09645, section 3.1).

The critic-learner owns the encoder. It reaches the actor-learner with the critics, and a copy of it stands in
front of the policy's own layers, so that a published policy is whole.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from spreeze_zmq import nn
from spreeze_zmq.algorithms.algorithm import Algorithm
from spreeze_zmq.algorithms.declarations import Networks
from spreeze_zmq.algorithms.encoders import (
    EncoderOptions,
    check_encoder,
    check_shift,
    convolves,
    features,
    shifted,
)
from spreeze_zmq.algorithms.options import ReplayOptions
from spreeze_zmq.base.schema import option, with_default
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.nn import torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

#: Numbers that the critics, and the policy, each make of the features of an observation before their hidden
#: layers, in DrQ-v2.
LATENT = 50


@dataclass(frozen=True)
class SharedEncoderOptions(ReplayOptions):
    """Options of an actor-critic whose networks share an encoder of images."""

    network: str = with_default(EncoderOptions, "network", "auto")
    random_shift: int | Literal["auto"] = option(
        "auto",
        "largest random shift of images, in pixels (DrQ, 2004.13649); auto is a twentieth of their side, "
        "where there are convolutions",
        minimum=0,
        words=("auto",),
    )


class SharedEncoderAlgorithm(Algorithm):
    """Base of algorithms with the networks ``critics``, ``target_critics`` and ``policy``, which on images
    take the features of an ``encoder``.
    """

    options: Any
    encoder: Module
    policy: Any

    @classmethod
    def check(cls, env: EnvironmentSpec, options: Any) -> None:
        """Raise InvalidEnvironment if the actions do not fit, or an option needs other observations."""
        super().check(env, options)
        check_encoder(env, options)
        check_shift(env, options)

    @property
    def num_inputs(self) -> int:
        """Numbers that critics and policy take of an observation."""
        return LATENT if convolves(self.env, self.options) else math.prod(self.env.obs_shape)

    def behind_encoder(self, networks: Networks) -> Networks:
        """The same networks for vectors; for images those that take features, and the encoder."""
        if not convolves(self.env, self.options):
            return networks
        encoder, size = features(self.env, self.options)
        critics = nn.Projected(size, LATENT, networks.critic["critics"])
        own = networks.policy["policy"]
        plain = type(own) is torch.nn.Sequential and not nn.has_own_code(own)
        head = torch.nn.Sequential(*nn.projection(size, LATENT), *(own.children() if plain else [own]))
        policy = torch.nn.Sequential(copy.deepcopy(encoder), head)
        targets: dict[str, Module] = {"target_critics": copy.deepcopy(critics)}
        if "target_policy" in networks.targets:
            targets["target_policy"] = copy.deepcopy(policy)
        # only here, since it costs time in each update
        self.after_policy_step = self._follow_encoder  # type: ignore[method-assign]
        return replace(
            networks,
            critic={"encoder": encoder, "critics": critics},
            policy={**networks.policy, "policy": policy},
            targets=targets,
        )

    def features(self, obs: Tensor) -> Tensor:
        """What critics and policy take of observations ``[B, size]``: of images, randomly shifted, the
        features; where there are no convolutions images shifted as far as stated, and vectors as they are.
        """
        encoder, pixels = _encoder_of(self), self.options.random_shift
        if encoder is None and pixels == "auto":
            return obs
        moved = shifted(self.env, obs, pixels)
        return moved if encoder is None else encoder(moved)

    def head(self, policy: Any) -> Module:
        """A policy as it takes :meth:`features`, which its own copy of the encoder does not make."""
        own: Module = policy if _encoder_of(self) is None else policy[1]
        return own

    def _follow_encoder(self) -> None:
        """Copy the encoder, as the critics came with it, into the policy, whose loss gives it no gradient;
        then do what the class itself does after a step.
        """
        mine, newest = ([*each.parameters(), *each.buffers()] for each in (self.policy[0], self.encoder))
        torch._foreach_copy_(mine, newest)
        type(self).after_policy_step(self)


def only_follows(algorithm: Algorithm) -> bool:
    """Whether after a step of the policy the encoder is copied and no more, so that no target moves there."""
    after = getattr(algorithm.after_policy_step, "__func__", None)
    of_class = type(algorithm).after_policy_step
    return after is SharedEncoderAlgorithm._follow_encoder and of_class is Algorithm.after_policy_step


def _encoder_of(algorithm: Algorithm) -> Module | None:
    """The critics' encoder, which learners have; samplers have the policy with its own. An author's class may
    have any other names.
    """
    found = vars(algorithm).get("encoder")
    return found if isinstance(found, torch.nn.Module) else None
