"""The policy, made of a message or a file: draws actions, or returns their mode."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import InputError, WireError
from spreeze_zmq.base.files import POLICY_FILE
from spreeze_zmq.base.masks import mask_in
from spreeze_zmq.base.rollout import odd_number, within_limits
from spreeze_zmq.base.trust import FILE, grant_of
from spreeze_zmq.policy.actor import Actions, Actor, Drawn, Floats, is_trusted, module_of, remade, trusted
from spreeze_zmq.policy.description import counts
from spreeze_zmq.policy.file import ARRAYS, read_file, write_file
from spreeze_zmq.policy.legal import mask_rows
from spreeze_zmq.policy.making import alike, check_memory, finite, floats, made_of, refused, takes_masks
from spreeze_zmq.policy.observations import FrameStack
from spreeze_zmq.policy.own_environment import OwnEnvironment


class Policy:
    """Acts in one environment or in a batch of them, for several threads too: what a recurrent policy
    remembers is in the ``memory`` that each call is given.

    >>> policy = Policy.load("runs/pendulum-20260101-120000")
    >>> action = policy(obs)                    # deterministic, for the environment's step
    >>> action, _ = policy.act(obs[None], rng)  # drawn from its distribution, for a batch

    Args:
        fields: of a policy message: ``version``, ``description`` and ``extras`` are read.
        arrays: of a policy message; viewed, not copied.
        metadata: of a policy file.

    Attributes:
        memory_size: numbers of recurrent state per environment; 0 for none.
        takes_masks: whether it chooses among legal actions, and so needs an ``action_mask``.
        averaged: whether it acts by the average of the weights over many updates.
        version: counts publications; 0 acts uniformly at random.
        description: observations, layers and distribution, or the class; see PROTOCOL.md.
        arrays: float32: parameters, bounds and normaliser; see PROTOCOL.md.
        actor: turns the network's output, or for a class the observations, into actions.
        extras: numbers published with it, such as the temperature.
        metadata: of the policy file; empty for a message.
        own: the spaces of the environment itself, as the file describes them.

    Raises:
        WireError: ``bad_policy``, where description and arrays do not make a policy.
    """

    def __init__(
        self,
        fields: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        metadata: Mapping[str, str] | None = None,
    ):
        self.metadata = dict(metadata or {})
        self.averaged = self.metadata.get("averaged") == "True"
        with refused():
            self._read(fields, arrays)
            self.description: dict[str, Any] = dict(fields["description"])
            self.memory_size = 0
            self.takes_masks = takes_masks(self.description.get("distribution", {}))
            self.frame_stack()
            self.actor, self._output_of, self.memory_size, self._load = made_of(self._fields(), self.arrays)
            self.own = OwnEnvironment.described(self.metadata, self.description)

    @classmethod
    def from_message(
        cls, fields: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], last: Self | None = None
    ) -> Self:
        """The policy of a policy message.

        Args:
            fields: of the message.
            arrays: of the message.
            last: the policy of an earlier message, which nobody else uses; where only its numbers have
                changed, it takes these and is returned.

        Raises:
            WireError: ``bad_policy``.
        """
        if last is None or last._load is None or fields.get("description") != last.description:
            return cls(fields, arrays)
        before = last.arrays
        with refused():
            last._read(fields, arrays)
            same = before.keys() == last.arrays.keys()
            if same and all(alike(name, array, last.arrays[name]) for name, array in before.items()):
                last._load(last.arrays)
                return last
        return cls(fields, arrays)

    @classmethod
    def of_average(cls, fields: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The policy of a policy message that acts by the average of the parameters, where the message has
        one.

        Raises:
            WireError: ``bad_policy``.
        """
        policy = cls(fields, {**arrays, "parameters": arrays.get("average", arrays["parameters"])})
        policy.averaged = "average" in arrays
        return policy

    def _read(self, fields: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take what differs from message to message."""
        self.version = int(fields["version"])
        self.extras: dict[str, float] = dict(fields.get("extras", {}))
        self.arrays = {name: floats(name, arrays[name]) for name in ARRAYS if name in arrays}

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of its input: one observation of the environment, or ``[stack, *obs_shape]``, oldest
        first, as from ``gymnasium.wrappers.FrameStackObservation(env, stack, padding_type="reset")``.

        Raises:
            WireError: ``bad_policy``, where the description states no shape.
        """
        try:
            shape = counts(self.description["observation"], "shape")
        except (KeyError, ValueError) as error:
            raise WireError("bad_policy", f"it does not say what it observes: {error}") from error
        stack = self.frame_stack().stack
        return shape if stack == 1 else (stack, *shape)

    def __call__(self, obs: Any, memory: Floats | None = None, action_mask: Any = None) -> Any:
        """The deterministic action for one observation, or for each of a batch.

        Args:
            obs: ``[*observation_shape]`` or ``[N, *observation_shape]``, of any number type; of a Dict, Tuple
                or Discrete also the environment's own, or a batch as ``gymnasium.vector`` gives it.
            memory: ``[memory_size]`` or ``[N, memory_size]`` float32 of a recurrent policy, zeros where an
                episode begins; overwritten with the next step's.
            action_mask: ``[A]`` or ``[N, A]``, 1 for each action that is legal, as ``info["action_mask"]``
                has it, also with an axis for the choices of each of several; by default that part of a Dict,
                or of a Dict within it.

        Returns:
            Actions for ``env.step``: float32 ``[*action_shape]`` within the bounds of a Box space, else int64
            (a single number for a Discrete space) that counts from the space's ``start``; for a batch with
            ``[N]`` in front.

        Raises:
            InputError: observations of another shape, or that hold NaN or infinity; a Dict, Tuple or Discrete
                that the file does not describe and ``gymnasium.spaces.flatten`` has not flattened; the action
                would be NaN; a mask that is missing, of another shape, or allows no action; a memory that is
                missing, or of another shape or dtype.
        """
        shape = self.observation_shape
        if action_mask is None and isinstance(obs, Mapping) and self.takes_masks:
            action_mask = mask_in(obs)
        rows = self.own.observation(obs, shape)
        if not within_limits(rows) and not np.isfinite(rows).all():
            raise InputError(f"the observation holds {odd_number(rows)}")
        if one := rows.shape == shape:
            rows, memory = rows[None], memory[None] if isinstance(memory, np.ndarray) else memory
        legal = None if action_mask is None else mask_rows(action_mask, 1 if one else len(rows))
        frames = self.frame_stack().in_order(rows)
        try:
            action = self.own.action(self.env_action(self.mode(frames, memory, legal)))
        except WireError as error:
            raise InputError(error.detail) from error
        return action[0] if one else action

    def frame_stack(self) -> FrameStack:
        """A new, empty stack for a batch of environments, whose ``seen`` is the input of ``act``."""
        return FrameStack.described(self.description.get("observation", {}), self.memory_size)

    def act(
        self,
        obs: NDArray[Any],
        rng: np.random.Generator,
        *,
        place: Floats | None = None,
        log_prob: bool = False,
        memory: Floats | None = None,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> Drawn:
        """Draw an action for each observation; version 0 draws uniformly where the action space allows.

        Args:
            obs: ``[N, *obs_shape]``, or the ``seen`` of a :meth:`frame_stack`, which stacks need.
            rng: source of all randomness.
            place: ``[N]`` in [0, 1], the position of each environment among all of the run's, which may
                explore differently; by default evenly spread, 1/2 for a single one.
            log_prob: return log densities too.
            memory: ``[N, memory_size]`` of a recurrent policy, that of its :meth:`frame_stack`; overwritten
                with the next step's.
            action_mask: ``[N, A]`` bool, the legal actions, among which alone is drawn; a policy that
                ``takes_masks`` needs it.

        Returns:
            The actions ``[N, *action_shape]``, float32 in the environment's own units (for a ``normal`` not
            clipped to its bounds) or int64 from 0 (one choice: ``[N]``), and log densities ``[N]``, or None.

        Raises:
            WireError: ``bad_policy``, where the observations are of another size, an action is NaN or a
                choice among NaN, or log densities are requested of a policy that has none.
            InputError: the mask is missing, of another shape, or allows no action.
        """
        actor = self._among(action_mask, len(obs))
        uniform = actor.uniform(len(obs), rng) if self.version == 0 else None
        if uniform is not None:
            if self.memory_size:
                self._output(obs, memory)  # what is remembered of steps that were taken at random
            return uniform if log_prob else (uniform[0], None)
        try:
            output = self._output(obs, memory)
            action, density = actor.draw(output, rng, place, log_prob)
        except ValueError as error:
            raise WireError("bad_policy", str(error)) from error
        return finite(action, output), density

    def mode(
        self,
        obs: NDArray[Any],
        memory: Floats | None = None,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> Actions:
        """The deterministic action for each of ``obs``, within the bounds; at version 0 too the network's.

        ``memory``, ``action_mask`` and errors as for :meth:`act`.
        """
        actor, output = self._among(action_mask, len(obs)), self._output(obs, memory)
        return finite(actor.mode(output), output)

    def env_action(self, action: Actions) -> Actions:
        """Actions of :meth:`act` for the step of :func:`spreeze_zmq.envs.make`: those of a box clipped to its
        bounds. ``own.action`` makes of them those of the environment itself, by their shape and ``start``.
        """
        return self.actor.env_action(action)

    def _among(self, action_mask: NDArray[np.bool_] | None, num: int) -> Actor:
        """What acts in ``num`` environments: the actor, restricted to legal actions where a mask came."""
        if action_mask is None:
            if self.takes_masks:
                raise InputError(
                    "the policy chooses among legal actions: give it the action_mask, [N, A] of 0 and 1, as "
                    'info["action_mask"] of its environment has it'
                )
            return self.actor
        if len(action_mask) != num:
            raise InputError(f"the action_mask has {len(action_mask)} rows for {num} observations")
        try:
            return self.actor.among(action_mask)
        except ValueError as error:
            raise InputError(str(error)) from None

    def _output(self, obs: NDArray[Any], memory: Floats | None) -> NDArray[Any]:
        if self.memory_size:
            check_memory(memory, (len(obs), self.memory_size))
        return self._output_of(obs, memory)

    def save(self, path: Path | str, metadata: Mapping[str, str]) -> None:
        """Write everything needed to act to a safetensors file, atomically; ``load`` returns ``metadata``."""
        write_file(Path(path), self._fields(), self.arrays, metadata)

    def _fields(self) -> dict[str, Any]:
        return {"description": self.description, "version": self.version, "extras": self.extras}

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles have what it is made of, and are made of it."""
        return remade, (type(self), self._fields(), self.arrays, self.metadata)

    @classmethod
    def load(cls, path: Path | str, trust: Collection[str] = ()) -> Self:
        """Read a file that ``save`` wrote.

        Args:
            path: of the file, or of the folder of a run, whose best policy is read.
            trust: modules whose classes may be loaded, since importing a module runs it. The folder of a run
                that this user made adds the module of its algorithm, a file nothing.

        Raises:
            InputError: there is no such file, it holds no policy of this format, or it names a class of a
                module that is not trusted.
        """
        path, grant = Path(path), FILE
        if path.is_dir():
            path = path / POLICY_FILE
            grant = grant_of(path.parent, POLICY_FILE)
            if not path.exists():
                raise InputError(f"{path.parent} has no {POLICY_FILE}: no policy was evaluated in that run")
        fields, arrays, metadata = read_file(path)
        try:
            module = module_of(fields["description"])
            if module is not None:
                if not is_trusted(module, {*trust, *grant.modules}):
                    raise grant.refusal(path, "a class", module)
                trusted.add(module)
                grant.make_importable(trust)
            return cls(fields, arrays, metadata)
        except (AttributeError, TypeError, ValueError, WireError) as error:
            raise InputError(f"{path} holds no whole policy: {error}") from error


@contextmanager
def usable(version: int) -> Iterator[None]:
    """A context in which the policy of this version is made and used. Later versions come from the same
    algorithm, so a restart does not help where one cannot be used.

    Raises:
        InputError: the code inside raised a WireError; one line that names it.
    """
    try:
        yield
    except WireError as error:
        raise InputError(f"policy version {version} cannot be used: {error}") from error
