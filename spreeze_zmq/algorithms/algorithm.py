"""What an algorithm is: one class in plain torch, from which the processes of a run are made.

An algorithm declares its options, its networks, a loss for each learner, what follows an update and how
the policy's output becomes an action. It knows no socket, file, clock or process. The library runs
``critic_loss`` in the critic-learner and ``policy_loss`` in the actor-learner; an algorithm without a
``policy_loss`` has no actor-learner, and its critic-learner publishes the policy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from spreeze_zmq.algorithms.options import RolloutOptions
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.errors import InvalidEnvironment
from spreeze_zmq.native import recording

if TYPE_CHECKING:
    import torch

    from spreeze_zmq.algorithms.distributions import Distribution

#: Rollout arrays that hold whole transitions.
TRANSITION_FIELDS = ("obs", "action", "reward", "terminated", "truncated", "final_obs", "final_index")
#: Those that stacks of observations are built from.
STACK_FIELDS = ("obs", "terminated", "truncated", "history")
#: The two losses, in the order in which their learners come.
PARTS = ("critic", "policy")


@dataclass(frozen=True)
class Networks:
    """The networks of an algorithm, by the names under which it finds them as attributes of itself.

    Attributes:
        critic: trained by ``critic_loss`` in the critic-learner, sent to the actor-learner.
        policy: trained by ``policy_loss`` in the actor-learner, sent to everybody.
        targets: the critic-learner's own; neither trained nor sent, part of its checkpoints. In the
            actor-learner they stay as they were made.
        acting: name of the network whose output the ``distribution`` turns into actions. With a
            :meth:`Algorithm.memory_size` it is called as ``network(obs, memory)``, with ``memory``
            ``[N, M]``, and returns its output and the next memory.
    """

    critic: Mapping[str, torch.nn.Module]
    policy: Mapping[str, torch.nn.Module] = field(default_factory=dict)
    targets: Mapping[str, torch.nn.Module] = field(default_factory=dict)
    acting: str = "policy"


class Loss(NamedTuple):
    """What a loss function returns.

    Attributes:
        loss: the scalar whose gradient is taken.
        metrics: 0-d tensors by name, for the log; or functions that return such, called only where somebody
            reads them.
        priorities: ``[B]``, each transition's error where the replay is prioritised; never negative.
    """

    loss: torch.Tensor
    metrics: Mapping[str, torch.Tensor | Callable[[], torch.Tensor]] = {}
    priorities: torch.Tensor | None = None


class Algorithm(ABC):
    """Base of every algorithm. Each learner makes one of its own.

    Class attributes:
        Options: a frozen dataclass that inherits :class:`ReplayOptions` (transitions are kept and drawn many
            times) or :class:`RolloutOptions` (each rollout serves some epochs and is thrown away).
        acts_in: the action spaces that it can act in, of ``"box"``, ``"discrete"`` and ``"multi_discrete"``.
        needs_bounds: whether a box of actions must have finite bounds.
        critic_fields: rollout arrays that the critic-learner asks the samplers for.
        policy_fields: those that the actor-learner asks for.
        auto_bf16: whether ``precision = "auto"`` may take bf16 where that is faster, since it learns as well.

    Attributes:
        options: an instance of ``Options``.
        env: the environment's shapes and bounds; images have the shape in which the networks see them,
            ``(frame_stack * channels, height, width)``.
        env_steps: transitions that the run has sampled, as far as this process knows; for schedules.
    """

    Options: ClassVar[type[Any]]
    acts_in: ClassVar[tuple[str, ...]] = ("box",)
    needs_bounds: ClassVar[bool] = True
    critic_fields: ClassVar[tuple[str, ...]] = TRANSITION_FIELDS
    policy_fields: ClassVar[tuple[str, ...]] = ("obs",)
    auto_bf16: ClassVar[bool] = False

    def __init__(self, options: Any, env: EnvironmentSpec) -> None:
        self.options = options
        self.env = env
        self._env_steps = 0

    @property
    def env_steps(self) -> int:
        """See the attributes. A loss that reads it is not recorded."""
        recording.refuse("reads env_steps, which grows meanwhile")
        return self._env_steps

    @env_steps.setter
    def env_steps(self, env_steps: int) -> None:
        self._env_steps = env_steps

    # --- what its writer fills in

    @abstractmethod
    def networks(self) -> Networks:
        """Fresh networks on the CPU, initialised from torch's default generator, which the library seeds.

        Called once, before any other method. Each network becomes an attribute under its name.
        """

    @abstractmethod
    def critic_loss(self, batch: Any) -> Loss | torch.Tensor:
        """The loss of the critic-learner, whose gradient moves the ``critic`` networks alone.

        Args:
            batch: tensors of ``B`` transitions as attributes. With :class:`ReplayOptions` these are

                - ``obs``, ``next_obs``: ``[B, size]`` float32, flat and normalised;
                - ``action``: ``[B, *action_shape]`` in the environment's units, float32 or int64;
                - ``reward``: ``[B]``, the discounted sum of up to ``n_step`` rewards;
                - ``discount``: ``[B]``, ``gamma`` to the number of rewards summed; 0 after termination, not
                  after truncation;
                - ``weight``: ``[B]``, each transition's share in the loss; None unless ``prioritized``.

                With :class:`RolloutOptions`: ``obs``, ``action``, ``log_prob`` and what :meth:`targets_of`
                returned. With a :meth:`memory_size` these are the steps of ``n`` environments, ``T`` of each,
                time-major, so that ``B = T * n``; beside them ``memory`` ``[n, M]``, from before the first
                step, and ``begins`` ``[T, n]``, whether a step is an episode's first.
        """

    def policy_loss(self, batch: Any) -> Loss | torch.Tensor:
        """The loss of the actor-learner, whose gradient moves the ``policy`` networks alone. Where it is left
        out there is no actor-learner.

        Args:
            batch: with :class:`ReplayOptions` it has ``obs`` ``[B, size]``, and with ``policy_fields =
                TRANSITION_FIELDS`` all that :meth:`critic_loss` gets; with :class:`RolloutOptions` the same
                as there.
        """
        raise NotImplementedError

    def targets_of(self, rollouts: Any) -> Mapping[str, torch.Tensor]:
        """With :class:`RolloutOptions`: what the losses need for each transition beside the rollouts, such as
        advantages. Called once for the rollouts of a round; no gradient is kept.

        Args:
            rollouts: ``T`` steps of ``N`` environments as attributes: ``obs`` ``[T + 1, N, size]``,
                ``action`` ``[T, N, *action_shape]``, ``reward``, ``terminated``, ``truncated``, ``log_prob``
                ``[T, N]``, and of each of ``K`` ended episodes the last observation ``final_obs``
                ``[K, size]`` and its place ``(t, n)`` in ``final_index`` ``[K, 2]``; ``begins``
                ``[T + 1, N]``, whether an observation is an episode's first, and ``memory`` ``[N, M]``, what
                a recurrent policy kept before the first one.

        Returns:
            Tensors ``[T, N, ...]`` by the name under which a batch has them.
        """
        return {}

    def after_critic_step(self) -> None:  # noqa: B027 (most algorithms need one of the two)
        """What follows a step of the critic-learner, such as moving its targets; no gradient is kept."""

    def after_policy_step(self) -> None:  # noqa: B027
        """What follows a step of the actor-learner; no gradient is kept."""

    @abstractmethod
    def distribution(self) -> Distribution:
        """How the acting network's output becomes actions; asked again at each publication."""

    def act(self, obs: torch.Tensor, greedy: bool) -> torch.Tensor:
        """Choose actions in a way of your own, where no distribution of the acting network's output will do.

        Such a policy travels by the name of its class: samplers in Python load that, others refuse it.

        Args:
            obs: ``[N, size]``, normalised rows.
            greedy: without exploration, as the evaluator plays.

        Returns:
            ``[N, *action_shape]`` in the environment's units, float32 or int64.
        """
        raise NotImplementedError

    @classmethod
    def memory_size(cls, options: Any) -> int:
        """Numbers that the acting network keeps of each environment from step to step, 0 for none. They are
        zeros where an episode begins. With :class:`RolloutOptions` alone; ``nn.unroll`` goes through them.
        """
        return 0

    # --- what follows from it

    @classmethod
    def acts_by_itself(cls) -> bool:
        """Whether it chooses actions by an :meth:`act` of its own."""
        return cls.act is not Algorithm.act

    @classmethod
    def has_policy_loss(cls) -> bool:
        """Whether an actor-learner trains the policy."""
        return cls.policy_loss is not Algorithm.policy_loss

    @classmethod
    def on_policy(cls) -> bool:
        """Whether it learns from rollouts that are used for some epochs and thrown away."""
        return issubclass(cls.Options, RolloutOptions)

    @classmethod
    def fields_of(cls, part: str, frame_stack: int = 1, memory_size: int = 0) -> tuple[str, ...]:
        """The rollout arrays that the learner of a part (of ``PARTS``) asks for."""
        fields = cls.critic_fields if part == PARTS[0] else cls.policy_fields
        if cls.on_policy():
            fields = (*TRANSITION_FIELDS, "log_prob", *(("memory",) if memory_size else ()))
        return fields if frame_stack == 1 else tuple(dict.fromkeys((*fields, *STACK_FIELDS)))

    @classmethod
    def check(cls, env: EnvironmentSpec, options: Any) -> None:
        """Raise InvalidEnvironment where this algorithm cannot act in ``env``, naming one that could."""
        if env.action_kind not in cls.acts_in:
            raise InvalidEnvironment(
                f"{cls.__name__} acts in {' or '.join(cls.acts_in)} action spaces, this environment's is "
                f"{env.action_kind}"
            )
        if env.action_kind == "box" and cls.needs_bounds and not env.has_bounds:
            raise InvalidEnvironment(
                f"{cls.__name__} scales its actions to finite bounds, this environment's are "
                f"{env.action_low} to {env.action_high}; wrap it with gymnasium.wrappers.RescaleAction or "
                "give it bounds"
            )
