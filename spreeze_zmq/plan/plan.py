"""The plan: a topology with every default filled in, as run.json carries it to components in any language."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.errors import ChannelError, InputError
from spreeze_zmq.plan.endpoints import MAX_IPC_BYTES

#: The version of run.json; a program refuses another one.
FORMAT = 1


@dataclass(frozen=True)
class StopPlan:
    """When the run ends of itself, whichever comes first; ``None`` for never.

    Attributes:
        mean_return: an evaluation's mean return; ``return`` in files.
        env_steps: transitions sampled.
        trained_transitions: transitions trained on, ``batch_size`` for each critic update.
        minutes: wall time.
    """

    mean_return: float | None = None
    env_steps: int | None = None
    trained_transitions: int | None = None
    minutes: float | None = None


@dataclass(frozen=True)
class RunPlan:
    """What is trained, and until when."""

    env: str
    env_kwargs: dict[str, Any]
    randomize: dict[str, Any]
    algorithm: str
    seed: int
    stop: StopPlan
    checkpoint_minutes: float
    save_replay: bool
    resume_from: str | None = None


@dataclass(frozen=True)
class BalancePlan:
    """The stated ratio of consumption to production, and how closely both sides are tied.

    Attributes:
        mode: the name under which the topology asked for the numbers below; nothing else depends on it.
        replay_ratio: transitions trained on per transition sampled.
        max_policy_lag: versions that a rollout's policy may be behind; ``None`` for any.
        slack_rollouts: rollouts by which production may run ahead of the ratio.
        publish_every_updates: critic updates between two publications; 0 publishes by the clock.
        in_order: every rollout and version is taken in a fixed order.
        rollout_transitions: transitions of one rollout of a sampler; 0 where its program does not tell.
        pin: ``auto``, ``always`` or ``never``: whether learners get cores of their own.
    """

    mode: str
    replay_ratio: float
    max_policy_lag: int | None
    slack_rollouts: int
    publish_every_updates: int
    in_order: bool
    rollout_transitions: int
    pin: str


@dataclass(frozen=True)
class LearningPlan:
    """What the library must know of the run's algorithm and its options.

    Attributes:
        learners: the roles that train, in the order of ``plan.roles.LEARNERS``.
        on_policy: a round of rollouts is trained on for some epochs and thrown away; else transitions are
            kept in a replay.
        batch_size: transitions of one update; 0 until it is measured.
        learning_starts: transitions received before the first update.
        policy_delay: critic updates for each policy update.
        epochs: times that each transition is trained on; 0 where that follows from the replay ratio.
    """

    learners: tuple[str, ...]
    on_policy: bool
    batch_size: int
    learning_starts: int
    policy_delay: int
    epochs: int


@dataclass(frozen=True)
class Count:
    """How many processes a role has at the start, and within which range the number may move."""

    initial: int
    minimum: int
    maximum: int


@dataclass(frozen=True)
class ComponentPlan:
    """One role of the run.

    Attributes:
        use: the component's name, or path, as the topology wrote it.
        folder: its folder, absolute.
        command: program and arguments; the run file and the process's index are appended.
        launched: the launcher starts it; else its place is left free for one started by hand.
        count: processes.
        threads: threads of numerical libraries in each process.
        nice: scheduling priority, 0 normal to 19 lowest.
        max_restarts: crashes within ``restart_window_s`` that are mended before the run stops.
        restart_window_s: see ``max_restarts``.
        start_timeout_s: deadline from start to ready.
        stop_grace_s: from the request to stop until SIGKILL.
        channels: end of each channel that it uses: ``push``, ``pull``, ``pub`` or ``sub``.
        options: the component's own.
    """

    use: str
    folder: str
    command: tuple[str, ...]
    launched: bool
    count: Count
    threads: int
    nice: int
    max_restarts: int
    restart_window_s: float
    start_timeout_s: float
    stop_grace_s: float
    channels: dict[str, str]
    options: dict[str, Any]


@dataclass(frozen=True)
class ChannelPlan:
    """One channel of the run; see ``topology.table.ChannelSpec``.

    ``endpoint`` is ``None`` until the plan is placed; ``fields`` are the rollout's arrays that travel on a
    channel of experience, empty elsewhere. Where several processes pull, ``endpoint`` is the first one's and
    ``more_endpoints`` are the others', by their index.
    """

    pattern: str
    endpoint: str | None
    binds: str
    connects: tuple[str, ...]
    kinds: tuple[str, ...]
    high_water_mark: int
    socket_buffer_bytes: int
    fields: tuple[str, ...] = ()
    more_endpoints: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """One run, every default filled in.

    Attributes:
        name: what the run's folder is named after.
        topology_file: where it was read from, absolute.
        run: what is trained, and until when.
        environment: the spaces and limits that ``run.env`` turned out to have.
        algorithm: ``name`` and every option of the algorithm.
        learning: what follows from them for the processes.
        balance: the ratio and its bounds.
        components: by role, in the order of starting.
        channels: by name.
        to_measure: keys that the topology leaves to a measurement of the machine; none once ``sizing`` has
            settled them, so none in run.json.
        measured: what was measured instead, and what follows from it; see ``sizing.settle``.
        pinning: ``cpus`` of each process or role that is pinned, and the ``reason``; empty until launched.
        run_dir: the run's folder, absolute; empty until placed.
        socket_dir: the folder of ipc endpoints, absolute; empty until placed.
    """

    name: str
    topology_file: str
    run: RunPlan
    environment: EnvironmentSpec
    algorithm: dict[str, Any]
    learning: LearningPlan
    balance: BalancePlan
    components: dict[str, ComponentPlan]
    channels: dict[str, ChannelPlan]
    to_measure: tuple[str, ...] = ()
    measured: dict[str, Any] = field(default_factory=dict)
    pinning: dict[str, Any] = field(default_factory=dict)
    run_dir: str = ""
    socket_dir: str = ""

    def placed(self, run_dir: Path, socket_dir: Path) -> Plan:
        """This plan in its folders; endpoints that the topology left open are ipc ones in ``socket_dir``.

        Raises:
            ChannelError: an endpoint's path is longer than unix sockets allow.
        """
        socket_dir = socket_dir.absolute()
        channels = {}
        for name, channel in self.channels.items():
            path = socket_dir / name
            if channel.endpoint is None and len(bytes(path)) > MAX_IPC_BYTES:
                raise ChannelError(f"{path}: a unix socket's path has at most {MAX_IPC_BYTES} bytes")
            endpoint = channel.endpoint or f"ipc://{path}"
            more = tuple(f"{endpoint}-{index}" for index in range(1, self.num_pullers(name)))
            channels[name] = replace(channel, endpoint=endpoint, more_endpoints=more)
        return replace(self, run_dir=str(run_dir.absolute()), socket_dir=str(socket_dir), channels=channels)

    def num_pullers(self, channel: str) -> int:
        """How many processes bind an endpoint of this channel: all of a role that pulls, one that
        publishes.
        """
        binder = self.channels[channel].binds
        pulls = self.components[binder].channels.get(channel) == "pull"
        return self.components[binder].count.initial if pulls else 1

    def resuming(self, checkpoint: Path) -> Plan:
        """This plan going on from a run's folder or checkpoint."""
        return replace(self, run=replace(self.run, resume_from=str(checkpoint.absolute())))

    def to_json(self) -> str:
        """The text of run.json."""
        return json.dumps({"format": FORMAT, **_plain(self)}, indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The plan that ``to_json`` wrote.

        Raises:
            InputError: the text is no plan, or one of another format.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"not a run file: {error}") from None
        found = values.get("format") if isinstance(values, dict) else None
        if found != FORMAT:
            raise InputError(f"not a run file of format {FORMAT}: format is {found!r}")
        plan: Plan = _typed(cls, values, "run file")
        return plan

    @classmethod
    def read(cls, path: str | Path) -> Plan:
        """Read a run.json.

        Raises:
            InputError: it cannot be read or is no plan.
        """
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot be read: {error}") from None
        except InputError as error:
            raise InputError(f"{path}: {error}") from None


#: Field names that are no Python names, as files write them.
_WRITTEN = {"mean_return": "return"}


def _plain(value: Any) -> Any:
    """Dataclasses as tables that JSON takes."""
    if isinstance(value, EnvironmentSpec):
        return value.to_dict()
    if is_dataclass(value):
        return {
            _WRITTEN.get(item.name, item.name): _plain(getattr(value, item.name)) for item in fields(value)
        }
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _typed(kind: Any, value: Any, place: str) -> Any:
    """A value of the annotated type ``kind`` from its JSON; deep."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if kind is EnvironmentSpec:
        try:
            return EnvironmentSpec.from_dict(_expect(dict, value, place))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{place}: not as envs.EnvironmentSpec describes it: {error!r}") from None
    if is_dataclass(kind):
        return _dataclass_of(kind, value, place)
    if origin is UnionType:
        return None if value is None else _typed(arguments[0], value, place)
    if origin is tuple:
        return tuple(_typed(arguments[0], item, place) for item in _expect(list, value, place))
    if origin is dict:
        items = _expect(dict, value, place).items()
        return {name: _typed(arguments[1], item, f"{place}: {name}") for name, item in items}
    if kind is float and type(value) is int:
        return float(value)
    return _expect(kind, value, place)


def _dataclass_of(kind: Any, value: Any, place: str) -> Any:
    table = _expect(dict, value, place)
    arguments = {}
    for name, hint in get_type_hints(kind).items():
        written = _WRITTEN.get(name, name)
        if written not in table:
            raise InputError(f"{place}: {written} is missing")
        arguments[name] = _typed(hint, table[written], f"{place}: {written}")
    return kind(**arguments)


def _expect(kind: Any, value: Any, place: str) -> Any:
    if type(value) is not kind:
        raise InputError(f"{place}: {kind.__name__} was expected, got {value!r}")
    return value
