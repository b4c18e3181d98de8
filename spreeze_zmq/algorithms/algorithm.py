"""The base class of algorithms: one class in plain torch, from which the processes of a run follow.

An algorithm declares its options, its networks, a loss for each learner, what follows an update and how
the policy's output becomes an action. It uses no socket, file, clock or process. The library runs
``critic_loss`` in the critic-learner and ``policy_loss`` in the actor-learner; an algorithm without a
``policy_loss`` has no actor-learner, and its critic-learner publishes the policy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from spreeze_zmq.algorithms.declarations import PARTS, STACK_FIELDS, TRANSITION_FIELDS, Loss, Networks
from spreeze_zmq.algorithms.options import RolloutOptions
from spreeze_zmq.algorithms.sequences import SequenceOptions
from spreeze_zmq.base.schema import own_fields
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.nn.native import recording

if TYPE_CHECKING:
    import torch

    from spreeze_zmq.algorithms.distributions import Distribution
    from spreeze_zmq.replay import Episode, Transitions

#: Attributes that the library sets as a run goes on.
SET_BY_LIBRARY = ("env_steps", "offline", "reward_divisor")


class Algorithm(ABC):
    """Base of every algorithm. Each learner has its own instance.

    Class attributes:
        Options: a frozen dataclass that inherits :class:`ReplayOptions` (transitions are kept and drawn many
            times) or :class:`RolloutOptions` (each rollout is trained on for some epochs and discarded).
        acts_in: the action spaces that it can act in: ``"box"``, ``"discrete"``, ``"multi_discrete"``. Empty:
            those of its distribution, which also says whether a box needs bounds.
        needs_bounds: whether a box of ``acts_in`` must have finite bounds.
        critic_fields: rollout arrays that the critic-learner asks the samplers for.
        policy_fields: rollout arrays that the actor-learner asks the samplers for.
        box_options: values of options that suit actions of a box better than their defaults, where they are
            not stated and networks take observations as vectors.
        box_round: transitions that suit a round there, where samplers are not told how long a rollout is; 0
            for any.
        takes_masks: whether losses and :meth:`distribution` take the action masks of an environment that
            gives them; otherwise the run does without them.
        auto_bf16: whether ``precision = "auto"`` may take bf16 where that is faster; for algorithms known to
            learn as well with it. It is not inherited: another loss may not.

    Attributes:
        options: an instance of ``Options``.
        env: the environment's shapes and bounds, as networks see them: images are
            ``(frame_stack * channels, height, width)``.
        env_steps: transitions that the run has sampled, as far as this process knows; for schedules. In
            :meth:`act` those of when the policy was published.
        offline: whether the run samples nothing (data alone), so that ``env_steps`` stays as it is; in
            learners, and not before :meth:`networks`, which whoever acts calls, too.
        reward_divisor: what the rewards of a batch have been divided by; 1 where they are as they came, and
            in :meth:`act`.
    """

    Options: ClassVar[type[Any]]
    acts_in: ClassVar[tuple[str, ...]] = ()
    needs_bounds: ClassVar[bool] = False
    critic_fields: ClassVar[tuple[str, ...]] = TRANSITION_FIELDS
    policy_fields: ClassVar[tuple[str, ...]] = ("obs",)
    box_options: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    box_round: ClassVar[int] = 0
    takes_masks: ClassVar[bool] = False
    auto_bf16: ClassVar[bool] = False

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        cls.auto_bf16 = vars(cls).get("auto_bf16", False)

    def __init__(self, options: Any, env: EnvironmentSpec) -> None:
        self.options = options
        self.env = env
        self._env_steps = 0
        self.offline = False
        self.reward_divisor = 1.0

    @property
    def env_steps(self) -> int:
        """See the class. A loss that reads it is not recorded, because it changes with every batch."""
        recording.refuse("reads env_steps, which grows meanwhile")
        return self._env_steps

    @env_steps.setter
    def env_steps(self, env_steps: int) -> None:
        self._env_steps = env_steps

    # --- to be written for each algorithm

    @abstractmethod
    def networks(self) -> Networks:
        """Make the networks on the CPU, initialised from torch's default generator, which the library seeds.

        Called once, before any other method.
        """

    @abstractmethod
    def critic_loss(self, batch: Any) -> Loss | torch.Tensor:
        """The loss of the critic-learner; its gradient moves only the ``critic`` networks.

        Args:
            batch: tensors of ``B`` transitions as attributes. With :class:`ReplayOptions` these are

                - ``obs``, ``next_obs``: ``[B, size]`` float32, flat and normalised;
                - ``action``: ``[B, *action_shape]`` in the environment's units, float32 or int64;
                - ``reward``: ``[B]``, the discounted sum of up to ``n_step`` rewards, which are divided if
                  ``normalize_rewards`` asks for it;
                - ``discount``: ``[B]``, ``gamma`` to the number of rewards summed; 0 after termination, not
                  after truncation;
                - ``weight``: ``[B]``, the importance weight of each transition; None unless ``prioritized``;
                - ``action_mask``, ``next_action_mask``: ``[B, A]`` bool, the actions that are legal at
                  ``obs`` and at ``next_obs``; None unless ``env.action_mask``. After termination there may be
                  none.

                With :class:`SequenceOptions` and a memory these are whole sequences, for
                :class:`spreeze_zmq.algorithms.sequences.Sequences`.

                With :class:`RolloutOptions`: ``obs``, ``action``, ``log_prob``, with ``env.action_mask`` an
                ``action_mask`` ``[B, A]``, and what :meth:`targets_of` returned. With a :meth:`memory_size`
                of ``M`` these are ``T`` steps of ``n`` environments, time-major, so that ``B = T * n``; also
                ``memory`` ``[n, M]`` before the first step, and ``begins`` ``[T, n]``, whether a step is an
                episode's first.
        """

    def policy_loss(self, batch: Any) -> Loss | torch.Tensor:
        """The loss of the actor-learner; its gradient moves only the ``policy`` networks. Without this method
        there is no actor-learner.

        Args:
            batch: as for :meth:`critic_loss`; with :class:`ReplayOptions` only ``obs`` ``[B, size]``, and its
                ``action_mask`` with ``env.action_mask``, unless ``policy_fields = TRANSITION_FIELDS``; all
                with a memory.
        """
        raise NotImplementedError

    def targets_of(self, rollouts: Any) -> Mapping[str, torch.Tensor]:
        """What the losses need of a round of rollouts, such as advantages; with :class:`RolloutOptions` only.
        Called once for each round, without gradients.

        Args:
            rollouts: ``T`` steps of ``N`` environments as attributes: ``obs`` ``[T + 1, N, size]``,
                ``action`` ``[T, N, *action_shape]``, ``reward``, ``terminated``, ``truncated``, ``log_prob``
                ``[T, N]``; for each of ``K`` ended episodes its last observation ``final_obs`` ``[K, size]``
                and the place ``(t, n)`` of that in ``final_index`` ``[K, 2]``; ``begins`` ``[T + 1, N]``,
                whether an observation is an episode's first; ``memory`` ``[N, M]`` of a recurrent policy
                before the first step; and with ``env.action_mask`` the ``action_mask`` ``[T + 1, N, A]`` and
                ``final_action_mask`` ``[K, A]``.

        Returns:
            Tensors ``[T, N, ...]``, which a batch has under the same names.
        """
        return {}

    def relabel(self, batch: Transitions, episode: Episode) -> Transitions | None:
        """What a replay keeps of an episode beside its transitions as they came.

        Called in each learner once an episode has ended, with :class:`ReplayOptions` only. By default this is
        what the option ``hindsight`` asks for.

        Args:
            batch: all transitions of the episode in order, but for a last one in which the environment
                failed, as NumPy arrays: ``obs``, ``next_obs`` ``[L, *obs_shape]`` as the environment gives
                them, flattened; ``action``; ``reward`` and ``terminated`` ``[L, n]`` of each of ``n_step``
                steps, whose numbers are in ``step``. Change it by ``batch._replace(...)``;
                ``batch.rows(index)`` gives some of them, or some many times. ``more`` has further arrays that
                the learner's own ``critic_fields`` or ``policy_fields`` ask for, and action masks.
            episode: ``obs`` ``[L + 1, ...]``, ``action``, ``reward`` ``[L, ...]``, ``terminated``; ``goals``
                of a goal environment; ``rng``, the only source of random numbers to use.

        Returns:
            Any number of transitions; None for none.
        """
        from spreeze_zmq.replay import in_hindsight

        if self.options.hindsight == "off":
            return None
        return in_hindsight(batch, episode, self.options.hindsight, self.options.hindsight_goals)

    def after_critic_step(self) -> None:  # noqa: B027 (most algorithms need one of the two)
        """Called after each step of the critic-learner, without gradients, for instance to move targets."""

    def after_policy_step(self) -> None:  # noqa: B027
        """Called after each step of the actor-learner, without gradients."""

    @abstractmethod
    def distribution(self) -> Distribution:
        """How the acting network's output becomes actions; called at each publication, for schedules."""

    def act(self, obs: torch.Tensor, greedy: bool) -> torch.Tensor:
        """Choose actions where no distribution of the acting network's output fits.

        Such a policy is published by the name of its class: samplers in Python import it, others refuse it.
        They have the networks of the acting one's part, and frozen targets that :meth:`networks` makes the
        same each time; use of another one raises AlgorithmError. It is called without gradients, which
        ``torch.enable_grad`` turns on inside.

        Args:
            obs: ``[N, size]``, normalised rows.
            greedy: whether to act without exploration, as the evaluator does.

        Returns:
            ``[N, *action_shape]`` in the environment's units, float32 or int64; those beyond the bounds of a
            box are clipped, for the environment and the replay alike.
        """
        raise NotImplementedError

    @classmethod
    def memory_size(cls, options: Any) -> int:
        """Size ``M`` of the acting network's memory for each environment, 0 for none; off-policy the option
        of :class:`SequenceOptions`. It is zeros where an episode begins. ``nn.unroll`` runs over the steps.
        """
        return int(options.memory_size) if isinstance(options, SequenceOptions) else 0

    # --- derived from these

    @classmethod
    def suits_box(cls) -> dict[str, Any]:
        """:attr:`box_options`, but for those with another default in ``Options`` that inherit those of the
        class that names them: that is stated.
        """
        naming = next(kind for kind in cls.__mro__ if "box_options" in vars(kind))
        below = set(cls.Options.__mro__).difference(getattr(naming, "Options", object).__mro__)
        stated = {name for options in below for name in own_fields(options)}
        return {name: value for name, value in cls.box_options.items() if name not in stated}

    @classmethod
    def acts_by_itself(cls) -> bool:
        """Whether it overrides :meth:`act`."""
        return cls.act is not Algorithm.act

    @classmethod
    def has_policy_loss(cls) -> bool:
        """Whether it has a :meth:`policy_loss`, and so an actor-learner."""
        return cls.policy_loss is not Algorithm.policy_loss

    @classmethod
    def on_policy(cls) -> bool:
        """Whether it trains on rounds of rollouts (:class:`RolloutOptions`), not from a replay."""
        return issubclass(cls.Options, RolloutOptions)

    @classmethod
    def relabels(cls, options: Any) -> bool:
        """Whether its replays keep what :meth:`relabel` makes of episodes."""
        return cls.relabel is not Algorithm.relabel or getattr(options, "hindsight", "off") != "off"

    @classmethod
    def rows_each(cls, options: Any) -> int:
        """Rows of a replay that one transition takes: its own, and those that :meth:`relabel` makes of it."""
        return 1 + int(options.hindsight_goals) if cls.relabels(options) else 1

    @classmethod
    def fields_of(
        cls,
        part: str,
        frame_stack: int = 1,
        memory_size: int = 0,
        *,
        relabels: bool = False,
        masked: bool = False,
    ) -> tuple[str, ...]:
        """The rollout arrays that the learner of ``part``, one of ``PARTS``, asks for; where the environment
        is ``masked``, with its action masks.
        """
        fields = cls.critic_fields if part == PARTS[0] else cls.policy_fields
        if relabels:
            fields = tuple(dict.fromkeys((*TRANSITION_FIELDS, *fields)))
        memory = ("memory",) if memory_size else ()
        if cls.on_policy():
            fields = tuple(dict.fromkeys((*TRANSITION_FIELDS, "log_prob", *memory, *fields)))
        elif memory:  # also an actor-learner's: its critics remember the actions that were taken
            fields = tuple(dict.fromkeys((*TRANSITION_FIELDS, *fields, *memory)))
        if masked:
            final = ("final_action_mask",) if "final_obs" in fields else ()
            fields = tuple(dict.fromkeys((*fields, "action_mask", *final)))
        return fields if frame_stack == 1 else tuple(dict.fromkeys((*fields, *STACK_FIELDS)))

    @classmethod
    def kept_fields(cls, part: str, options: Any) -> tuple[str, ...]:
        """:meth:`fields_of` for a learner's own store, which has the masks of its environment."""
        return cls.fields_of(part, options.frame_stack, cls.memory_size(options))

    @classmethod
    def uses_masks(cls, env: EnvironmentSpec) -> bool:
        """Whether a run of it in ``env`` uses the action masks that the environment gives."""
        return env.action_mask and cls.takes_masks and not cls.acts_by_itself()

    @classmethod
    def check(cls, env: EnvironmentSpec, options: Any) -> None:
        """Raise InvalidEnvironment where this algorithm cannot act in ``env``."""
        if cls.acts_in:
            env.check_actions(cls.__name__, cls.acts_in, cls.needs_bounds)
