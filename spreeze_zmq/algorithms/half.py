"""The half of an algorithm that one learner runs: a loss under autograd, its networks in one flat buffer."""

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
from spreeze_zmq.algorithms.algorithm import Algorithm, Loss
from spreeze_zmq.algorithms.declared import blaming, check_finite, check_loss, check_targets
from spreeze_zmq.algorithms.flat import FlatAdam
from spreeze_zmq.algorithms.interface import Environment, Fields, Parameters, seen
from spreeze_zmq.algorithms.learner_networks import LearnerNetworks
from spreeze_zmq.algorithms.observations import ObservationRows, RunningStatistics
from spreeze_zmq.algorithms.precision import allow_tf32, dtypes_of
from spreeze_zmq.device import captured
from spreeze_zmq.errors import AlgorithmError
from spreeze_zmq.native import recording
from spreeze_zmq.replay import Batch

log = logging.getLogger("spreeze")

#: Streams of random numbers that one seed is spread over: first weights, noise of each part.
FIRST_WEIGHTS, NOISE = 0, {"critic": 2, "policy": 3}


class AutogradHalf:
    """One part of an algorithm: networks that it trains, those of the other part, and a step of its loss.

    Noise comes from torch's default generator, which belongs to this half: a learner's process has one.

    Args:
        kind: the algorithm.
        options: an instance of its ``Options``.
        env: the environment's spec.
        device: as torch names it.
        seed: the run's; both halves of a run make the same first weights from it.
        part: ``"critic"`` or ``"policy"``.

    Raises:
        AlgorithmError: its declarations do not fit together.
    """

    def __init__(
        self, kind: type[Algorithm], options: Any, env: Environment, device: str, seed: int, part: str
    ) -> None:
        self._device = torch.device(device)
        self._part, self._memory_size = part, kind.memory_size(options)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_stream(seed, FIRST_WEIGHTS))
            self._networks = LearnerNetworks(kind, options, seen(env, options), self._device, part)
        self.algorithm, own = self._networks.algorithm, self._networks.own
        self._adam = FlatAdam(
            own.trained,
            own.gradient,
            options.learning_rate,
            beta2=options.adam_beta2,
            weight_decay=options.weight_decay,
            num_decaying=own.num_weights,
            max_gradient_norm=options.max_gradient_norm,
        )
        self._rows = ObservationRows(env, options.normalize_observations, self._device, options.frame_stack)
        self._statistics = RunningStatistics(env, options.frame_stack)
        allow_tf32(options.precision, self._device)
        size = options.reference_batch_size if options.batch_size == "auto" else options.batch_size
        dtypes = dtypes_of(options.precision, self._device, kind.auto_bf16)
        self._dtype, line = nn.choose(self._networks.modules, size, dtypes)
        log.info("%s", line)
        self._recorded_around: list[object] = []
        self._plain = False
        self._priorities: torch.Tensor | None = None
        self._loss_of: Callable[[Any], Loss | torch.Tensor] = getattr(self.algorithm, f"{part}_loss")
        self._after = getattr(self.algorithm, f"after_{part}_step")
        self.num_updates = 0
        self.env_steps = 0
        torch.manual_seed(_stream(seed, NOISE[part]))

    def _around(self) -> list[object]:
        """What a recording takes as it was: numbers that the algorithm keeps, and which objects."""
        plain = (bool, int, float, str)
        kept = vars(self.algorithm).items()
        return [
            value if isinstance(value, plain) else id(value) for name, value in kept if name != "_env_steps"
        ]

    def leave_to_torch(self) -> None:
        """Compute no layer natively and record nothing from here on, for comparisons."""
        self._plain = True
        for module in self._networks.modules.values():
            nn.leave_to_torch(module)
        self._forget_recordings()

    def _forget_recordings(self) -> None:
        """Record updates anew, since something that is no tensor has changed: those with and without the
        metrics that are to be measured.
        """
        learn = [partial(self._learn, measured) for measured in (False, True)]
        self._launch = learn if self._plain else [captured(each, self._device) for each in learn]

    # --- an update

    def update(self, batch: Any, measured: bool = True) -> Mapping[str, torch.Tensor]:
        """One gradient step on a :class:`spreeze_zmq.replay.Batch`, on observations, or on a part of what
        :meth:`prepare` gave; returns the loss's metrics, without those that are functions if they are not to
        be ``measured``.

        Raises:
            AlgorithmError: the loss is no finite scalar, or none that depends on what is trained.
        """
        self.algorithm.env_steps = self.env_steps
        if (around := self._around()) != self._recorded_around:
            self._recorded_around = around
            self._forget_recordings()
        if isinstance(batch, Batch):
            fields = vars(batch)
        else:
            fields = dict(batch) if isinstance(batch, Mapping) else {"obs": batch}
        self._names = tuple(fields)
        metrics, self._priorities = self._launch[measured](*fields.values())
        with torch.no_grad(), blaming(self.algorithm, f"after_{self._part}_step"):
            self._after()
            self._networks.put_back()
        self.num_updates += 1
        return metrics

    def _learn(
        self, measured: bool, *tensors: torch.Tensor | None
    ) -> tuple[Mapping[str, torch.Tensor], torch.Tensor | None]:
        """The device's part of an update: the gradient, and a step along it. Returns metrics and priorities.

        It is recorded, as a CUDA graph or on a tape, and must be what a replay is.
        """
        batch = Fields(**self._in_rows(dict(zip(self._names, tensors, strict=True))))
        for name in ("obs", "next_obs"):
            if vars(batch).get(name) is not None:
                setattr(batch, name, self._rows(getattr(batch, name)))
        with blaming(self.algorithm, f"{self._part}_loss"), self._autocast():
            returned = self._loss_of(batch)
        loss = returned if isinstance(returned, Loss) else Loss(returned)
        size = len(tensors[0]) if tensors[0] is not None else 0
        metrics = self._metrics_of(loss, measured)
        check_loss(self.algorithm, self._part, loss._replace(metrics=metrics), size)
        if loss.loss.is_cpu:  # elsewhere a look costs a wait: weights are looked at when they are published
            value = loss.loss.detach()
            recording.each_time(lambda: check_finite(value, self.algorithm, self._part, self.num_updates + 1))
        with blaming(self.algorithm, f"{self._part}_loss, going backward"), nn.into_grad():
            loss.loss.backward()  # type: ignore[no-untyped-call]
        self._adam.step()
        with torch.no_grad(), blaming(self.algorithm, f"{self._part}_loss"):
            self._networks.put_back()
        told = {f"{self._part}_loss": loss.loss, **metrics}
        priorities = None if loss.priorities is None else loss.priorities.detach()
        return {name: value.detach() for name, value in told.items()}, priorities

    def _in_rows(self, fields: dict[str, torch.Tensor | None]) -> dict[str, torch.Tensor | None]:
        """The steps of a recurrent policy's batch ``[T, n, ...]`` one after another, time-major."""
        if not self._memory_size:
            return fields
        rows = {name: None if value is None else value.flatten(0, 1) for name, value in fields.items()}
        return {**rows, "begins": fields["begins"]}

    @torch.no_grad()
    def _metrics_of(self, loss: Loss, measured: bool) -> dict[str, torch.Tensor]:
        with blaming(self.algorithm, f"{self._part}_loss"):
            return {
                name: value() if callable(value) else value
                for name, value in loss.metrics.items()
                if measured or not callable(value)
            }

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self._dtype == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, self._dtype)

    def priorities(self) -> torch.Tensor:
        """``[B]``: what the loss said of the last batch.

        Raises:
            AlgorithmError: it said nothing, though the replay is prioritised.
        """
        if self._priorities is None:
            raise AlgorithmError(
                self.algorithm, f"{self._part}_loss returns no priorities: Loss(..., priorities=error)"
            )
        return self._priorities

    @torch.no_grad()
    def prepare(self, rollouts: Any) -> dict[str, torch.Tensor]:
        """The transitions of a round of rollouts (:class:`spreeze_zmq.replay.Round`) as ``[T * N, ...]``
        tensors: ``obs`` (as they came), ``action``, ``log_prob`` and what ``targets_of`` returns. Of a
        recurrent policy they are ``[T, N, ...]``, with ``memory`` ``[1, N, M]`` and ``begins`` ``[T, N]``.
        """
        self.algorithm.env_steps = self.env_steps
        steps, envs = rollouts.reward.shape
        rows = self._rows(rollouts.obs.flatten(0, 1)).view(steps + 1, envs, -1)
        normalised = dataclasses.replace(rollouts, obs=rows, final_obs=self._rows(rollouts.final_obs))
        with blaming(self.algorithm, "targets_of"):
            made = self.algorithm.targets_of(normalised)
        check_targets(self.algorithm, made, steps, envs)
        fields = {"obs": rollouts.obs[:-1], "action": rollouts.action, "log_prob": rollouts.log_prob, **made}
        if self._memory_size:
            return {**fields, "memory": rollouts.memory[None], "begins": rollouts.begins[:-1]}
        return {name: value.flatten(0, 1) for name, value in fields.items()}

    # --- what it is made of, and what it exchanges

    @property
    def weights(self) -> torch.Tensor:
        """Flat float32: the acting network first, the part's other networks, then their buffers."""
        return self._networks.own.flat

    def load_policy(self, arrays: Mapping[str, Parameters], extras: Mapping[str, float]) -> None:
        """Take a published policy. Raises WireError where it does not fit."""
        auxiliary = arrays.get("auxiliary", np.empty(0, np.float32))
        self._networks.other.load(np.concatenate((arrays["parameters"], auxiliary)), "a policy")
        self._rows.adopt(arrays)

    def load_critic(self, parameters: Parameters) -> None:
        """Take published critics. Raises WireError where they do not fit."""
        self._networks.other.load(parameters, "critics")

    def observe(self, obs: NDArray[Any]) -> None:
        """Take observations ``[M, *obs_shape]`` into the statistics, which go into use when published."""
        if self._rows.learned:
            self._statistics.add(obs)

    def description(self) -> dict[str, Any]:
        """The policy as its message describes it: by its layers, or by the name of its class."""
        self.algorithm.env_steps = self.env_steps
        kind, observation = type(self.algorithm), self._rows.description()
        described = {"observation": observation, "distribution": self.algorithm.distribution().describe()}
        if self._networks.layers is not None:
            return {**described, "layers": self._networks.layers}
        return {
            **described,
            "class": f"{kind.__module__}:{kind.__qualname__}",
            "options": dataclasses.asdict(self.algorithm.options),
            "environment": self.algorithm.env.to_dict(),
        }

    def policy_arrays(self, weights: Parameters | None = None) -> dict[str, Parameters]:
        """Every array of a policy message; the statistics in it are those that updates use from now on."""
        if self._statistics.count:
            self._rows.adopt(self._statistics.arrays())
        flat = self._networks.own.flat.cpu().numpy().copy() if weights is None else weights
        acting = len(flat) if self._networks.layers is None else self._networks.own.num_acting
        auxiliary = {"auxiliary": flat[acting:]} if len(flat) > acting else {}
        bounds = self.algorithm.distribution().arrays()
        return {"parameters": flat[:acting], **auxiliary, **bounds, **self._rows.arrays()}

    def extras(self, weights: Parameters | None = None) -> dict[str, float]:
        """Nothing: what the other learner needs travels with the parameters."""
        return {}

    def set_rates(self, rates: Mapping[str, float]) -> None:
        """Go on with other values of the options that follow the batch size."""
        self.algorithm.options = dataclasses.replace(self.algorithm.options, **rates)
        self._adam.learning_rate = self.algorithm.options.learning_rate
        self._forget_recordings()

    # --- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Copies of everything that the next update depends on."""
        cuda = self._device.type == "cuda"
        return {
            **self._networks.state_dict(),
            "observations": self._rows.state_dict(),
            "statistics": self._statistics.state_dict(),
            "adam": self._adam.state_dict(),
            "generator": torch.cuda.get_rng_state(self._device) if cuda else torch.get_rng_state(),
            "num_updates": self.num_updates,
            "env_steps": self.env_steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state_dict()``."""
        self._networks.load_state_dict(state)
        self._rows.load_state_dict(state["observations"])
        self._statistics.load_state_dict(state["statistics"])
        self._adam.load_state_dict(state["adam"])
        if self._device.type == "cuda":
            torch.cuda.set_rng_state(state["generator"].cpu(), self._device)
        else:
            torch.set_rng_state(state["generator"].cpu())
        self.num_updates, self.env_steps = int(state["num_updates"]), int(state["env_steps"])


def _stream(seed: int, stream: int) -> int:
    """A seed of its own for one purpose."""
    return int(np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)[0] >> 1)
