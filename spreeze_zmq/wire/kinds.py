"""The kinds of message that travel: what each must carry, checked at the sender and again at the receiver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.errors import WireError
from spreeze_zmq.wire.consistency import Arrays, check_episodes, check_policy, check_rollout

#: The dtypes that may travel, by the name that stands in the header.
DTYPE_NAMES = (
    *("float16", "float32", "float64", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)
# NumPy has two 64-bit integer types of one name, and takes 1 us to tell a dtype's name: look it up by number.
_NAME_OF_NUM = {np.dtype(code).num: np.dtype(code).name for code in (*DTYPE_NAMES, "q", "Q", "l", "L")}


def dtype_name(array: NDArray[Any]) -> str | None:
    """The name under which the dtype of ``array`` travels, in either byte order; None where it cannot."""
    return _NAME_OF_NUM.get(array.dtype.num)


#: Counts and versions stay below this, so that a language whose numbers are doubles holds them exactly.
MAX_COUNT = 2**53


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < MAX_COUNT


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _is_numbers(value: object) -> bool:
    return isinstance(value, dict) and all(_is_number(item) for item in value.values())


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


#: The types that a field can have. NaN and infinities are numbers: a diverging loss must still be reported.
FIELD_TYPES: dict[str, Callable[[object], bool]] = {
    "count": _is_count,
    "number": _is_number,
    "text": lambda value: isinstance(value, str),
    "flag": lambda value: isinstance(value, bool),
    "names": _is_names,
    "numbers": _is_numbers,
    "map": lambda value: isinstance(value, dict),
    "any": lambda value: True,
}


@dataclass(frozen=True)
class FieldSpec:
    """One field: ``type`` is a key of :data:`FIELD_TYPES`."""

    type: str
    required: bool = True


@dataclass(frozen=True)
class ArraySpec:
    """One array: the dtypes it may have and its least and greatest rank."""

    dtypes: tuple[str, ...]
    min_rank: int
    max_rank: int
    required: bool = True


@dataclass(frozen=True)
class KindSpec:
    """One kind of message.

    Attributes:
        fields: the fields it carries; others are let through unread, so that newer senders can add some.
        arrays: the arrays it carries; others likewise.
        retained: a publisher sends the latest message of this kind again to later subscribers.
        retained_by: fields; the latest message for each of their values is sent again.
        cross_check: what must hold between its fields and arrays; raises WireError.
    """

    fields: Mapping[str, FieldSpec] = field(default_factory=dict)
    arrays: Mapping[str, ArraySpec] = field(default_factory=dict)
    retained: bool = False
    retained_by: tuple[str, ...] = ()
    cross_check: Callable[[Mapping[str, Any], Arrays], None] | None = None

    @cached_property
    def field_checks(self) -> list[tuple[str, Callable[[object], bool], bool]]:
        """Name, test and whether it is required, of each field."""
        return [(name, FIELD_TYPES[spec.type], spec.required) for name, spec in self.fields.items()]


def check_fields(kind: str, spec: KindSpec, fields: Mapping[str, Any]) -> None:
    """Raise WireError unless ``fields`` are what a message of ``kind`` must carry."""
    for name, is_right, required in spec.field_checks:
        if name in fields:
            if not is_right(fields[name]):
                wanted = spec.fields[name].type
                raise WireError(
                    "wrong_field_type", f"{kind}.{name} is {fields[name]!r:.60}, expected a {wanted}"
                )
        elif required:
            raise WireError("missing_field", f"{kind} has no field {name!r}")


def check_arrays(kind: str, spec: KindSpec, arrays: Mapping[str, tuple[str, int]]) -> None:
    """Raise WireError unless ``arrays``, each a dtype's name and a rank, are what a message of ``kind`` must
    carry.
    """
    for name, wanted in spec.arrays.items():
        if name not in arrays:
            if wanted.required:
                raise WireError("missing_array", f"{kind} has no array {name!r}")
            continue
        dtype, rank = arrays[name]
        if dtype not in wanted.dtypes:
            raise WireError("wrong_dtype", f"{kind}.{name} is {dtype}, expected {' or '.join(wanted.dtypes)}")
        if not wanted.min_rank <= rank <= wanted.max_rank:
            raise WireError(
                "wrong_rank", f"{kind}.{name} has rank {rank}, at least {wanted.min_rank} expected"
            )


def _fields(optional: tuple[str, ...] = (), **types: str) -> dict[str, FieldSpec]:
    return {name: FieldSpec(type_name, name not in optional) for name, type_name in types.items()}


_OBS = ("float32", "uint8")
_ANY_RANK = 8
_PARAMETERS = ArraySpec(("float32",), 1, 1)
_REPORT = _fields(
    ("pushed", "taken", "policy_lag", "publication", "device", "waiting_for"),
    role="text",
    name="text",
    pid="count",
    time_s="number",
    uptime_s="number",
    cpu_s="number",
    rss_bytes="count",
    clock_s="numbers",
    counters="numbers",
    gauges="numbers",
    pushed="numbers",
    taken="map",
    policy_lag="numbers",
    publication="numbers",
    device="numbers",
    waiting_for="text",
)

#: Every kind of message, by name. PROTOCOL.md says what each field means and in what unit.
KINDS: dict[str, KindSpec] = {
    "rollout": KindSpec(
        _fields(produced="count", policy_version="count", num_steps="count", num_envs="count"),
        {
            "obs": ArraySpec(_OBS, 2, _ANY_RANK, required=False),
            "action": ArraySpec(("float32", "int64"), 2, _ANY_RANK, required=False),
            "reward": ArraySpec(("float32",), 2, 2, required=False),
            "terminated": ArraySpec(("bool",), 2, 2, required=False),
            "truncated": ArraySpec(("bool",), 2, 2, required=False),
            "final_obs": ArraySpec(_OBS, 1, _ANY_RANK, required=False),
            "final_index": ArraySpec(("int32",), 2, 2, required=False),
            "log_prob": ArraySpec(("float32",), 2, 2, required=False),
            "history": ArraySpec(_OBS, 2, _ANY_RANK, required=False),
        },
        cross_check=check_rollout,
    ),
    "policy": KindSpec(
        _fields(
            ("collect_until",),
            version="count",
            critic_updates="count",
            actor_updates="count",
            description="map",
            extras="numbers",
            collect_until="numbers",
        ),
        {
            "parameters": _PARAMETERS,
            "auxiliary": ArraySpec(("float32",), 1, 1, required=False),
            "action_low": ArraySpec(("float32",), 1, 1, required=False),
            "action_high": ArraySpec(("float32",), 1, 1, required=False),
            "observation_mean": ArraySpec(("float32",), 1, _ANY_RANK, required=False),
            "observation_std": ArraySpec(("float32",), 1, _ANY_RANK, required=False),
        },
        retained=True,
        cross_check=check_policy,
    ),
    "critic": KindSpec(
        _fields(
            ("taken", "policy_version"),
            version="count",
            critic_updates="count",
            env_steps="count",
            taken="numbers",
            policy_version="count",
        ),
        {"parameters": _PARAMETERS},
        retained=True,
    ),
    "hello": KindSpec(_fields(role="text", name="text", pid="count", protocol="count", host="text")),
    "report": KindSpec(_REPORT),
    "bye": KindSpec({**_REPORT, **_fields(reason="text")}),
    "episodes": KindSpec(
        {},
        {"returns": ArraySpec(("float32",), 1, 1), "lengths": ArraySpec(("int32",), 1, 1)},
        cross_check=check_episodes,
    ),
    "evaluation": KindSpec(
        _fields(
            (
                *("confirmed", "interval_low", "interval_high", "min_length", "max_length"),
                *("num_truncated", "timed_out", "seed", "info"),
            ),
            version="count",
            env_steps="count",
            mean_return="number",
            std_return="number",
            interval_low="number",
            interval_high="number",
            min="number",
            max="number",
            mean_length="number",
            min_length="count",
            max_length="count",
            num_episodes="count",
            num_truncated="count",
            timed_out="flag",
            seed="count",
            info="numbers",
            wall_s="number",
            confirmed="flag",
            best="flag",
        )
    ),
    "failure": KindSpec(_fields(name="text", summary="text", traceback="text")),
    "part": KindSpec(_fields(folder="text", part="map")),
    "exited": KindSpec(_fields(name="text", how="text", restarting="flag")),
    "workers": KindSpec(_fields(role="text", count="count", reason="text")),
    "stop_request": KindSpec(_fields(reason="text")),
    "stopping": KindSpec(_fields(roles="names")),
    "status": KindSpec(retained=True),
    "entry": KindSpec(
        _fields(topic="text", t_s="number", about="map"), retained=True, retained_by=("topic",)
    ),
    "stop": KindSpec(_fields(roles="names", reason="text"), retained=True),
    "checkpoint": KindSpec(_fields(("env_steps",), folder="text", env_steps="count")),
    "scale": KindSpec(_fields(role="text", count="count", reason="text")),
    "set": KindSpec(
        _fields(("reason",), role="text", option="text", value="any", reason="text"),
        retained=True,
        retained_by=("role", "option"),
    ),
}
