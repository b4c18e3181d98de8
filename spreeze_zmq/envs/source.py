"""Finds the environment of a name: a registered id, a callable or a native task."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Literal

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

from spreeze_zmq.base.errors import (
    InvalidEnvironment,
    InvalidRandomization,
    in_one_line,
    is_users,
    let_interrupts_pass,
    place_of,
)
from spreeze_zmq.base.importing import hides_yours
from spreeze_zmq.base.schema import near_ones
from spreeze_zmq.envs.engines.fitting import given_limit, raised
from spreeze_zmq.envs.named import imported
from spreeze_zmq.envs.task import NativeBatch, Task
from spreeze_zmq.envs.tasks import NATIVE

#: Renderer arguments of Gymnasium's MuJoCo environments; without a render mode they change nothing.
_VIEW = ("camera_id", "camera_name", "default_camera_config", "height", "max_geom", "visual_options", "width")


#: Arguments of ``gymnasium.make`` itself.
_MAKE = ("max_episode_steps", "render_mode")


@dataclass(frozen=True)
class EnvironmentSource:
    """Makes the environments of one name; exactly one of ``registered`` and ``factory`` is set."""

    env_id: str  # the name in the topology
    registered: EnvSpec | None = None  # the entry in Gymnasium's registry
    factory: Callable[..., Any] | None = None  # a callable that returns a gymnasium.Env, or a Task class

    @property
    def is_own_task(self) -> bool:
        """Whether the name is a native task of the user's."""
        return inspect.isclass(self.factory) and issubclass(self.factory, Task)

    def is_gymnasiums_own(self, kwargs: Mapping[str, Any]) -> bool:
        """Whether it is Gymnasium's own environment with default arguments, which other engines reproduce."""
        return self._from_gymnasium and not self._with_registered(kwargs).keys() - {"max_episode_steps"}

    def _with_registered(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {**(self.registered.kwargs if self.registered is not None else {}), **kwargs}

    @property
    def _from_gymnasium(self) -> bool:
        spec = self.registered
        return (
            spec is not None
            and str(spec.entry_point).startswith("gymnasium.envs.")
            and not spec.additional_wrappers
        )

    def native(self, kwargs: Mapping[str, Any]) -> tuple[type[Task] | None, str]:
        """The native task that reproduces it with these arguments, or ``None``, and the reason in words."""
        if self.is_own_task:
            return self.factory, "the user's own native task"  # type: ignore[return-value]
        spec = self.registered
        if spec is None or spec.id not in NATIVE:
            return None, f"no native task does {self.env_id}"
        if not self._from_gymnasium:
            return None, f"the registered {spec.id} is not Gymnasium's own"
        if self._with_registered(kwargs).get("render_mode") is not None:
            return None, "rendering needs Gymnasium's own environment"
        module, name = NATIVE[spec.id]
        if module != "classic" and find_spec("mujoco.batch") is None:
            return None, "the native task needs mujoco 4.0 or newer"
        task: type[Task] = getattr(importlib.import_module(f"spreeze_zmq.envs.tasks.{module}"), name)
        return task, f"{name} is a native task, the whole batch steps at once"

    def make_native(
        self,
        task: type[Task],
        num_envs: int,
        kwargs: Mapping[str, Any],
        seed: int,
        step_info: bool | Literal["final"],
        randomize: Mapping[str, Any] | None = None,
        num_threads: int = 1,
    ) -> NativeBatch:
        """Make ``num_envs`` environments of a native task; the arguments are those of ``envs.make``.

        Raises:
            InvalidEnvironment: it could not be made; names the reason.
            InvalidRandomization: its model has no such parameters.
        """
        default = self.registered.max_episode_steps if self.registered else task.max_episode_steps
        limit = given_limit(self.env_id, kwargs) or default
        limit = None if limit == -1 else limit
        not_its = _MAKE if self.registered is None else _MAKE + _VIEW
        own = {name: value for name, value in self._with_registered(kwargs).items() if name not in not_its}
        try:
            instance = task(**own)
            instance.num_threads = num_threads
            if randomize:
                instance.randomize(randomize)
            env = NativeBatch(self.env_id, instance, num_envs, limit, seed, step_info)
        except InvalidRandomization as error:
            raise InvalidRandomization(self.env_id, error.mistakes) from None
        except InvalidEnvironment as error:
            raise InvalidEnvironment(f"{self.env_id}: {error}") from error
        except BaseException as error:
            let_interrupts_pass(error)
            raise InvalidEnvironment(self._cannot_make(task, own, error)) from error
        env.spec = self.registered
        return env

    def make_one(self, kwargs: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
        """Make one environment with its time limit and without Gymnasium's checking wrappers.

        Args:
            kwargs: arguments of its constructor; ``max_episode_steps`` overrides its time limit.

        Raises:
            InvalidEnvironment: it could not be made; names the reason.
        """
        creator: Any = self.factory
        try:
            if self.registered is None:
                return self._call_factory(dict(kwargs))
            entry = self.registered.entry_point
            if entry is None:
                raise InvalidEnvironment(
                    f"{self.env_id}: it is registered as a batch of environments alone (vector_entry_point):"
                    " name one of those that it is made of"
                )
            creator = load_env_creator(entry) if isinstance(entry, str) else entry
            spec = replace(self.registered, order_enforce=False, kwargs=dict(self.registered.kwargs))
            limit = given_limit(self.env_id, kwargs)
            return raised(gymnasium.make(spec, disable_env_checker=True, **kwargs), limit)
        except InvalidEnvironment:
            raise
        except BaseException as error:
            let_interrupts_pass(error)
            raise InvalidEnvironment(self._cannot_make(creator, kwargs, error)) from error

    def parameters(self) -> list[str]:
        """Names of its constructor's arguments."""
        creator = self.registered.entry_point if self.registered is not None else self.factory
        return _parameters(load_env_creator(creator) if isinstance(creator, str) else creator)

    def _call_factory(self, kwargs: dict[str, Any]) -> gymnasium.Env[Any, Any]:
        assert self.factory is not None
        takes = "max_episode_steps" in _parameters(self.factory)
        limit = None if takes else given_limit(self.env_id, kwargs)
        env = self.factory(**{n: v for n, v in kwargs.items() if takes or n != "max_episode_steps"})
        if not isinstance(env, gymnasium.Env):
            kind = f"{type(env).__module__}.{type(env).__qualname__}"
            raise InvalidEnvironment(f"{self.env_id}: it returned a {kind}, not a gymnasium.Env")
        return env if limit in (None, -1) else gymnasium.wrappers.TimeLimit(raised(env, limit), limit)

    def _cannot_make(self, creator: Any, kwargs: Mapping[str, Any], error: BaseException) -> str:
        """The message for an environment whose constructor raised ``error``."""
        accepted = sorted({*_parameters(creator), "max_episode_steps"})
        unknown = [name for name in kwargs if name not in accepted]
        if isinstance(error, TypeError) and unknown:
            near = near_ones(unknown[0], accepted, most=1)
            guess = f" (did you mean '{near[0]}'?)" if near else ""
            known = ", ".join(accepted)
            return f"{self.env_id}: it takes no argument {_listed(unknown)}{guess}; it takes {known}"
        newer = _latest_version(self.registered)
        place = place_of(error)
        at = f" [{place}]" if not str(error) or is_users(place.rpartition(":")[0]) else ""
        hint = f" (use {newer})" if newer else ""
        return f"{self.env_id}: it could not be made: {in_one_line(error)}{at}{hint}"


def find(env_id: str) -> EnvironmentSource:
    """Find the environment of a name.

    Args:
        env_id: ``HalfCheetah-v5``; ``my_package.my_module:Reach-v0``, where importing the module registers
            the id; ``my_package.my_module:make_reach``, a callable that returns a ``gymnasium.Env``, or a
            native task's class. Modules in the current directory are found.

    Raises:
        InvalidEnvironment: there is no such environment; suggests the nearest name.
    """
    if not isinstance(env_id, str) or not env_id.strip():
        raise InvalidEnvironment(
            "an environment's name is expected, such as 'HalfCheetah-v5' or 'my_module:MyEnv', by which any "
            f"process can make it, not {env_id!r:.80}"
        )
    module_name, colon, name = env_id.partition(":")
    if colon and not (module_name and name):
        raise InvalidEnvironment(f"{env_id}: expected 'module:id' or 'module:callable'")
    if not colon:
        return EnvironmentSource(env_id, registered=_registered(env_id))
    module = imported(env_id, module_name)
    if name in gymnasium.registry:
        return EnvironmentSource(env_id, registered=gymnasium.registry[name])
    factory = getattr(module, name, None)
    if factory is None:
        raise InvalidEnvironment(_nothing_called(env_id, module, module_name, name))
    if not callable(factory):
        kind = type(factory).__name__
        raise InvalidEnvironment(f"{env_id}: '{name}' of module '{module_name}' is a {kind}, not a callable")
    return EnvironmentSource(env_id, factory=factory)


def full_id(env_id: str) -> str:
    """The id that a name without its version stands for, the latest one; other names are as they are."""
    versions = [] if ":" in env_id or env_id in gymnasium.registry else _versions(env_id)
    return versions[-1] if versions else env_id


def _registered(env_id: str) -> EnvSpec:
    """The registry's entry of an id; of the latest version if the id has none."""
    if (registered := full_id(env_id)) in gymnasium.registry:
        return gymnasium.registry[registered]
    near = near_registered(env_id)
    hint = f"did you mean {_listed(near, 'or')}?" if near else "gymnasium.pprint_registry() lists all"
    head, _, rest = env_id.partition(".")
    if not near and head.isidentifier() and find_spec(head):
        hint = f"'{head}' is a module: write '{head}:{rest or 'MyEnvironment'}'"
    raise InvalidEnvironment(
        f"{env_id}: no such environment is registered ({hint}; one of your own or of another package"
        " is named 'module:id' or 'module:callable')"
    )


def near_registered(env_id: str) -> list[str]:
    """Up to three registered environments with similar names, each in its newest version."""
    newest = {spec_id.rpartition("-v")[0] or spec_id: spec_id for spec_id in gymnasium.registry}
    name = env_id.rpartition("-v")[0] or env_id
    near = [newest[match] for match in near_ones(name, newest)]
    return [_latest_version(gymnasium.registry[spec_id]) or spec_id for spec_id in near]


def _nothing_called(env_id: str, module: Any, module_name: str, name: str) -> str:
    own = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
    own += [spec.id for spec in gymnasium.registry.values() if _module_of(spec).startswith(module_name)]
    near = near_ones(name, own, 0.5)
    hint = f" (did you mean {_listed(near, 'or')}?)" if near else ""
    return (
        f"{env_id}: module '{module_name}' neither registers '{name}' nor has a callable of that name{hint}"
        f"{hides_yours(module_name)}"
    )


def _module_of(spec: EnvSpec) -> str:
    entry = spec.entry_point
    return entry if isinstance(entry, str) else str(getattr(entry, "__module__", ""))


def _versions(name: str) -> list[str]:
    """All registered versions of an unversioned name, oldest first."""
    specs = [spec for spec in gymnasium.registry.values() if spec.id.rpartition("-v")[0] == name]
    return [spec.id for spec in sorted(specs, key=lambda spec: spec.version or 0)]


def _latest_version(spec: EnvSpec | None) -> str | None:
    """The newest version of a registered environment; ``None`` if ``spec`` is the newest."""
    if spec is None or spec.version is None:
        return None
    latest = _versions(spec.id.rpartition("-v")[0])[-1]
    return latest if latest != spec.id else None


def _parameters(creator: Any) -> list[str]:
    """Names of a constructor's arguments, including those that it passes on to its base classes."""
    if creator is None:
        return []
    bases = inspect.getmro(creator)[:-1] if inspect.isclass(creator) else ()
    constructors = [base.__dict__["__init__"] for base in bases if "__init__" in base.__dict__]
    names: list[str] = []
    for constructor in constructors or [creator]:
        try:
            parameters = inspect.signature(constructor).parameters.values()
        except (TypeError, ValueError):  # builtins have none
            break
        names += [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return [name for name in dict.fromkeys(names) if name != "self"]


def _listed(names: list[str], word: str = "and") -> str:
    quoted = [f"'{name}'" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {word} {quoted[-1]}"
