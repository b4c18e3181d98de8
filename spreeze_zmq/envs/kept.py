"""What an environment, a task of many or a batch is in the middle of, as plain values; see
``base.kept_state``.

An environment may speak for itself, and for what it wraps, by two methods: ``get_state()`` returns plain
values (numbers, texts, arrays, lists, and maps), ``set_state(state)`` goes on from there. Of any other its
attributes are kept, if they are plain values, random generators or MuJoCo's data; of spaces their generators,
of functions their names.
"""

from __future__ import annotations

import functools
import logging
import types
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from spreeze_zmq.base.errors import StateNotKept, in_one_line, let_interrupts_pass
from spreeze_zmq.base.importing import loaded
from spreeze_zmq.base.kept_state import PLAIN, Keeper, Maker, common_arrays, put_into
from spreeze_zmq.envs.failing import FailingRows

#: What does not change while an environment is stepped: how it was made.
_STATIC = (EnvSpec, types.ModuleType, np.dtype, np.ufunc, logging.Logger)
#: What is known by its name.
_NAMED = (*(type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial),)
#: What is made anew, so that its methods are not those of the one before.
_CONTAINERS = (list, dict, set, deque)
#: Attributes of a layer that are what it wraps, or its arguments as they were given.
_PASSED_OVER = ("env", "_saved_kwargs")
#: Attributes of tasks that are made from their arguments.
_OF_TASKS: tuple[str, ...] = ("model", "batch", "randomizer", "_ranges", "_after_step")
_OF_TASKS += ("observation_space", "action_space", "_unstable", "went_back")


def keep_env(env: gymnasium.Env[Any, Any]) -> list[Any]:
    """The state of each layer of an environment, from its outermost wrapper inwards.

    Raises:
        StateNotKept: a layer has an attribute that is no plain value; names it.
    """
    keeper, states = Keeper(_known), []
    for layer in _layers(env):
        name = type(layer).__qualname__
        if speaks_for_itself(layer):
            states.append(
                {"own": keeper.keep(_called(layer, "get_state"), f"what {name}.get_state() returns")}
            )
            generator = getattr(layer.unwrapped, "_np_random", None)
            states.append({"np_random": keeper.keep(generator, f"{name}.np_random")})
            return states
        states.append(_keep_attributes(layer, name, keeper, _PASSED_OVER))
    return states


def put_envs_back(envs: list[gymnasium.Env[Any, Any]], states: list[Any]) -> None:
    """Bring each new environment to the state of another one, of :func:`keep_env`.

    Raises:
        StateNotKept: it is the state of another kind of environment.
    """
    common = common_arrays(layer for env in envs for layer in _layers(env))
    for env, state in zip(envs, states, strict=True):
        _put_back(env, state, common)


def _put_back(env: gymnasium.Env[Any, Any], states: Any, common: frozenset[int]) -> None:
    maker, given = Maker(_put_known, common), iter(_listed(states))
    for layer in _layers(env):
        state = _mapped(next(given, None), type(layer).__qualname__)
        if speaks_for_itself(layer):
            _called(layer, "set_state", maker.make(state.get("own")))
            generator = _mapped(next(given, None), "np_random").get("np_random")
            inner: Any = layer.unwrapped
            inner._np_random = maker.make(generator, getattr(inner, "_np_random", None))
            break
        _put_attributes(layer, state, maker, _PASSED_OVER)
    if next(given, None) is not None:
        raise StateNotKept("it is of more layers")


def keep_task(task: Any) -> dict[str, Any]:
    """The attributes of a native task, ``[N, ...]`` arrays and plain values. Raises StateNotKept."""
    return _keep_attributes(task, type(task).__qualname__, Keeper(_known, views=True), _OF_TASKS)


def put_task_back(task: Any, state: Any) -> None:
    """Continue from :func:`keep_task`. Raises StateNotKept."""
    _put_attributes(task, _mapped(state, type(task).__qualname__), Maker(_put_known), _OF_TASKS)


def speaks_for_itself(layer: Any) -> bool:
    """Whether a layer has both methods of its own."""
    return all(callable(getattr(type(layer), name, None)) for name in ("get_state", "set_state"))


def _called(layer: Any, method: str, *arguments: Any) -> Any:
    try:
        return getattr(layer, method)(*arguments)
    except BaseException as error:
        let_interrupts_pass(error)
        raise StateNotKept(f"{type(layer).__qualname__}.{method}() raised {in_one_line(error)}") from error


def _layers(env: gymnasium.Env[Any, Any]) -> Iterator[Any]:
    while True:
        yield env
        if not isinstance(env, gymnasium.Wrapper):
            return
        env = env.env


def _keep_attributes(owner: Any, name: str, keeper: Keeper, passed_over: tuple[str, ...]) -> dict[str, Any]:
    if any(vars(kind).get("__slots__") for kind in type(owner).__mro__):
        raise StateNotKept(f"{name} has __slots__")
    kept = {}
    for attribute, value in vars(owner).items():
        if attribute not in passed_over and not _is_static(value):
            kept[attribute] = keeper.keep(value, f"{name}.{attribute}")
    return {"class": name, "attributes": kept}


def _put_attributes(owner: Any, state: Mapping[str, Any], maker: Maker, passed_over: tuple[str, ...]) -> None:
    name, attributes = type(owner).__qualname__, state.get("attributes")
    if state.get("class") != name or not isinstance(attributes, dict):
        raise StateNotKept(f"it is the state of a {str(state.get('class'))[:60]}, not of a {name}")
    for attribute, plain in attributes.items():
        present = getattr(owner, attribute, None)
        is_methods = isinstance(present, _NAMED) and attribute not in vars(owner)
        if attribute in passed_over or attribute.startswith("__") or is_methods or _is_static(present):
            raise StateNotKept(f"{name}.{attribute[:60]} is no part of its state")
        vars(owner)[attribute] = maker.make(plain, present)


def _is_static(value: Any) -> bool:
    kind = type(value)
    renders = kind.__module__.startswith("gymnasium.") and kind.__name__.endswith("Renderer")
    return isinstance(value, _STATIC) or renders


def _listed(states: Any) -> list[Any]:
    if not isinstance(states, list):
        raise StateNotKept("it is no list of layers")
    return states


def _mapped(state: Any, name: str) -> dict[str, Any]:
    if not isinstance(state, dict):
        raise StateNotKept(f"it has no state of {name}")
    return state


# --- spaces and functions, and MuJoCo's model and data, of environments that are stepped in Python


def _known(value: Any) -> dict[str, Any] | None:
    if isinstance(value, gymnasium.Space):
        own = [Keeper().keep(space._np_random, "the generator of a space") for space in spaces_in(value)]
        return {"space": own}
    if isinstance(value, _NAMED) and not isinstance(getattr(value, "__self__", None), _CONTAINERS):
        return {"named": _name_of(value)}
    mujoco: Any = loaded("mujoco")
    if mujoco is None:
        return None
    if isinstance(value, mujoco.MjModel):
        return {"model": _sum_of(value)}
    if isinstance(value, mujoco.MjData):
        spec = mujoco.mjtState.mjSTATE_INTEGRATION
        state = np.empty(mujoco.mj_stateSize(value.model, spec))
        mujoco.mj_getState(value.model, value, state, spec)
        return {"data": state, "fields": {name: np.array(array) for name, array in _fields(value)}}
    return None


def _put_known(plain: Mapping[str, Any], present: Any) -> Any:
    if "space" in plain and isinstance(present, gymnasium.Space):
        for space, generator in zip(spaces_in(present), plain["space"], strict=True):
            space._np_random = Maker().make(generator, space._np_random)
        return present
    if "named" in plain and isinstance(present, _NAMED):
        if plain["named"] != (name := _name_of(present)):
            raise StateNotKept(f"it holds {str(plain['named'])[:60]} where a new one holds {name}")
        return present
    mujoco: Any = loaded("mujoco")
    if mujoco is not None and "model" in plain and isinstance(present, mujoco.MjModel):
        if plain["model"] != _sum_of(present):
            raise StateNotKept("its MjModel has other numbers than a new one")
        return present
    if mujoco is not None and "data" in plain and isinstance(present, mujoco.MjData):
        mujoco.mj_setState(present.model, present, plain["data"], mujoco.mjtState.mjSTATE_INTEGRATION)
        mujoco.mj_forward(present.model, present)  # what has no fixed size, such as contacts
        for name, array in _fields(present):
            if name in plain["fields"] and plain["fields"][name].shape == array.shape:
                put_into(array, plain["fields"][name])
        return present
    raise StateNotKept("it is not what is there in a new one")


def spaces_in(space: Any) -> Iterator[Any]:
    """A space and those that it is made of, each with a generator of its own."""
    yield space
    parts = getattr(space, "spaces", ())
    for part in parts.values() if isinstance(parts, Mapping) else parts:
        yield from spaces_in(part)


def _name_of(named: Any) -> str:
    if isinstance(named, functools.partial):
        given = [
            repr(value) for value in (*named.args, *named.keywords.values()) if type(value) in (*PLAIN, int)
        ]
        return f"{_name_of(named.func)}({', '.join(given)})"
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', type(named).__qualname__)}"


def _fields(data: Any) -> Iterator[tuple[str, Any]]:
    """The arrays of MjData whose size follows from the model, and so is the same in every step."""
    for name in dir(data):
        if not name.startswith(("_", "efc_", "iefc_", "island_", "map_")):
            value = getattr(data, name)
            if type(value) is np.ndarray and value.dtype.kind in "fiub" and value.flags.writeable:
                yield name, value


def _sum_of(model: Any) -> int:
    import mujoco

    content = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, content)
    return zlib.crc32(content.data)


# --- a batch

#: Arrays of a batch that its state holds.
_KEPT = ("_length", "_return", "_last_obs")


class KeptRows(FailingRows):
    """The part of a batch that says what it is in the middle of, and goes on from what another has said."""

    backend = ""

    def __init__(self, env_id: str, num_envs: int, seed: int) -> None:
        super().__init__(env_id, num_envs, seed)
        self._return = np.zeros(num_envs)
        self._last_obs: NDArray[Any] | None = None

    def _keep(self) -> Any:
        """The state of the environments, as plain values; ``_put_back`` of another batch goes on there."""
        raise StateNotKept(f"the engine '{self.backend}' does not tell it")

    def _put_back(self, state: Any) -> None:
        raise StateNotKept(f"the engine '{self.backend}' does not take it")

    @property
    def first_seed(self) -> int:
        """The seed given to ``make``."""
        return self._seed

    def get_state(self) -> dict[str, Any]:
        """All that the next steps follow from, between two steps: numbers, texts, arrays, lists and maps.

        Raises:
            StateNotKept: the environments, or this engine, cannot be kept; says why.
        """
        own = {name: np.array(getattr(self, name)) for name in _KEPT}
        return {
            **{"batch": type(self).__name__, "env": self.env_id, "num_envs": self.num_envs},
            **{"seed": self._seed, "failures": [self.failures.count, self.failures.episodes]},
            **{"num_steps": self._num_steps, **own, "inner": self._keep()},
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Bring a new batch, which has been reset, to where another one was at :meth:`get_state`.

        Raises:
            StateNotKept: it is the state of another batch, or damaged; the environments then want a reset.
        """
        own = {"batch": type(self).__name__, "env": self.env_id, "num_envs": self.num_envs}
        try:
            for name, value in own.items():
                if state[name] != value:
                    raise StateNotKept(f"its {name} is {str(state[name])[:60]}, not {value}")
            if not all(state[name].shape == np.shape(getattr(self, name)) for name in _KEPT):
                raise StateNotKept("its arrays have other shapes")
            self._put_back(state["inner"])
            for name in _KEPT:
                setattr(self, name, put_into(getattr(self, name), state[name]))
            self.failures.count, self.failures.episodes = map(int, state["failures"])
            self._seed, self._num_steps = int(state["seed"]), int(state["num_steps"])
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise StateNotKept(f"{type(error).__name__}: {in_one_line(error)}") from error
