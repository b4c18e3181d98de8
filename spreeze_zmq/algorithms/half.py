"""The half of an algorithm that one learner runs: gradient steps on its loss, and what it exchanges.

A half has no socket, file or clock. It draws from a random generator of its own, which is part of its state:
a run resumed from a checkpoint continues exactly where it stopped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq import nn
from spreeze_zmq.algorithms.algorithm import Algorithm, Loss, seen
from spreeze_zmq.algorithms.declared import (
    Fields,
    blaming,
    check_finite,
    check_held,
    check_loss,
    check_targets,
)
from spreeze_zmq.algorithms.learner_networks import NOISE, LearnerNetworks, seed_of
from spreeze_zmq.algorithms.moving import MovingOptions
from spreeze_zmq.algorithms.observations import ObservationRows, RunningStatistics
from spreeze_zmq.algorithms.shared_model import SharedModel, Statistics
from spreeze_zmq.base.errors import AlgorithmError
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.nn.device import captured
from spreeze_zmq.nn.native import recording
from spreeze_zmq.replay import Batch, Round

log = logging.getLogger("spreeze")

Parameters = NDArray[np.float32]


class AutogradHalf:
    """One part of an algorithm: the networks that it trains, those of the other part, and steps on its loss.

    Noise comes from torch's default generator, which only this half may use: a learner process has one half.

    Args:
        kind: the algorithm.
        options: an instance of its ``Options``.
        env: the environment's spec.
        device: as torch names it.
        seed: of the run; both halves derive the same first weights from it.
        part: ``"critic"`` or ``"policy"``.

    Attributes:
        algorithm: the instance whose loss is trained.
        part: what it trains, ``"critic"`` or ``"policy"``.
        num_updates: gradient steps taken.
        env_steps: transitions that the run has sampled, as far as this learner knows; for schedules.

    Raises:
        AlgorithmError: the algorithm's declarations do not fit together.
    """

    def __init__(
        self, kind: type[Algorithm], options: Any, env: EnvironmentSpec, device: str, seed: int, part: str
    ) -> None:
        self._device = torch.device(device)
        self.part, self._memory_size = part, kind.memory_size(options)
        self._moving = MovingOptions(options, self._device)
        self._networks = LearnerNetworks(kind, self._moving, seen(env, options), self._device, seed, part)
        self.algorithm = self._networks.algorithm
        self._rows = ObservationRows(env, options.normalize_observations, self._device, options.frame_stack)
        self._statistics = RunningStatistics(env, options.frame_stack)
        nn.allow_tf32(options.precision, self._device)
        size = options.reference_batch_size if options.batch_size == "auto" else options.batch_size
        dtypes = nn.dtypes_of(options.precision, self._device, kind.auto_bf16)
        dtype, line = nn.choose(self._networks.modules, size, dtypes)
        log.info("%s", line)
        in_dtype = partial(torch.autocast, self._device.type, dtype)
        self._autocast = contextlib.nullcontext if dtype == torch.float32 else in_dtype
        self._plain = False
        self._priorities: torch.Tensor | None = None
        self._loss_of: Callable[[Any], Loss | torch.Tensor] = getattr(self.algorithm, f"{part}_loss")
        after = f"after_{part}_step"
        self._after = getattr(self.algorithm, after)
        self._has_after = getattr(self._after, "__func__", None) is not getattr(Algorithm, after)
        self.num_updates = 0
        self.env_steps = 0
        torch.manual_seed(seed_of(seed, NOISE[part]))
        self._forget_recordings()

    def leave_to_torch(self) -> None:
        """From now on run all layers in torch and record nothing, for comparisons."""
        self._plain = True
        for module in self._networks.modules.values():
            nn.leave_to_torch(module)
        self._forget_recordings()

    def _forget_recordings(self) -> None:
        """Record updates again, without and with measured metrics: the optimiser's rate is another."""
        learn = [partial(self._learn, measured) for measured in (False, True)]
        about: Any = (self._device, self._networks.written(), f"{self.part}_loss", [])
        self._launch = learn if self._plain else [captured(each, *about) for each in learn]

    # --- an update

    def update(
        self, batch: Batch | Mapping[str, torch.Tensor] | torch.Tensor, measured: bool = True
    ) -> Mapping[str, torch.Tensor]:
        """Take one gradient step and return the loss and its metrics, 0-d, by name.

        Args:
            batch: a :class:`spreeze_zmq.replay.Batch`, observations, or rows from :meth:`prepare`.
            measured: whether metrics that are functions are called, too.

        Raises:
            AlgorithmError: the loss is not a finite scalar, or does not depend on a trained network.
        """
        self.algorithm.env_steps = self.env_steps
        if isinstance(batch, Batch):
            fields = vars(batch)
        else:
            fields = dict(batch) if isinstance(batch, Mapping) else {"obs": batch}
        self._names = tuple(fields)
        metrics, self._priorities = self._launch[measured](*fields.values())
        if self._has_after:
            with torch.no_grad(), blaming(self.algorithm, f"after_{self.part}_step"):
                self._after()
                self._networks.restore_replaced()
        self.num_updates += 1
        return metrics

    def _learn(
        self, measured: bool, *tensors: torch.Tensor | None
    ) -> tuple[Mapping[str, torch.Tensor], torch.Tensor | None]:
        """The part of an update that is recorded as a CUDA graph or on a tape: the gradient and a step along
        it. Returns metrics and priorities.
        """
        batch = Fields(**self._in_rows(dict(zip(self._names, tensors, strict=True))))
        for name in ("obs", "next_obs"):
            if vars(batch).get(name) is not None:
                setattr(batch, name, self._rows(getattr(batch, name)))
        with blaming(self.algorithm, f"{self.part}_loss"), self._autocast():
            returned = self._loss_of(batch)
        loss = returned if isinstance(returned, Loss) else Loss(returned)
        size = len(tensors[0]) if tensors[0] is not None else 0
        metrics = self._metrics_of(loss, measured)
        check_loss(self.algorithm, self.part, loss._replace(metrics=metrics), size)
        if self.num_updates == 0:
            check_held(self.algorithm, self.part, loss.loss, self._networks.own.held)
        if loss.loss.is_cpu:  # a GPU would have to be waited for: its weights are checked when published
            value = loss.loss.detach()
            recording.each_time(lambda: check_finite(value, self.algorithm, self.part, self.num_updates + 1))
        with blaming(self.algorithm, f"{self.part}_loss, going backward"), nn.into_grad():
            loss.loss.backward()  # type: ignore[no-untyped-call]
        if self.num_updates == 0:
            self._name_untrained()
        if loss.rate_factor is not None:
            with torch.no_grad():
                self._networks.optimiser.multiply_rate(loss.rate_factor.detach())
        self._networks.optimiser.step()
        with torch.no_grad(), blaming(self.algorithm, f"{self.part}_loss"):
            self._networks.restore_replaced()
        metrics = {f"{self.part}_loss": loss.loss, **metrics}
        priorities = None if loss.priorities is None else loss.priorities.detach()
        return {name: value.detach() for name, value in metrics.items()}, priorities

    def _name_untrained(self) -> None:
        """Log the networks to which the first backward pass has given no gradient."""
        for name, module in self._networks.modules.items():
            gradients = [each.grad for each in module.parameters() if id(each) in self._networks.own.held]
            if gradients and not any(each is not None and each.any() for each in gradients):
                kind, part = type(self.algorithm).__name__, self.part
                log.warning("%s: %s_loss gives no gradient to %r: nothing trains it", kind, part, name)

    def _in_rows(self, fields: dict[str, torch.Tensor | None]) -> dict[str, torch.Tensor | None]:
        """The fields ``[T, n, ...]`` of a recurrent policy's batch as rows ``[T * n, ...]``, time-major."""
        if not self._memory_size:
            return fields
        rows = {name: None if value is None else value.flatten(0, 1) for name, value in fields.items()}
        return {**rows, "begins": fields["begins"]}

    @torch.no_grad()
    def _metrics_of(self, loss: Loss, measured: bool) -> dict[str, torch.Tensor]:
        with blaming(self.algorithm, f"{self.part}_loss"):
            return {
                name: value() if callable(value) else value
                for name, value in loss.metrics.items()
                if measured or not callable(value)
            }

    def priorities(self) -> torch.Tensor:
        """The priorities ``[B]`` of the last batch.

        Raises:
            AlgorithmError: the loss returns none, though the replay is prioritised.
        """
        if self._priorities is None:
            raise AlgorithmError(
                self.algorithm, f"{self.part}_loss returns no priorities: Loss(..., priorities=error)"
            )
        return self._priorities

    @torch.no_grad()
    def prepare(self, rollouts: Round) -> dict[str, torch.Tensor]:
        """The transitions of a round of rollouts, for :meth:`update`.

        Args:
            rollouts: a :class:`spreeze_zmq.replay.Round`.

        Returns:
            ``obs`` as it came, ``action``, ``log_prob`` and what ``targets_of`` returns, ``[T * N, ...]``;
            for a recurrent policy ``[T, N, ...]``, with ``memory`` ``[1, N, M]`` and ``begins`` ``[T, N]``.
        """
        self.algorithm.env_steps = self.env_steps
        steps, envs = rollouts.reward.shape
        rows = self._rows(rollouts.obs.flatten(0, 1)).view(steps + 1, envs, -1)
        normalised = dataclasses.replace(rollouts, obs=rows, final_obs=self._rows(rollouts.final_obs))
        with blaming(self.algorithm, "targets_of"):
            targets = self.algorithm.targets_of(normalised)
        check_targets(self.algorithm, targets, steps, envs)
        kept = {"obs": rollouts.obs[:-1], "action": rollouts.action, "log_prob": rollouts.log_prob}
        fields = {**kept, **targets}
        if self._memory_size:
            assert rollouts.memory is not None
            return {**fields, "memory": rollouts.memory[None], "begins": rollouts.begins[:-1]}
        return {name: value.flatten(0, 1) for name, value in fields.items()}

    # --- what it publishes and receives

    def shared_model(self, *pooled: Statistics, of_policy: bool) -> SharedModel:
        """What it has in common with the same half of other groups: the networks that it trains, the targets
        that it moves, ``pooled`` statistics, and ``of_policy`` those of observations if these are learned.
        """
        statistics = (*pooled, *[self._statistics] * (of_policy and self._rows.learned))
        return SharedModel(self._networks, statistics, moves_targets=self._has_after)

    @property
    def weights(self) -> torch.Tensor:
        """Flat float32 on the device: the acting network first, the part's other networks, their buffers."""
        return self._networks.own.flat

    def load(self, kind: str, arrays: Mapping[str, Parameters]) -> None:
        """Take over the other half's published weights, of a message of this ``kind``. Raises WireError where
        they do not fit.
        """
        if kind == "policy":
            self.load_policy(arrays)
        else:
            self.load_critic(arrays["parameters"])

    def load_policy(self, arrays: Mapping[str, Parameters]) -> None:
        """Take over a published policy. Raises WireError where it does not fit."""
        auxiliary = arrays.get("auxiliary", np.empty(0, np.float32))
        self._networks.other.load(np.concatenate((arrays["parameters"], auxiliary)), "a policy")
        self._rows.adopt(arrays)

    def load_critic(self, parameters: Parameters) -> None:
        """Take over published critics. Raises WireError where they do not fit."""
        self._networks.other.load(parameters, "critics")

    def observe(self, obs: NDArray[Any]) -> None:
        """Add observations ``[M, *obs_shape]`` to the statistics; the next publication puts them into use."""
        if self._rows.learned:
            self._statistics.add(obs)

    def description(self) -> dict[str, Any]:
        """The policy in plain values, enough to evaluate it: its layers, or the name of its class."""
        self.algorithm.env_steps = self.env_steps
        kind, observation = type(self.algorithm), self._rows.description()
        about = {"observation": observation, "distribution": self.algorithm.distribution().describe()}
        if self._networks.layers is not None:
            return {**about, "layers": self._networks.layers}
        return {
            **about,
            "class": f"{kind.__module__}:{kind.__qualname__}",
            "options": {**dataclasses.asdict(self.options), **self._moving.values()},
            "environment": self.algorithm.env.to_dict(),
        }

    def policy_arrays(self, weights: Parameters | None = None) -> dict[str, Parameters]:
        """Every array of a policy message; updates use its observation statistics from now on.

        Args:
            weights: a copy of :attr:`weights` on the host; None waits for the device to copy them.
        """
        if self._statistics.count:
            self._rows.adopt(self._statistics.arrays())
        flat = self._networks.own.flat.cpu().numpy().copy() if weights is None else weights
        acting = len(flat) if self._networks.layers is None else self._networks.own.num_acting
        auxiliary = {"auxiliary": flat[acting:]} if len(flat) > acting else {}
        bounds = self.algorithm.distribution().arrays()
        return {"parameters": flat[:acting], **auxiliary, **bounds, **self._rows.arrays()}

    # --- options that change between updates

    @property
    def options(self) -> Any:
        """The options as stated: schedules are tables."""
        return self._moving.stated

    @property
    def moves(self) -> bool:
        """Whether any option of the algorithm is a schedule."""
        return self._moving.moves

    def follow(self, reached: Mapping[str, float]) -> None:
        """Move every option that is a schedule to where the run is.

        Args:
            reached: count of the run -> how much of it has been reached: ``env_steps``,
                ``trained_transitions``, ``minutes``, and ``run``, the share of the whole; none goes back.
        """
        self._moving.follow(reached)
        self._networks.optimiser.follow()

    @property
    def reached(self) -> dict[str, float]:
        """The counts that the options have followed so far."""
        return self._moving.reached

    @property
    def adapts(self) -> bool:
        """Whether a loss moves the learning rate."""
        return self._networks.optimiser.multiplied

    @property
    def learning_rate(self) -> float:
        """That of the part, as it is."""
        return next(iter(self._networks.optimiser.rates().values()))

    def rates(self) -> dict[str, float]:
        """The learning rate as it is, and the numbers that move, by name; those of the policy's part, and of
        a network that an option names, begin with its name.
        """
        own = "" if self.part == "critic" else f"{self.part}_"
        rates = self._networks.optimiser.rates().items()
        shared = {} if own else self._moving.values()
        return shared | {f"{f'{name}_' if name else own}learning_rate": rate for name, rate in rates}

    def set_rates(self, rates: Mapping[str, Any]) -> None:
        """Change the options that follow the batch size."""
        self._moving.restate(dataclasses.replace(self.options, **rates))
        self.algorithm.options = self._moving.live
        self._networks.optimiser.restate(self.options)
        self._forget_recordings()

    # --- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Copies of everything that the next update depends on, as tensors and plain numbers."""
        cuda = self._device.type == "cuda"
        return {
            **self._networks.state_dict(),
            "observations": self._rows.state_dict(),
            "statistics": self._statistics.state_dict(),
            "generator": torch.cuda.get_rng_state(self._device) if cuda else torch.get_rng_state(),
            "num_updates": self.num_updates,
            "env_steps": self.env_steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where :meth:`state_dict` was taken."""
        self._networks.load_state_dict(state)
        self._rows.load_state_dict(state["observations"])
        self._statistics.load_state_dict(state["statistics"])
        if self._device.type == "cuda":
            torch.cuda.set_rng_state(state["generator"].cpu(), self._device)
        else:
            torch.set_rng_state(state["generator"].cpu())
        self.num_updates, self.env_steps = int(state["num_updates"]), int(state["env_steps"])
