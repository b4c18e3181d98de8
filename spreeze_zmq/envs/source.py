"""From a name in a topology to something that makes one environment: a registered id, or ``module:name`` of one's own."""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

from ..errors import InvalidEnvironment

#: Arguments that ``gymnasium.make`` itself takes, besides those of the environment's constructor.
_MAKE_ARGUMENTS = ("max_episode_steps", "disable_env_checker", "render_mode")


@dataclass(frozen=True)
class Source:
    """Where environments of one name come from: exactly one of ``registered`` and ``factory`` is set.

    Attributes:
        env_id: the name as it was asked for.
        registered: the entry of Gymnasium's registry.
        factory: a callable of the user's that returns a ``gymnasium.Env``, or a native task's class.
    """

    env_id: str
    registered: EnvSpec | None = None
    factory: Callable[..., Any] | None = None

    def make_one(self, kwargs: Mapping[str, Any], *, lean: bool = False) -> gymnasium.Env[Any, Any]:
        """One environment, its time limit included.

        Args:
            kwargs: arguments of its constructor, and ``max_episode_steps`` to override its time limit.
            lean: leave out Gymnasium's checking wrappers.

        Raises:
            InvalidEnvironment: it could not be made; says why.
        """
        try:
            if self.registered is not None:
                spec = replace(self.registered, order_enforce=False) if lean else self.registered
                return gymnasium.make(spec, disable_env_checker=True, **kwargs)
            return self._call_factory(dict(kwargs))
        except InvalidEnvironment:
            raise
        except Exception as error:
            raise InvalidEnvironment(self._why_not(kwargs, error)) from error

    def _call_factory(self, kwargs: dict[str, Any]) -> gymnasium.Env[Any, Any]:
        assert self.factory is not None
        limit = None
        if "max_episode_steps" not in _parameters(self.factory):
            limit = kwargs.pop("max_episode_steps", None)
        env = self.factory(**kwargs)
        if not isinstance(env, gymnasium.Env):
            raise InvalidEnvironment(
                f"{self.env_id}: it returned a {type(env).__module__}.{type(env).__qualname__}, expected a"
                " gymnasium.Env"
            )
        return env if limit is None else gymnasium.wrappers.TimeLimit(env, limit)

    def _why_not(self, kwargs: Mapping[str, Any], error: Exception) -> str:
        """One message for an environment whose constructor raised ``error``."""
        accepted = self._accepted()
        unknown = [name for name in kwargs if accepted and name not in accepted]
        if isinstance(error, TypeError) and unknown:
            near = difflib.get_close_matches(unknown[0], accepted, 1)
            return (
                f"{self.env_id}: it takes no argument {_listed(unknown)}"
                + (f" (did you mean '{near[0]}'?)" if near else "")
                + f"; it takes {', '.join(accepted)}"
            )
        message = f"{self.env_id}: it could not be made: {type(error).__name__}: {_one_line(error)}"
        newer = _latest_version(self.registered)
        return message + (f" (use {newer})" if newer else "")

    def _accepted(self) -> list[str]:
        creator: Any = self.factory
        if self.registered is not None:
            entry = self.registered.entry_point
            try:
                creator = load_env_creator(entry) if isinstance(entry, str) else entry
            except Exception:  # the module of the entry point does not import: nothing is known
                return []
        names = _parameters(creator)
        return sorted({*names, *(n for n in _MAKE_ARGUMENTS if self.registered is not None or n in names)})


def find(env_id: str) -> Source:
    """What stands behind a name.

    Args:
        env_id: ``HalfCheetah-v5``; ``my_package.my_module:Reach-v0``, where importing the module registers the id;
            ``my_package.my_module:make_reach``, a callable that returns a ``gymnasium.Env``. Modules in the current
            directory are found.

    Raises:
        InvalidEnvironment: there is nothing of this name; tells the nearest ones.
    """
    if not isinstance(env_id, str) or not env_id.strip():
        raise InvalidEnvironment(
            f"an environment's name is expected, such as 'HalfCheetah-v5', not {env_id!r}"
        )
    module_name, colon, name = env_id.rpartition(":")
    if not colon:
        return Source(env_id, registered=_registered(env_id))
    module = _import(env_id, module_name)
    if name in gymnasium.registry:
        return Source(env_id, registered=gymnasium.registry[name])
    factory = getattr(module, name, None)
    if callable(factory):
        return Source(env_id, factory=factory)
    if factory is not None:
        raise InvalidEnvironment(
            f"{env_id}: '{name}' of {module_name} is a {type(factory).__name__}, not callable"
        )
    raise InvalidEnvironment(_nothing_called(env_id, module, module_name, name))


def _import(env_id: str, module_name: str) -> Any:
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise InvalidEnvironment(
                f"{env_id}: there is no module '{error.name}' (searched in the current directory {os.getcwd()} and"
                " in the installed packages)"
            ) from error
        raise InvalidEnvironment(
            f"{env_id}: module '{module_name}' needs '{error.name}', which is not installed"
        ) from error
    except Exception as error:
        raise InvalidEnvironment(
            f"{env_id}: importing '{module_name}' failed: {type(error).__name__}: {_one_line(error)}"
        ) from error


def _registered(env_id: str) -> EnvSpec:
    """The registry's entry of a plain id; an id without a version means its latest one."""
    if env_id in gymnasium.registry:
        return gymnasium.registry[env_id]
    versions = _versions(env_id)
    if versions:
        return gymnasium.registry[versions[-1]]
    names = list(gymnasium.registry)
    bare = env_id.rpartition("-v")[0] or env_id
    near = _versions(bare)[-1:] + difflib.get_close_matches(env_id, names, 4, 0.6)
    near = list(dict.fromkeys(near))[:3]
    hint = f"did you mean {_listed(near, 'or')}?" if near else "gymnasium.pprint_registry() lists all"
    raise InvalidEnvironment(
        f"{env_id}: no such environment is registered ({hint}; one of your own is named 'module:id' or"
        " 'module:callable')"
    )


def _nothing_called(env_id: str, module: Any, module_name: str, name: str) -> str:
    own = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
    mine = [i for i, spec in gymnasium.registry.items() if str(spec.entry_point).startswith(module_name)]
    near = difflib.get_close_matches(name, own + mine, 3, 0.5)
    return (
        f"{env_id}: module '{module_name}' neither registers an environment '{name}' nor has a callable of that name"
        + (f" (did you mean {_listed(near, 'or')}?)" if near else "")
    )


def _versions(name: str) -> list[str]:
    """All registered versions of an unversioned name, oldest first."""
    found = [spec for spec in gymnasium.registry.values() if spec.id.rpartition("-v")[0] == name]
    return [spec.id for spec in sorted(found, key=lambda spec: spec.version or 0)]


def _latest_version(spec: EnvSpec | None) -> str | None:
    if spec is None or spec.version is None:
        return None
    latest = _versions(spec.id.rpartition("-v")[0])[-1]
    return latest if latest != spec.id else None


def _parameters(creator: Any) -> list[str]:
    """Names of the arguments that a constructor takes, those that it passes on to its base classes included."""
    constructors = (
        [base.__init__ for base in inspect.getmro(creator)[:-1]] if inspect.isclass(creator) else [creator]
    )
    names: list[str] = []
    for constructor in constructors:
        try:
            parameters = inspect.signature(constructor).parameters.values()
        except (TypeError, ValueError):  # builtins have none
            return names
        names += [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return [name for name in dict.fromkeys(names) if name != "self"]


def _listed(names: list[str], word: str = "and") -> str:
    quoted = [f"'{name}'" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {word} {quoted[-1]}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
