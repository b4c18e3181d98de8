"""The channels of a run, with the endpoints that the topology gives them; each endpoint is bound once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from spreeze_zmq.plan.endpoints import MAX_IPC_BYTES, is_loopback
from spreeze_zmq.plan.option import Unfit, show
from spreeze_zmq.plan.plan import ChannelPlan
from spreeze_zmq.plan.roles import CHANNELS, ChannelSpec, channels_of, end_of, experience_of, roles_of
from spreeze_zmq.topology.mistakes import Key, Mistakes, suggestion
from spreeze_zmq.topology.options import CHANNEL
from spreeze_zmq.topology.source import flat_tables
from spreeze_zmq.topology.tables import read_table

_TCP = re.compile(r"tcp://(?P<host>\[[^\]]*\]|[^:/]*):(?P<port>\d+)")
_FORMS = '"tcp://127.0.0.1:5555" or "ipc:///absolute/path"'


def read_channels(
    table: Any,
    learners: Sequence[str],
    rollout_fields: Mapping[str, tuple[str, ...]],
    mistakes: Mistakes,
) -> dict[str, ChannelPlan]:
    """The run's channels; unknown names, bad endpoints and endpoints bound twice are noted.

    Args:
        table: ``[channels]`` as written.
        learners: the roles that train; the channels follow from them.
        rollout_fields: by learner, the rollout arrays that it needs.
        mistakes: where to note them.
    """
    if not isinstance(table, Mapping):
        mistakes.add(("channels",), f"expected a table, got {show(table)}")
        return {}
    channels = channels_of(learners)
    experience = {experience_of(learner) for learner in learners}
    written: dict[str, dict[str, Any]] = {}
    bound: dict[str, tuple[str, Key]] = {}
    for name, (key, values) in flat_tables(table, CHANNELS).items():
        if name not in channels:
            mistakes.add(("channels", *key), "unknown channel", suggestion(name, channels))
            continue
        written[name] = read_table(CHANNEL, values, ("channels", *key), mistakes)
        if written[name]["endpoint"] is not None:
            _bind(name, written[name]["endpoint"], ("channels", *key, "endpoint"), bound, mistakes)
    return {
        name: _channel(spec, written.get(name, {}), learners, rollout_fields if name in experience else {})
        for name, spec in channels.items()
    }


def _channel(
    spec: ChannelSpec,
    written: Mapping[str, Any],
    learners: Sequence[str],
    rollout_fields: Mapping[str, tuple[str, ...]],
) -> ChannelPlan:
    given = {key: value for key, value in written.items() if value is not None}
    return ChannelPlan(
        pattern=spec.pattern,
        endpoint=given.get("endpoint"),
        binds=spec.binds,
        connects=tuple(role for role in roles_of(learners) if role != spec.binds and end_of(role, spec)),
        kinds=spec.kinds,
        high_water_mark=given.get("high_water_mark", spec.high_water_mark),
        socket_buffer_bytes=given.get("socket_buffer_bytes", spec.socket_buffer_bytes),
        fields=rollout_fields.get(spec.binds, ()),
    )


def _bind(name: str, endpoint: str, key: Key, bound: dict[str, tuple[str, Key]], mistakes: Mistakes) -> None:
    try:
        same = check_endpoint(endpoint)
    except Unfit as unfit:
        mistakes.add(key, unfit.problem, unfit.hint)
        return
    if same in bound:
        other, other_key = bound[same]
        problem = f"{endpoint} is bound for {name} and for {other}, at {mistakes.places.of(other_key)}"
        mistakes.add(key, problem, "give one of them another endpoint")
    bound.setdefault(same, (name, key))


def check_endpoint(endpoint: str) -> str:
    """The endpoint in a canonical form, so that equal endpoints compare equal.

    Raises:
        Unfit: it is malformed, too long for a unix socket, or reachable from other machines.
    """
    if endpoint.startswith("ipc://"):
        return _check_ipc(endpoint)
    match = _TCP.fullmatch(endpoint)
    if match is None:
        raise Unfit(f"{show(endpoint)} is no endpoint; expected {_FORMS}")
    host, port = match["host"], int(match["port"])
    if not 1 <= port <= 65535:
        raise Unfit(f"{show(endpoint)}: the port is from 1 to 65535, so that every process knows it")
    if not is_loopback(host):
        problem = "reaches beyond this machine: CURVE keys are needed, and come with several machines"
        raise Unfit(f"{show(endpoint)} {problem}", f"write tcp://127.0.0.1:{port}")
    return f"tcp://{'127.0.0.1' if host == 'localhost' else host}:{port}"


def _check_ipc(endpoint: str) -> str:
    path = endpoint.removeprefix("ipc://")
    size = len(path.encode())
    if not path.startswith("/") or path.endswith("/"):
        raise Unfit(f"{show(endpoint)} is no absolute path of a socket; expected {_FORMS}")
    if size > MAX_IPC_BYTES:
        raise Unfit(
            f"the path has {size} bytes; a unix socket's has at most {MAX_IPC_BYTES}", "take a shorter one"
        )
    return "ipc://" + re.sub(r"/(\./|/)*", "/", path)
