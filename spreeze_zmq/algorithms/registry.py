"""Finds an algorithm by name, checks it, and makes the half of it that a learner runs."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, get_args

from spreeze_zmq.algorithms.algorithm import Algorithm
from spreeze_zmq.algorithms.declarations import PARTS, STACK_FIELDS, TRANSITION_FIELDS
from spreeze_zmq.algorithms.encoders import (
    MEMORY_OF_VECTORS,
    EncoderOptions,
    check_stack,
    convolves,
    seen,
    takes_images,
    takes_parts,
)
from spreeze_zmq.algorithms.moving import tables_by_network
from spreeze_zmq.algorithms.options import ReplayOptions, RolloutOptions, TrainingOptions
from spreeze_zmq.algorithms.written_names import misspelt, overwritten
from spreeze_zmq.base.errors import (
    AlgorithmError,
    InputError,
    InvalidEnvironment,
    in_one_line,
    let_interrupts_pass,
    place_of,
)
from spreeze_zmq.base.importing import hides_yours
from spreeze_zmq.base.rollout import ARRAY_FIELDS, STEP_FIELDS
from spreeze_zmq.base.schema import one_of, options_of, suggestion
from spreeze_zmq.base.trust import IS_IT_THERE
from spreeze_zmq.envs.spec import ActionKind, EnvironmentSpec

if TYPE_CHECKING:
    from spreeze_zmq.algorithms.half import AutogradHalf

#: The shipped algorithms: class names by module name.
_SHIPPED = {
    "discrete_sac": "DiscreteSAC",
    "dqn": "DQN",
    "ppo": "PPO",
    "pqn": "PQN",
    "sac": "SAC",
    "td3": "TD3",
    "td3_bc": "TD3BC",
}
#: What a replay keeps, and how an algorithm asks for it.
_WHOLE = "observations alone or whole transitions; add TRANSITION_FIELDS"


def names() -> tuple[str, ...]:
    """The shipped algorithms, sorted."""
    return tuple(sorted(_SHIPPED))


def suited(env: EnvironmentSpec) -> str:
    """The shipped algorithm where the user names none: SAC for bounded boxes of actions on vectors, and on
    images that are too small for convolutions; DQN for one discrete action on images by themselves, PPO for
    anything else, also on images, which fill SAC's replay of a million, and beside other parts DQN's.

    Raises:
        InvalidEnvironment: no shipped algorithm can act there.
    """
    able: tuple[str, ...] = ("sac", "ppo")
    if takes_parts(env, EncoderOptions()):
        able = ("ppo",)
    elif env.obs_dtype == "uint8" and len(env.obs_shape) > 1:
        large = takes_images(seen(env, TrainingOptions()), EncoderOptions())
        able = ("dqn", "ppo") if large else ("sac", "dqn", "ppo")
    for name in able:
        if _fits(get(name), env):
            return name
    raise InvalidEnvironment(
        f"no shipped algorithm acts in {env.action_kind} action spaces such as this one's"
    )


def has_part_encoders(kind: type[Algorithm], env: EnvironmentSpec, network: str | None) -> bool:
    """Whether an algorithm with this option ``network`` has an encoder for each part of observations."""
    return hasattr(kind.Options, "network") and takes_parts(env, EncoderOptions(str(network)))


def takes_vectors(env: EnvironmentSpec, network: Any) -> bool:
    """Whether networks by this option ``network`` take observations as vectors, without convolutions."""
    return not convolves(seen(env, TrainingOptions()), EncoderOptions(str(network)))


def get(name: str) -> type[Algorithm]:
    """The algorithm called ``name``: a shipped one, or ``"my_package.my_module:MyAlgorithm"``.

    Raises:
        InputError: it does not exist, its module cannot be imported, or its class is not complete.
    """
    if name in _SHIPPED:
        module = importlib.import_module(f"spreeze_zmq.algorithms.{name}")
        shipped: type[Algorithm] = getattr(module, _SHIPPED[name])
        return shipped
    if ":" not in name:
        own = 'your own is named "my_module:MyAlgorithm"'
        raise InputError(f"unknown algorithm {name!r}; {suggestion(name, _SHIPPED)}; {own}")
    module_name, _, class_name = name.partition(":")
    kind = getattr(_import(module_name, name), class_name, None)
    if kind is None:
        hint = hides_yours(module_name)
        raise InputError(f"{name}: the module {module_name} has no class {class_name}{hint}")
    if (problem := next(_problems(kind), None)) is not None:
        raise InputError(f"{name}: {problem}")
    found: type[Algorithm] = kind
    return found


def _import(module_name: str, name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        hint = IS_IT_THERE if error.name == module_name.partition(".")[0] else ""
        raise InputError(f"{name}: no module is called {error.name!r}; {hint}".rstrip("; ")) from None
    except SyntaxError as error:
        raise InputError(f"{name}: {place_of(error)}: {error.msg}") from None
    except BaseException as error:
        let_interrupts_pass(error)
        raise InputError(f"{name}: {place_of(error)}: {in_one_line(error)}") from error


def _problems(kind: Any) -> Iterator[str]:
    """Why ``kind`` is no complete algorithm. A check relies on those before it: only the first one counts."""
    if not (inspect.isclass(kind) and issubclass(kind, Algorithm)):
        yield f"{kind!r} is no class that inherits spreeze_zmq.algorithms.Algorithm"
    if missing := ", ".join(sorted(kind.__abstractmethods__)):
        yield f"{missing} must be defined: see spreeze_zmq.algorithms.Algorithm"
    if not set(kind.acts_in) <= set(get_args(ActionKind)):
        expected = f'{one_of(get_args(ActionKind))}, as in acts_in = ("discrete",)'
        yield f"acts_in = {kind.acts_in!r}, expected a tuple of {expected}"
    yield from _problems_of_options(getattr(kind, "Options", None))
    if kind.on_policy() and kind.acts_by_itself():
        problem = "an act() of its own gives no log probabilities, which rollouts for RolloutOptions need"
        yield f"{problem}; act by a distribution() instead"
    yield from _problems_of_fields(kind)
    yield from overwritten(kind)
    if lines := misspelt(kind):
        own = " (a name that only another file reads: begin it with _)" if "did you mean" in lines[0] else ""
        yield f"{'; '.join(lines)}{own}"


def _problems_of_fields(kind: type[Algorithm]) -> Iterator[str]:
    """Rollout arrays that an algorithm asks for, and that there are not or that its learners do not keep."""
    transitions = {*TRANSITION_FIELDS, *STACK_FIELDS}
    for part in PARTS:
        fields = kind.fields_of(part)
        missing = [name for name in TRANSITION_FIELDS if name not in fields]
        if "action" in fields and missing:
            yield f"{part}_fields has action and no {missing[0]}: a replay keeps {_WHOLE}"
        for wanted in fields:
            asks = f"{part}_fields asks for {wanted}"
            if wanted not in ARRAY_FIELDS:
                yield f"{part}_fields has {wanted!r}; {suggestion(wanted, ARRAY_FIELDS)}"
            if kind.on_policy() or wanted in transitions:
                continue
            if wanted not in STEP_FIELDS:
                yield f"{asks}, which a replay does not keep; Options that inherit RolloutOptions do"
            if "action" not in fields:
                yield f"{asks} and no action: a replay keeps {_WHOLE}"
            if wanted == "log_prob" and kind.acts_by_itself():
                yield f"{asks}, which an act() of its own does not give"


def _problems_of_options(options: Any) -> Iterator[str]:
    """Why ``options`` cannot be the ``Options`` of an algorithm; as :func:`_problems`."""
    if not (inspect.isclass(options) and issubclass(options, TrainingOptions)):
        yield "its Options must be a frozen dataclass that inherits ReplayOptions or RolloutOptions"
    if not dataclasses.is_dataclass(options) or "__dataclass_fields__" not in vars(options):
        yield "write @dataclass(frozen=True) above class Options"
    for item in dataclasses.fields(options):
        if item.name == "name":
            yield "its option name would stand where the name of the algorithm does; give it another one"
        if "option" not in item.metadata:
            example = f'{item.name}: float = option(0.5, "what it is")'
            yield f"its option {item.name} needs a default and a line of help: {example}"
    try:
        declared = options_of(options)
    except InputError as error:
        yield str(error)
        return
    shared = {each.name: each.type for base in (ReplayOptions, RolloutOptions) for each in options_of(base)}
    for each in declared:
        if (expected := shared.get(each.name, each.type)) != each.type:
            problem = f"its option {each.name} is of type {each.type}, but the library reads it as {expected}"
            yield f"{problem}; give yours another name"
        moves = "schedule=True" if each.schedule else f"follows={each.follows!r}" if each.follows else ""
        if moves and each.type != "float":
            problem = (
                f"its option {each.name} is of type {each.type}, and {moves} makes it move: what moves is"
            )
            yield f"{problem} a float; write {each.name}: float, or leave {moves} out"


def make(
    part: str, kind: type[Algorithm], options: Any, env: EnvironmentSpec, device: str, seed: int
) -> AutogradHalf:
    """The half of an algorithm that trains ``part``, ``"critic"`` or ``"policy"``, initialised from ``seed``.

    Raises:
        InvalidEnvironment: the algorithm cannot act in ``env``.
        InputError: its declarations do not fit together.
    """
    assert part in PARTS, part
    _check_spaces(kind, options, env)
    from spreeze_zmq.algorithms.half import AutogradHalf

    return AutogradHalf(kind, options, env, device, seed, part)


def memory_size(kind: type[Algorithm] | None, options: Any) -> int:
    """See :meth:`Algorithm.memory_size`; 0 where the topology's algorithm or options could not be read."""
    return 0 if kind is None or options is None else kind.memory_size(options)


def check(kind: type[Algorithm], options: Any, env: EnvironmentSpec) -> None:
    """Check an algorithm for an environment before anything starts; a user's own acts once.

    Raises:
        InvalidEnvironment: it cannot act there; the message names what can: other shipped algorithms, or for
            a user's own the attribute to set or the distributions that fit.
        AlgorithmError: its networks and its distribution do not fit together.
    """
    _check_spaces(kind, options, env)
    if (size := memory_size(kind, options)) and not kind.on_policy():
        _check_sequences(kind, options, env, size)
    if not _is_shipped(kind) or tables_by_network(options):  # shipped ones are tested: this imports torch
        from spreeze_zmq.algorithms.first_actions import rehearse
        from spreeze_zmq.algorithms.relabelled import rehearse_relabel

        try:
            rehearse(kind, options, seen(env, options))
            rehearse_relabel(kind(options, env), env)
        except InvalidEnvironment as error:
            raise InvalidEnvironment(f"{kind.__name__}: {error}") from None


def _check_sequences(kind: type[Algorithm], options: Any, env: EnvironmentSpec, size: int) -> None:
    """Raise where the replays of an algorithm keep no sequences of ``env`` for a memory of this size."""
    if env.obs_dtype == "uint8" and len(env.obs_shape) > 1:
        raise InvalidEnvironment(MEMORY_OF_VECTORS)
    if getattr(options, "memory_size", 0) != size or not hasattr(options, "sequence_length"):
        problem = f"memory_size() gives {size}, and its replay draws steps without those before them"
        hint = "let Options inherit RolloutOptions, or SequenceOptions and return options.memory_size"
        raise AlgorithmError(kind, f"{problem}; {hint}")
    if kind.acts_by_itself():
        problem = f"memory_size = {size}, and an act() of its own gets no memory"
        raise AlgorithmError(kind, f"{problem}; set memory_size = 0, or act by a distribution()")
    if kind.relabels(options):
        problem = "relabel makes transitions by themselves, a memory needs sequences of them"
        raise AlgorithmError(kind, f"{problem}; set memory_size = 0, or leave relabel out")


def _is_shipped(kind: Any) -> bool:
    """Whether a class, or a method, is the library's."""
    return bool(kind.__module__.startswith(f"{__package__}."))


def _check_spaces(kind: type[Algorithm], options: Any, env: EnvironmentSpec) -> None:
    if _is_shipped(kind.networks):  # those of one's own may take a stack
        check_stack(env, options)
    try:
        kind.check(seen(env, options), options)
    except InvalidEnvironment as error:
        if not _is_shipped(kind):
            if not kind.acts_in or env.action_kind in kind.acts_in:
                raise
            hint = f'if its networks can, write acts_in = ("{env.action_kind}",) in class {kind.__name__}'
            raise InvalidEnvironment(f"{error}; {hint}") from None
        fits = _fits(kind, env)  # with other options than these
        able = [] if fits else [repr(name) for name in names() if _fits(get(name), env)]
        either = " or ".join(filter(None, [", ".join(able[:-1]), *able[-1:]]))
        hint = f"; algorithm = {either} could" if able else ""
        raise InvalidEnvironment(f"{error}{hint}") from None


def _fits(kind: type[Algorithm], env: EnvironmentSpec) -> bool:
    try:
        kind.check(seen(env, kind.Options()), kind.Options())
    except InvalidEnvironment:
        return False
    return True
