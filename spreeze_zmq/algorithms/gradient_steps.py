"""Gradient steps on the loss of one part of an algorithm, plain or recorded."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from spreeze_zmq import nn
from spreeze_zmq.algorithms.algorithm import Algorithm
from spreeze_zmq.algorithms.declarations import Loss
from spreeze_zmq.algorithms.declared import Fields, blaming, check_finite, check_loss, check_targets
from spreeze_zmq.algorithms.learner_networks import LearnerNetworks
from spreeze_zmq.algorithms.leaves import LOOKED_AT, Leaves
from spreeze_zmq.algorithms.observations import ObservationRows
from spreeze_zmq.algorithms.own_optimisers import check_optimisers
from spreeze_zmq.algorithms.shared_encoder import only_follows
from spreeze_zmq.base.errors import AlgorithmError
from spreeze_zmq.nn.device import captured
from spreeze_zmq.nn.native import recording
from spreeze_zmq.policy.actor import SHIPPED
from spreeze_zmq.replay import Batch, Round

log = logging.getLogger("spreeze")

#: Fields of a batch that are None, by what gives them.
WHEN_ABSENT = {
    "weight": "batch.weight is None without algorithm.prioritized = true, and in a policy_loss of replays, "
    "which draw evenly for it",
    "action_mask": "batch.action_mask is None where the environment gives none, or takes_masks is not set",
}


class GradientSteps:
    """The updates of one part: the gradient of its loss on a batch, a step along it, and what follows.

    Args:
        networks: those of the algorithm, of which the part trains its own.
        rows: turns observations into the networks' input.
        part: what is trained, ``"critic"`` or ``"policy"``.
        device: of the networks.

    Attributes:
        algorithm: the instance whose loss is trained.
        part: as above.
        remarks: what is odd about the algorithm, and, on a GPU, why its updates are not recorded.
        num_updates: gradient steps taken.
        env_steps: transitions that this group of the run has sampled, as far as this learner knows.
        run_env_steps: those of group 0, as far as another group's learner has heard.
    """

    def __init__(
        self, networks: LearnerNetworks, rows: ObservationRows, part: str, device: torch.device
    ) -> None:
        self._networks, self._rows, self.part, self._device = networks, rows, part, device
        self.algorithm, self.remarks = networks.algorithm, networks.remarks
        kind, options = type(self.algorithm), self.algorithm.options
        self._memory_size = kind.memory_size(options)
        nn.allow_tf32(options.precision, device)
        size = options.reference_batch_size if options.batch_size == "auto" else options.batch_size
        dtypes = nn.dtypes_of(options.precision, device, kind.auto_bf16)
        dtype, line, is_odd = nn.choose(networks.modules, size, dtypes)
        log.info("%s", line)
        if is_odd:
            self.remarks.add(f"{line}: updates may take twice as long")
        # Up to torch 2.10 its cache gave a network that had run without gradients none in the same loss.
        in_dtype = partial(torch.autocast, device.type, dtype, cache_enabled=False)
        self._autocast = contextlib.nullcontext if dtype == torch.float32 else in_dtype
        self._plain = False
        self._priorities: torch.Tensor | None = None
        self._loss_of: Callable[[Any], Loss | torch.Tensor] = getattr(self.algorithm, f"{part}_loss")
        after = f"after_{part}_step"
        self._after = getattr(self.algorithm, after)
        self._has_after = getattr(self._after, "__func__", None) is not getattr(Algorithm, after)
        may_move = part == "critic" or not only_follows(self.algorithm)
        self._may_move_targets = self._has_after and may_move
        self._is_own = not kind.__module__.startswith(SHIPPED)
        self._leaves = Leaves(self.algorithm, part, self.remarks.add)
        targets_move = kind.after_critic_step is not Algorithm.after_critic_step
        misses = part == "policy" and targets_move and not self._may_move_targets
        self._may_miss_moves = self._is_own and misses
        self.num_updates = 0
        self.env_steps = self.run_env_steps = 0

    def leave_to_torch(self) -> None:
        """From now on run all layers in torch and record nothing, for comparisons."""
        self._plain = True
        for module in self._networks.modules.values():
            nn.leave_to_torch(module)
        self.forget_recordings()

    def forget_recordings(self) -> None:
        """Record updates again, without and with measured metrics: the optimiser's rate is another, or the
        batch size, and what is recorded of the one before holds memory of a GPU.
        """
        learn = [partial(self._learn, measured) for measured in (False, True)]
        name, ended = f"{self.part}_loss", list[str]()
        about: Any = (self._device, self._networks.written(), name, ended, self.remarks.add)
        self._launch = learn if self._plain else [captured(each, *about) for each in learn]

    def _tell_env_steps(self) -> None:
        """Let the algorithm know how far the run is: a group that began later is where group 0 is."""
        self.algorithm.env_steps = max(self.env_steps, self.run_env_steps)

    def extras(self) -> dict[str, int]:
        """The ``extras`` of a policy message: the transitions that this group has sampled, and as
        ``run_env_steps`` those of group 0 where these are more, which an ``act`` is told.
        """
        ahead = {"run_env_steps": self.run_env_steps} if self.run_env_steps > self.env_steps else {}
        return {"env_steps": self.env_steps, **ahead}

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
        self._tell_env_steps()
        if isinstance(batch, Batch):
            fields = vars(batch)
        else:
            fields = dict(batch) if isinstance(batch, Mapping) else {"obs": batch}
        self._names = tuple(fields)
        metrics, self._priorities = self._launch[measured](*fields.values())
        if self._has_after:
            with torch.no_grad(), blaming(self.algorithm, f"after_{self.part}_step"):
                self._after()
                if self._is_own:  # the shipped ones assign nothing
                    self._networks.restore_replaced()
        if self.num_updates == 0:
            self._networks.name_unpublished()
            check_optimisers(self.algorithm, self._networks.modules)
        self.num_updates += 1
        return metrics

    def _learn(
        self, measured: bool, *tensors: torch.Tensor | None
    ) -> tuple[Mapping[str, torch.Tensor], torch.Tensor | None]:
        """The part of an update that is recorded as a CUDA graph or on a tape: the gradient and a step along
        it. Returns metrics and priorities.
        """
        if self._is_own:  # a loss may ask for the gradient of a field, into which the next batch is drawn
            tensors = tuple(None if each is None else each.detach() for each in tensors)
        batch = Fields(**self._in_rows(dict(zip(self._names, tensors, strict=True))))
        for name in ("obs", "next_obs"):
            if vars(batch).get(name) is not None:
                setattr(batch, name, self._rows(getattr(batch, name)))
        name = f"{self.part}_loss"
        absent = [WHEN_ABSENT[each] for each in WHEN_ABSENT if vars(batch).get(each, 0) is None]
        of_none = "".join(f"; {each}" for each in absent)
        with blaming(self.algorithm, name, of_none), self._autocast(), self._looking_at_targets(name):
            returned = self._loss_of(batch)
        loss = returned if isinstance(returned, Loss) else Loss(returned)
        entries = batch.memory if self._memory_size else tensors[0]
        size = 0 if entries is None else len(entries)
        metrics = self._metrics_of(loss, measured)
        check_loss(self.algorithm, self.part, loss._replace(metrics=metrics), size)
        if self.num_updates < LOOKED_AT:
            self._leaves.check(loss.loss, self._networks.held())
        if loss.loss.is_cpu:  # a GPU would have to be waited for: its weights are checked when published
            value = loss.loss.detach()
            recording.each_time(lambda: check_finite(value, self.algorithm, self.part, self.num_updates + 1))
        with blaming(self.algorithm, f"{self.part}_loss, going backward"), nn.into_grad():
            loss.loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad(), blaming(self.algorithm, f"{self.part}_loss"):
            self._networks.restore_replaced(gradients=True)
            self._networks.own.gather_gradient()
        if self.num_updates == 0:
            self._name_untrained()
        with torch.no_grad():
            factor = loss.rate_factor
            self._networks.optimiser.multiply_rate(None if factor is None else factor.detach())
        self._networks.optimiser.step()
        metrics = {f"{self.part}_loss": loss.loss, **metrics}
        priorities = None if loss.priorities is None else loss.priorities.detach()
        return {name: value.detach() for name, value in metrics.items()}, priorities

    def _looking_at_targets(self, what: str) -> contextlib.AbstractContextManager[None]:
        """At first, remark on targets that the policy's part reads and does not move."""
        looks = self._may_miss_moves and self.num_updates == 0
        return self._networks.looking_at_targets(what) if looks else contextlib.nullcontext()

    def _name_untrained(self) -> None:
        """Remark on the networks to which the first backward pass has given no gradient."""
        for name, module in self._networks.modules.items():
            gradients = [each.grad for each in module.parameters() if id(each) in self._networks.own.held]
            if gradients and not any(each is not None and each.any() for each in gradients):
                loss = f"{type(self.algorithm).__name__}: {self.part}_loss"
                self.remarks.add(
                    f"{loss} gives {name!r} no gradient at first: nothing trains it, if that stays so"
                )

    def _in_rows(self, fields: dict[str, torch.Tensor | None]) -> dict[str, torch.Tensor | None]:
        """The fields ``[T, n, ...]`` of a recurrent policy's batch as rows ``[T * n, ...]``, time-major,
        and those ``[1, n, ...]`` as ``[n, ...]``.
        """
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
        """The priorities ``[B]`` of the last batch, of sequences one each.

        Raises:
            AlgorithmError: the loss returns none, though the replay is prioritised, or, on a CPU, one that is
                not finite.
        """
        if self._priorities is None:
            raise AlgorithmError(
                self.algorithm, f"{self.part}_loss returns no priorities: Loss(..., priorities=error)"
            )
        if self._priorities.is_cpu and not self._priorities.isfinite().all():
            problem = f"{self.part}_loss gives priorities with NaN or infinity at update {self.num_updates}"
            raise AlgorithmError(
                self.algorithm, f"{problem}: Loss(..., priorities=error) takes finite numbers"
            )
        return self._priorities

    @torch.no_grad()
    def prepare(self, rollouts: Round) -> dict[str, torch.Tensor]:
        """The transitions of a round of rollouts, for :meth:`update`.

        Args:
            rollouts: a :class:`spreeze_zmq.replay.Round`.

        Returns:
            ``obs`` as it came, ``action``, ``log_prob``, the ``action_mask`` of an environment that gives
            masks, and what ``targets_of`` returns, ``[T * N, ...]``;
            for a recurrent policy ``[T, N, ...]``, with ``memory`` ``[1, N, M]`` and ``begins`` ``[T, N]``.
        """
        self._tell_env_steps()
        steps, envs = rollouts.reward.shape
        rows = self._rows(rollouts.obs.flatten(0, 1)).view(steps + 1, envs, -1)
        normalised = dataclasses.replace(rollouts, obs=rows, final_obs=self._rows(rollouts.final_obs))
        with blaming(self.algorithm, "targets_of"), self._looking_at_targets("targets_of"):
            targets = self.algorithm.targets_of(normalised)
            self._networks.restore_replaced()
        check_targets(self.algorithm, targets, steps, envs)
        kept = {"obs": rollouts.obs[:-1], "action": rollouts.action, "log_prob": rollouts.log_prob}
        if rollouts.action_mask is not None:
            kept["action_mask"] = rollouts.action_mask[:-1]
        fields = {**kept, **targets}
        if self._memory_size:
            assert rollouts.memory is not None
            return {**fields, "memory": rollouts.memory[None], "begins": rollouts.begins[:-1]}
        return {name: value.flatten(0, 1) for name, value in fields.items()}
