"""The channels of a run with the endpoints that the topology gives them, each bound by one process."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spreeze_zmq.base.endpoints import MAX_IPC_BYTES, is_address, is_loopback, read_keys
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.schema import Unfit, show, suggestion
from spreeze_zmq.plan.processes import ChannelPlan
from spreeze_zmq.plan.roles import CHANNELS, channels_of, experience_of
from spreeze_zmq.plan.topology.reference import CHANNEL
from spreeze_zmq.plan.topology.tables import Key, Mistakes, read_table

_TCP = re.compile(r"tcp://(?P<host>\[[^\]]*\]|[^:/]*):(?P<port>[0-9]{1,9})")
_FORMS = '"tcp://127.0.0.1:5555" or "ipc:///absolute/path"'


def read_channels(
    table: Any,
    learners: Sequence[str],
    rollout_fields: Mapping[str, tuple[str, ...]],
    mistakes: Mistakes,
    *,
    grouped: bool = False,
    named: Collection[str] = (),
) -> dict[str, ChannelPlan]:
    """The run's channels; notes unknown names, bad endpoints and endpoints that are bound twice.

    Args:
        table: ``[channels]`` as written.
        learners: the roles that train; the channels follow from them.
        rollout_fields: the rollout arrays that each learner needs.
        mistakes: takes the mistakes.
        grouped: the run has several groups.
        named: the roles that the topology names.
    """
    if not isinstance(table, Mapping):
        mistakes.add(("channels",), f"expected a table, got {show(table)}")
        return {}
    channels = channels_of(learners, grouped=grouped, named=named)
    for learner, fields in rollout_fields.items():
        name = experience_of(learner)
        channels[name] = replace(channels[name], fields=fields)
    bound: dict[str, tuple[str, Key]] = {}
    for name, (key, values) in _flat_tables(table, ("channels",)).items():
        if name not in channels:
            mistakes.add(key, "unknown channel", suggestion(name, channels))
            continue
        written = read_table(CHANNEL, values, key, mistakes)
        if written["endpoint"] is not None:
            _bind(name, written["endpoint"], (*key, "endpoint"), bound, mistakes)
        written["curve"] = _needs_keys(written, key, mistakes)
        given = {option: value for option, value in written.items() if value is not None}
        channels[name] = replace(channels[name].at(written["endpoint"]), **given)
    return channels


def _flat_tables(table: Mapping[str, Any], key: Key) -> dict[str, tuple[Key, Any]]:
    """Tables by channel name, which may contain dots, as ``name -> (key, value)``.

    ``[channels.experience.critic_learner]`` and ``[channels."experience.critic_learner"]`` are the same.
    """
    found: dict[str, tuple[Key, Any]] = {}
    for word, value in table.items():
        here = (*key, word)
        name = ".".join(here[1:])
        if isinstance(value, Mapping) and any(known.startswith(f"{name}.") for known in CHANNELS):
            found = {**_flat_tables(value, here), **found}
        else:
            found[name] = (here, value)
    return found


def _needs_keys(written: Mapping[str, Any], key: Key, mistakes: Mistakes) -> bool:
    """Whether a channel is encrypted; notes a forbidden choice, and keys that are needed and missing."""
    match = _TCP.fullmatch(written["endpoint"] or "")
    beyond = match is not None and is_address(match["host"]) and not is_loopback(match["host"])
    if beyond and written["curve"] is False:
        problem = "an endpoint beyond this machine is always encrypted"
        mistakes.add((*key, "curve"), problem, "leave it out")
        return True
    if match is None and written["curve"]:
        problem = "only a tcp endpoint is encrypted; an ipc one is in a folder that nobody else can enter"
        mistakes.add((*key, "curve"), problem, "leave it out")
    if beyond or (match is not None and written["curve"]):
        try:
            read_keys()
        except InputError as error:
            mistakes.add((*key, "endpoint"), f"CURVE keys are needed: {error}")
        return True
    return False


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
    """The endpoint in a canonical form, in which equal endpoints compare equal.

    Raises:
        Unfit: it is malformed, too long for a unix socket, or no peer can connect to its address.
    """
    if endpoint.startswith("ipc://"):
        return _check_ipc(endpoint)
    match = _TCP.fullmatch(endpoint)
    if match is None:
        raise Unfit(f"{show(endpoint)} is no endpoint; expected {_FORMS}")
    host, port = match["host"], int(match["port"])
    if not 1 <= port <= 65535:
        raise Unfit(f"{show(endpoint)}: the port is from 1 to 65535, so that every process knows it")
    if host.startswith("["):
        raise Unfit(f"{show(endpoint)} is IPv6; sockets here speak IPv4", f"write tcp://127.0.0.1:{port}")
    if not (is_loopback(host) or is_address(host)):
        problem = (
            "is no address that peers can connect to; beyond this machine IPv4 and CURVE keys are needed"
        )
        raise Unfit(f"{show(endpoint)} {problem}", f"write tcp://127.0.0.1:{port} for this machine alone")
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
