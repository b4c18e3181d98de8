"""The kinds of message with their fields and arrays; sender and receiver both check against this table."""

from __future__ import annotations

from spreeze_zmq.base.rollout import ARRAY_FIELDS, MAX_RANK
from spreeze_zmq.wire.consistency import (
    check_critic,
    check_episodes,
    check_fused,
    check_model,
    check_policy,
    check_rollout,
)
from spreeze_zmq.wire.fields import MAX_COUNT, ArraySpec, FieldSpec, KindSpec

#: The greatest values of numbers that size something where they are received; other counts only count.
_MOST = {"PROCESSES": 100_000, "CORES": 4096, "FILE": 1 << 40}


def _fields(text: str) -> dict[str, FieldSpec]:
    """Fields from ``NAME: TYPE``, with commas between them; ``?`` after a type makes its field optional.
    ``count<=PROCESSES`` has a bound: a number that sizes something at its receiver.
    """
    fields = {}
    for name, kind in (pair.split(": ") for pair in text.split(", ")):
        plain, _, most = kind.removesuffix("?").partition("<=")
        bound = _MOST[most] if most else MAX_COUNT - 1
        fields[name] = FieldSpec(plain, not kind.endswith("?"), bound)
    return fields


_PARAMETERS = ArraySpec(("float32",), 1, 1)
_STATISTICS = ArraySpec(("float64",), 1, 1, required=False)
_REPORT = _fields(
    "role: text, name: text, pid: count, time_s: number, uptime_s: number, cpu_s: number, "
    "rss_bytes: count, clock_s: numbers, counters: numbers, gauges: numbers, pushed: counts?, "
    "taken: streams?, policy_lag: numbers?, publication: numbers?, device: numbers?, "
    "waiting_for: text?, refused: maps?"
)

#: Every kind of message, by name. PROTOCOL.md says what each field means and in what unit.
KINDS: dict[str, KindSpec] = {
    "rollout": KindSpec(
        _fields("produced: count, policy_version: count, num_steps: count, num_envs: count"),
        {name: ArraySpec(form.dtypes, *form.ranks, required=False) for name, form in ARRAY_FIELDS.items()},
        cross_check=check_rollout,
    ),
    "policy": KindSpec(
        _fields(
            "version: count, critic_updates: count, actor_updates: count, description: map, "
            "extras: numbers, collect_until: counts?, layout: text?"
        ),
        {
            "parameters": _PARAMETERS,
            "average": ArraySpec(("float32",), 1, 1, required=False),
            "auxiliary": ArraySpec(("float32",), 1, 1, required=False),
            "action_low": ArraySpec(("float32",), 1, 1, required=False),
            "action_high": ArraySpec(("float32",), 1, 1, required=False),
            "observation_mean": ArraySpec(("float32",), 1, MAX_RANK, required=False),
            "observation_std": ArraySpec(("float32",), 1, MAX_RANK, required=False),
        },
        retained=True,
        cross_check=check_policy,
    ),
    "critic": KindSpec(
        _fields(
            "version: count, critic_updates: count, env_steps: count, taken: counts?, "
            "policy_version: count?, reached: numbers?, layout: text?, trained: count?"
        ),
        {"parameters": _PARAMETERS},
        retained=True,
        cross_check=check_critic,
    ),
    "model": KindSpec(
        _fields(
            "group: count, part: text, layout: text, round: count, number: count, stepped: count, "
            "env_steps: count, trained: count, life: count?, reached: numbers?, shares: any?"
        ),
        {"change": _PARAMETERS, "statistics": _STATISTICS},
        cross_check=check_model,
    ),
    "fused": KindSpec(
        _fields("part: text, layout: text, round: count, numbers: counts, reached: numbers?, shares: any?"),
        {"parameters": _PARAMETERS, "statistics": _STATISTICS},
        retained=True,
        retained_by=("part",),
        cross_check=check_fused,
    ),
    "hello": KindSpec(_fields("role: text, name: text, pid: count, protocol: count, host: text")),
    "report": KindSpec(_REPORT, cumulative=True),
    "bye": KindSpec({**_REPORT, **_fields("reason: text")}),
    "episodes": KindSpec(
        {},
        {"returns": ArraySpec(("float32",), 1, 1), "lengths": ArraySpec(("int32",), 1, 1)},
        cross_check=check_episodes,
    ),
    "evaluation": KindSpec(
        _fields(
            "version: count, env_steps: count, mean_return: number, std_return: number, "
            "interval_low: number?, interval_high: number?, min: number, max: number, mean_length: number, "
            "min_length: count?, max_length: count?, num_episodes: count, num_truncated: count?, "
            "timed_out: flag?, num_failed: count?, seed: count?, info: numbers?, wall_s: number, "
            "confirmed: flag?, best: flag, rescored: count?, averaged: flag?, final: flag?"
        )
    ),
    "failure": KindSpec(
        _fields(
            "name: text, summary: text, traceback: text, count: count?, updates: count?, checkpoint: text?"
        )
    ),
    "part": KindSpec(_fields("folder: text, part: map, counts: numbers?")),
    "fusion": KindSpec(_fields("groups: rows")),
    "exited": KindSpec(_fields("name: text, how: text, restarting: flag, pid: count?")),
    "workers": KindSpec(_fields("role: text, count: count<=PROCESSES, reason: text")),
    "machine": KindSpec(
        _fields(
            "node: text, host: text, cores: count<=CORES, busy: number, memory_bytes: count, "
            "sent_bytes_per_s: number, received_bytes_per_s: number, most: count<=PROCESSES, "
            "samplers: count<=PROCESSES, processes: names, gone: flag"
        )
    ),
    "turned_away": KindSpec(_fields("refused: maps")),
    "stop_request": KindSpec(_fields("reason: text")),
    "request": KindSpec(_fields("who: text, what: text, option: text?, value: number?, text: text?")),
    "stopping": KindSpec(_fields("roles: names")),
    "status": KindSpec(
        _fields(
            "state: text?, t_s: number?, learners: names?, env_steps: count?, critic_updates: count?, "
            "actor_updates: count?, trained_transitions: count?, sampled_transitions: count?, "
            "core_s: number?, env_steps_per_s: number?, critic_updates_per_s: number?, "
            "actor_updates_per_s: number?, trained_transitions_per_s: number?, replay_ratio: map?, "
            "policy_lag: map?, publication: rows?, "
            "devices: rows?, samples: map?, workers: rows?, episodes: map?, evaluation: map?, stop: map?, "
            "processes: rows?, others: rows?, machines: rows?, groups: rows?, gauges: map?, "
            "reports_late_s: number?, experience: map?, machine: map?, findings: maps?, efficiency: any?, "
            "balance: map?, refusals: maps?, num_refused: count?, went_back: maps?, num_went_back: count?, "
            "num_failures: count?, num_sampler_failures: count?, failures: maps?, requests: maps?, "
            "values: numbers?"
        ),
        retained=True,
    ),
    "entry": KindSpec(_fields("topic: text, t_s: number, about: map"), retained=True, retained_by=("topic",)),
    "stop": KindSpec(_fields("roles: names, reason: text"), retained=True),
    "checkpoint": KindSpec(_fields("folder: text, env_steps: count?, at: count?")),
    "scale": KindSpec(_fields("role: text, count: count<=PROCESSES, reason: text, node: text?")),
    "set": KindSpec(
        _fields("role: text, option: text, value: any, reason: text?"),
        retained=True,
        retained_by=("role", "option"),
    ),
    "join": KindSpec(
        _fields(
            "host: text, cores: count<=CORES, samplers: count<=PROCESSES?, packages: map, before: text, "
            "owes: flag?"
        )
    ),
    "welcome": KindSpec(
        _fields("node: text, public: text, secret: text, server: text"),
        {"plan": ArraySpec(("uint8",), 1, 1), "bundle": ArraySpec(("uint8",), 1, 1)},
    ),
    "start": KindSpec(
        _fields(
            "name: text, nice: count, threads: count<=CORES, orphaned: count, policy_version: count?, "
            "again: flag?"
        )
    ),
    "signal": KindSpec(_fields("name: text, number: count")),
    "beat": KindSpec(
        _fields(
            "processes: rows?, busy: number?, memory_bytes: count?, sent_bytes_per_s: number?, "
            "received_bytes_per_s: number?, owes: flag?, leaving: flag?"
        )
    ),
    "ended": KindSpec(_fields("name: text, code: count?, signal: count?, log: text")),
    "want": KindSpec(_fields("about: text, what: text")),
    "given": KindSpec(_fields("about: text, failed: text?")),
    "piece": KindSpec(
        _fields("about: text, path: text, begin: count<=FILE, size: count<=FILE"),
        {"bytes": ArraySpec(("uint8",), 1, 1)},
    ),
    "taken": KindSpec(_fields("about: text, path: text, end: count")),
    "leave": KindSpec(_fields("code: count, reason: text")),
}
