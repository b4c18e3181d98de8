"""The plan: a topology with every default filled in; run.json carries it to components in any language."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.errors import ChannelError, InputError
from spreeze_zmq.plan.endpoints import MAX_IPC_BYTES

#: The version of run.json; programs refuse any other.
FORMAT = 2


@dataclass(frozen=True)
class StopPlan:
    """When the run ends by itself: at the first of these; ``None`` is no limit.

    Attributes:
        mean_return: of fresh episodes of the policy that is kept; called ``return`` in files.
        env_steps: transitions sampled.
        trained_transitions: transitions trained on: ``batch_size`` per critic update.
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
    """The ratio of consumption to production, and how closely both sides are tied.

    Attributes:
        mode: the topology's name for the numbers below; for display only.
        replay_ratio: transitions trained on per transition sampled.
        max_policy_lag: versions that a rollout's policy may be behind; ``None`` is no limit.
        slack_rollouts: rollouts by which production may run ahead of the ratio.
        publish_every_updates: critic updates between two publications; 0 publishes by the clock.
        in_order: rollouts and versions are taken in a fixed order.
        rollout_transitions: transitions of one rollout; 0 where the sampler's options do not say.
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
    """The facts about the run's algorithm that processes need without importing it.

    Attributes:
        learners: the roles that train, in the order of ``plan.roles.LEARNERS``.
        on_policy: train on each round of rollouts for ``epochs``, then discard it; else keep a replay.
        batch_size: transitions per update; 0 until it is measured.
        learning_starts: transitions received before the first update.
        policy_delay: critic updates per policy update.
        epochs: passes over each round; 0 where the replay ratio decides.
    """

    learners: tuple[str, ...]
    on_policy: bool
    batch_size: int
    learning_starts: int
    policy_delay: int
    epochs: int


@dataclass(frozen=True)
class Count:
    """Number of processes of a role: at the start, and the range in which it may change."""

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
        launched: the launcher starts it; else it is started by hand.
        on_demand: it is started when somebody connects to the port that the launcher holds open for it.
        count: number of processes.
        threads: threads of numerical libraries in each process.
        nice: scheduling priority, 0 normal to 19 lowest.
        max_restarts: restarts within ``restart_window_s``; one more crash stops the run.
        restart_window_s: see ``max_restarts``.
        start_timeout_s: deadline from start to ready.
        stop_grace_s: from the request to stop until SIGKILL.
        channels: its end of each channel that it uses: ``push``, ``pull``, ``pub`` or ``sub``.
        options: the component's own.
    """

    use: str
    folder: str
    command: tuple[str, ...]
    launched: bool
    on_demand: bool
    count: Count
    threads: int
    nice: int
    max_restarts: int
    restart_window_s: float
    start_timeout_s: float
    stop_grace_s: float
    channels: dict[str, str]
    options: dict[str, Any]

    def by_hand(self, run_file: Path) -> str:
        """The shell's line that starts one more process of this role."""
        if "/" not in self.use:  # shipped
            return f"{python()} -m spreeze_zmq.components.{self.use} {shlex.quote(str(run_file))}"
        return shlex.join((*self.command, str(run_file)))


def python() -> str:
    """What a shell calls the interpreter that runs this: its name alone where that is the one on the path."""
    name = Path(sys.executable).name
    return name if shutil.which(name) == sys.executable else shlex.quote(sys.executable)


@dataclass(frozen=True)
class ChannelPlan:
    """One channel of the run; for the fields not named here see ``plan.roles.ChannelSpec``.

    Attributes:
        endpoint: of the process that binds it; ``None`` until the plan is placed.
        fields: the arrays of a rollout on an experience channel; empty on every other channel.
    """

    pattern: str
    endpoint: str | None
    binds: str
    connects: tuple[str, ...]
    kinds: tuple[str, ...]
    high_water_mark: int
    socket_buffer_bytes: int
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """One run, every default filled in.

    Attributes:
        name: the prefix of the run folder's name.
        topology_file: the file that it was read from, absolute.
        run: what is trained, and until when.
        environment: spaces and limits of ``run.env``, probed.
        algorithm: ``name`` and every option of the algorithm.
        learning: the facts about the algorithm that processes need.
        balance: the ratio and its bounds.
        components: by role, in the order of starting.
        channels: by name.
        to_measure: keys whose values are measured on this machine; empty in run.json.
        measured: the measured values and their reasons; see ``autoscale.sizing``.
        pinning: ``cpus`` of each pinned process or role, and the ``reason``; empty until launched.
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
        """This plan in its folders; a channel without an endpoint gets an ipc one in ``socket_dir``.

        Raises:
            ChannelError: an endpoint's path is longer than unix sockets allow.
        """
        socket_dir = socket_dir.absolute()
        channels = {}
        for name, channel in self.channels.items():
            path = socket_dir / name
            if channel.endpoint is None and len(bytes(path)) > MAX_IPC_BYTES:
                raise ChannelError(f"{path}: a unix socket's path has at most {MAX_IPC_BYTES} bytes")
            channels[name] = replace(channel, endpoint=channel.endpoint or f"ipc://{path}")
        return replace(self, run_dir=str(run_dir.absolute()), socket_dir=str(socket_dir), channels=channels)

    def resuming(self, checkpoint: Path) -> Plan:
        """This plan, resumed from a run's folder or checkpoint."""
        return replace(self, run=replace(self.run, resume_from=str(checkpoint.absolute())))

    def to_json(self) -> str:
        """The text of run.json."""
        return json.dumps({"format": FORMAT, **_plain(self)}, indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Inverse of :meth:`to_json`.

        Raises:
            InputError: the text is no plan, or has another format.
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


#: Field -> its name in files, where that is a Python keyword.
_WRITTEN = {"mean_return": "return"}


def _plain(value: Any) -> Any:
    """Dataclasses as JSON objects, recursively."""
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
    """A value of the annotated type ``kind`` from its JSON, recursively; ``place`` is for messages."""
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
