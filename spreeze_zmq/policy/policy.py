"""The policy itself: made of a message or a file, it draws actions or takes their mode."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.errors import InputError, WireError
from spreeze_zmq.policy.classes import is_trusted, load_class, module_of, trusted
from spreeze_zmq.policy.description import counts
from spreeze_zmq.policy.file import POLICY_FILE, read_file, write_file
from spreeze_zmq.policy.frame_stack import FrameStack
from spreeze_zmq.policy.head import Actions, Actor, Drawn
from spreeze_zmq.policy.heads import make_head
from spreeze_zmq.policy.layers import Layer, read_layers
from spreeze_zmq.policy.network import Network
from spreeze_zmq.policy.observations import ObservationScaling

Floats = NDArray[np.float32]

_ARRAYS = ("parameters", "action_low", "action_high", "observation_mean", "observation_std")


class Policy:
    """Acts in one environment or in a batch of them.

    >>> policy = Policy.load("runs/pendulum-20260101-120000")
    >>> action = policy(obs)                    # deterministic, as the environment's step takes it
    >>> action, _ = policy.act(obs[None], rng)  # drawn from its distribution, for a batch

    Args:
        fields: of a policy message: ``version``, ``description`` and ``extras`` are read.
        arrays: of a policy message; viewed, not copied.
        metadata: words that came with a file.

    Attributes:
        memory_size: numbers that it keeps of each environment from step to step; 0 for none.
        version: counts publications; 0 acts uniformly at random.
        description: its observations, layers and distribution, or its class, as PROTOCOL.md says.
        arrays: float32: parameters, bounds and normaliser, as PROTOCOL.md says.
        actor: turns the network's output, or of a class the observations, into actions.
        extras: numbers that travelled with it, such as the temperature.
        metadata: words that came with the file, empty for a message.

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
        try:
            self.version = int(fields["version"])
            self.description: dict[str, Any] = dict(fields["description"])
            self.extras: dict[str, float] = dict(fields.get("extras", {}))
            self.arrays = {name: _floats(name, arrays[name]) for name in _ARRAYS if name in arrays}
            self.memory_size = 0
            self.frame_stack()
            if module_of(self.description) is not None:
                loaded = load_class(self.description, self.arrays)
                self.actor: Actor = loaded
                self.memory_size = loaded.memory_size
                self._output_of: Callable[[NDArray[Any], Floats | None], NDArray[Any]] = loaded.output
            else:
                scaling = ObservationScaling(self.description["observation"], self.arrays)
                layers = self.description["layers"]
                network = _network(read_layers(layers, self.arrays["parameters"], scaling.size))
                self._output_of = lambda obs, _: network(scaling(obs))
                distribution = self.description["distribution"]
                self.actor = make_head(distribution, self.arrays, network.num_outputs)
        except KeyError as error:
            raise WireError("bad_policy", f"{error.args[0]!r} is missing") from error
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise WireError("bad_policy", str(error)) from error

    @classmethod
    def from_message(cls, fields: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The policy of a policy message. Raises WireError ``bad_policy``."""
        return cls(fields, arrays)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """What it acts on: one observation of the environment, or ``[stack, *obs_shape]``, oldest first, as
        ``gymnasium.wrappers.FrameStackObservation(env, stack, padding_type="reset")`` gives them.

        Raises:
            WireError: ``bad_policy``, where its description names none.
        """
        try:
            shape = counts(self.description["observation"], "shape")
        except (KeyError, ValueError) as error:
            raise WireError("bad_policy", f"it does not say what it observes: {error}") from error
        stack = self.frame_stack().stack
        return shape if stack == 1 else (stack, *shape)

    def __call__(self, obs: Any, memory: Floats | None = None) -> Any:
        """The deterministic action for one observation, or for each of a batch.

        Args:
            obs: ``[*observation_shape]`` or ``[N, *observation_shape]``, of any number type; Dict and Tuple
                observations flattened by ``gymnasium.spaces.flatten``.
            memory: ``[memory_size]`` or ``[N, memory_size]`` float32 of a recurrent policy, zeros where an
                episode begins; written anew for the next step.

        Returns:
            What ``env.step`` takes: of a box float32 ``[*action_shape]`` within its bounds, else int64 (a
            single number for a Discrete space), counted from 0; for a batch with ``[N]`` before it.

        Raises:
            InputError: observations of another shape.
        """
        obs, shape = np.asarray(obs), self.observation_shape
        if obs.shape == shape:
            return self(obs[None], None if memory is None else memory[None])[0]
        if obs.shape[1:] != shape:
            batch = "(N, " + ", ".join(map(str, shape)) + ")"
            raise InputError(
                f"the policy takes observations of shape {shape}, or a batch {batch}, got {obs.shape}"
            )
        frames = self.frame_stack().in_order(obs)
        return self.env_action(self.mode(frames, memory))

    def frame_stack(self) -> FrameStack:
        """An empty stack of observations as it takes them, to be held beside a batch of environments."""
        return FrameStack.described(self.description.get("observation", {}), self.memory_size)

    def act(
        self,
        obs: NDArray[Any],
        rng: np.random.Generator,
        *,
        place: Floats | None = None,
        log_prob: bool = False,
        memory: Floats | None = None,
    ) -> Drawn:
        """Draw an action for each observation; version 0 draws uniformly where it can.

        Args:
            obs: ``[N, *obs_shape]``, as :meth:`frame_stack` gives them.
            rng: where all randomness comes from.
            place: ``[N]`` in [0, 1], where each environment stands among all of the run's, which may explore
                differently; by default evenly spread over them, 0 for a single one.
            log_prob: whether the log densities are wanted.
            memory: ``[N, memory_size]``, as the :meth:`frame_stack` holds it, of a recurrent policy; written
                anew for the next step.

        Returns:
            The actions ``[N, *action_shape]``, float32 in the environment's own units (of a ``normal`` not
            clipped to the bounds) or int64, and their log densities ``[N]`` float32, or None.

        Raises:
            WireError: ``bad_policy``, where the observations are of another size, or a density is wanted of a
                policy that has none.
        """
        uniform = self.actor.uniform(len(obs), rng) if self.version == 0 else None
        if uniform is not None:
            return uniform if log_prob else (uniform[0], None)
        try:
            return self.actor.draw(self._output(obs, memory), rng, place, log_prob)
        except ValueError as error:
            raise WireError("bad_policy", str(error)) from error

    def mode(self, obs: NDArray[Any], memory: Floats | None = None) -> Actions:
        """The deterministic action for each of ``obs``, within the bounds; the network's own at version 0
        too. ``memory`` as for :meth:`act`. Raises WireError as that.
        """
        return self.actor.mode(self._output(obs, memory))

    def env_action(self, action: Actions) -> Actions:
        """What an environment is given for actions of :meth:`act`: a box's clipped to its bounds."""
        return self.actor.env_action(action)

    def _output(self, obs: NDArray[Any], memory: Floats | None) -> NDArray[Any]:
        if self.memory_size and (memory is None or memory.shape != (len(obs), self.memory_size)):
            shape = None if memory is None else memory.shape
            raise InputError(
                f"the policy is recurrent: it takes a memory of shape {(len(obs), self.memory_size)}, zeros "
                f"where an episode begins, and writes the next one there; got {shape}"
            )
        return self._output_of(obs, memory)

    def save(self, path: Path | str, metadata: Mapping[str, str]) -> None:
        """Write everything needed to act to a safetensors file, whole or not at all.

        ``metadata`` comes back on ``load``.
        """
        fields = {"description": self.description, "version": self.version, "extras": self.extras}
        write_file(Path(path), fields, self.arrays, metadata)

    @classmethod
    def load(cls, path: Path | str, trust: Collection[str] = ()) -> Self:
        """Read a file that ``save`` wrote.

        Args:
            path: of the file, or of the folder of a run, whose best policy is read.
            trust: modules whose classes may be loaded: a file that names another one is refused, since to
                import it is to run it.

        Raises:
            InputError: there is no such file, it holds no policy of this format, or it names a class of a
                module that is not trusted.
        """
        path = Path(path)
        if path.is_dir():
            path = path / POLICY_FILE
            if not path.exists():
                raise InputError(f"{path.parent} has no {POLICY_FILE}: no policy was evaluated in that run")
        fields, arrays, metadata = read_file(path)
        try:
            module = module_of(fields["description"])
            if module is not None and not is_trusted(module, trust):
                raise InputError(
                    f"{path} names a class of the module {module!r}, whose code would run: give --trust "
                    f"{module} if you know where the file comes from"
                )
            if module is not None:
                trusted.add(module)
            return cls(fields, arrays, metadata)
        except (TypeError, ValueError, WireError) as error:
            raise InputError(f"{path} holds no whole policy: {error}") from error


@contextmanager
def usable(version: int) -> Iterator[None]:
    """Make and use the policy of this version inside; it and those after it come of one algorithm, so where
    it cannot be used a restart would not help.

    Raises:
        InputError: a WireError came from inside; one line that names it.
    """
    try:
        yield
    except WireError as error:
        raise InputError(f"policy version {version} cannot be used: {error}") from error


def _network(layers: list[Layer]) -> Any:
    """What evaluates the layers: NumPy, or where there is a convolution torch."""
    if all(layer.kind != "conv2d" for layer in layers):
        return Network(layers)
    from spreeze_zmq.policy.torch_network import TorchNetwork

    return TorchNetwork(layers)


def _floats(name: str, array: NDArray[Any]) -> Floats:
    if array.dtype != np.float32:
        raise ValueError(f"{name} is {array.dtype}, expected float32")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinity")
    # A view into a received frame may lie off the alignment; every product would then copy it again.
    return np.require(array, requirements=["C", "A"])
