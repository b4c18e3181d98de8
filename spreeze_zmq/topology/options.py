"""The keys of a topology: tables of options, and the algorithm's options from its dataclass."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from spreeze_zmq.plan.option import Option
from spreeze_zmq.plan.roles import CRITIC_LEARNER, EVALUATOR, VISUALIZER

#: The tables of a topology.
TABLES = ("run", "algorithm", "balance", "components", "channels")

STOP = (
    Option("return", "float", help="stop when fresh episodes of the saved policy have this mean return"),
    Option("env_steps", "int", minimum=1, help="stop after this many transitions have been sampled"),
    Option(
        "trained_transitions",
        "int",
        minimum=1,
        help="stop after this many transitions have been trained on, batch_size for each critic update",
    ),
    Option("minutes", "float", above=0, help="stop after this wall time"),
)

RUN = (
    Option("env", "str", required=True, help='a Gymnasium id, or "module:Id-v0" or "module:callable"'),
    Option("env_kwargs", "table", {}, help="keyword arguments of the environment"),
    Option("randomize", "table", {}, help="ranges of model parameters, drawn at each reset of a sampler's"),
    Option(
        "algorithm",
        "str",
        "auto",
        help='a shipped one or "my_module:MyAlgorithm"; auto goes by the action and observation spaces',
    ),
    Option("seed", "int", 0, minimum=0, maximum=2**32 - 1, help="the seed from which all others are drawn"),
    Option("stop", "table", {}, options=STOP, help="when to stop, whichever comes first; never without it"),
    Option("name", "str", help="what the run's folder is named after; the topology file's name by default"),
    Option("checkpoint_minutes", "float", 5.0, above=0, help="time between checkpoints"),
    Option("save_replay", "bool", False, help="whether checkpoints hold the replay too"),
)

#: ``dial.MODES`` has the values of each mode.
BALANCE = (
    Option(
        "mode",
        "str",
        "free",
        choices=("free", "bounded", "lockstep"),
        help="the values of the keys below that are left at auto",
    ),
    Option("replay_ratio", "float", 8.0, above=0, help="transitions trained on per transition sampled"),
    Option(
        "max_policy_lag",
        "int",
        "auto",
        minimum=0,
        words=("none", "auto"),
        help="versions that a received rollout may be behind; a staler one is dropped and counted",
    ),
    Option(
        "slack_rollouts",
        "int",
        "auto",
        minimum=0,
        words=("auto",),
        help="rollouts that production may run ahead of the ratio",
    ),
    Option(
        "publish_every_updates",
        "int",
        "auto",
        minimum=0,
        words=("round", "auto"),
        help="critic updates between two publications, or as many as a rollout of each sampler allows; "
        "0 publishes by publish_interval_s",
    ),
    Option(
        "in_order",
        "bool",
        "auto",
        words=("auto",),
        help="take every rollout and version in a fixed order, so that a seed gives the same run again",
    ),
    Option(
        "pin",
        "bool",
        "auto",
        words=("auto",),
        help="whether learners get cores of their own; auto where these are a small part of the machine",
    ),
)

CHANNEL = (
    Option("endpoint", "str", help='"tcp://127.0.0.1:5555" or "ipc:///absolute/path"'),
    Option("high_water_mark", "int", minimum=1, help="messages queued at each end"),
    Option("socket_buffer_bytes", "int", minimum=0, help="kernel buffer; 0 for the system's own"),
)

_NICE = {EVALUATOR: 5, VISUALIZER: 10}
#: The evaluator plays the last policy when it is told to stop.
_STOP_GRACE_S = {EVALUATOR: 15.0}


def component_options(role: str) -> tuple[Option, ...]:
    """The options that every component of this role has, independent of its program."""
    count = 1 if role == CRITIC_LEARNER else "auto"
    return (
        Option("use", "str", role, help='a shipped component, or "./folder" beside the topology'),
        Option("count", "count", count, help="how many processes, or their range"),
        Option("threads", "int", "auto", minimum=1, words=("auto",), help="of numerical libraries, in each"),
        Option("nice", "int", _NICE.get(role, 0), minimum=0, maximum=19, help="19 is the lowest priority"),
        Option(
            "max_restarts",
            "int",
            3,
            minimum=0,
            help="restarts within restart_window_s; one more crash stops the run",
        ),
        Option("restart_window_s", "duration", 60.0, above=0, help="the window of max_restarts"),
        Option(
            "start_timeout_s", "duration", 30.0, above=0, help="deadline from its start until it is ready"
        ),
        Option(
            "stop_grace_s",
            "duration",
            _STOP_GRACE_S.get(role, 5.0),
            above=0,
            help="from the request to stop until it is killed",
        ),
    )


def dataclass_options(kind: Any) -> tuple[Option, ...]:
    """The options of an algorithm: one for each field of its frozen dataclass.

    A field's metadata may hold ``help``, ``minimum``, ``above``, ``maximum``, ``choices`` and ``auto``
    (whether the word ``"auto"`` is accepted too).
    """
    hints = get_type_hints(kind)
    return tuple(_field_option(field, hints[field.name]) for field in dataclasses.fields(kind))


def _field_option(field: dataclasses.Field[Any], hint: Any) -> Option:
    metadata = field.metadata
    required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    words: tuple[str, ...] = ("auto",) if metadata.get("auto") else ()
    members = [hint]
    if get_origin(hint) in (Union, UnionType):
        members = [member for member in get_args(hint) if not words or not _is_text(member)]
    if NoneType in members:
        words += ("none",)
    member = next(member for member in members if member is not NoneType)
    choices = metadata.get("choices") or (get_args(member) if get_origin(member) is Literal else ())
    return Option(
        field.name,
        _type_name(member),
        None if required else _as_written(default),
        help=metadata.get("help", ""),
        minimum=metadata.get("minimum"),
        above=metadata.get("above"),
        maximum=metadata.get("maximum"),
        choices=tuple(choices),
        words=words,
        required=required,
    )


def _is_text(kind: Any) -> bool:
    """Whether a member of a union only stands for the word "auto"."""
    return kind is str or get_origin(kind) is Literal


def _type_name(kind: Any) -> str:
    origin = get_origin(kind)
    if origin is Literal:
        return _type_name(type(get_args(kind)[0]))
    if origin in (tuple, list, Sequence):
        return {int: "ints", str: "strs"}[get_args(kind)[0]]
    names = {bool: "bool", int: "int", float: "float", str: "str", dict: "table"}
    return names[origin or kind]


def _as_written(default: Any) -> Any:
    if default is None:
        return "none"
    return list(default) if isinstance(default, tuple) else default
