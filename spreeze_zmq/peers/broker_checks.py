"""The clauses of a broker: its status, the account, checkpoints, the end of a run, what it is asked for."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from spreeze_zmq.peers import clauses, every_role_checks
from spreeze_zmq.peers.broker_acts import ENOUGH, PUSHED, RECEIVED, SCORE, statuses
from spreeze_zmq.peers.clauses import Clause, expect
from spreeze_zmq.peers.peers import NotSeen, Peers
from spreeze_zmq.plan.roles import CONTROL, EVALUATOR, FEED, SAMPLER


def _beats(peers: Peers) -> str:
    found = peers.times("watched", "starved", "status", CONTROL)
    return clauses.regular(peers, [heard for heard in found if not heard.message.repeat], "statuses")


def _counts_what_it_publishes(peers: Peers) -> str:
    peers.reached("starved")
    for channel in (CONTROL, FEED):
        told = [h.message for h in peers.heard if h.channel == channel and not h.message.repeat]
        numbers = [message.sequence for message in told]
        holes = [before for before, after in pairwise(numbers) if after != before + 1]
        expect(not holes, f"on {channel} it runs {str(numbers[:8])[1:-1]} ...")
    return f"{len(peers.heard)} messages without a hole"


def _leaves_a_taken_path(peers: Peers) -> str:
    code = peers.note("usurper")
    return expect(code, "another one binds its endpoints" if code is None else f"exit code {code}")


def _shows_its_processes(peers: Peers) -> str:
    rows, pids = told(peers)["processes"], peers.note("pids")
    # The played processes report only while the judge runs.
    most_s = 2.0 + peers.paused_s(0.0, peers.times("told", "counted", "status", CONTROL)[-1].at_s)
    for name, pid in pids.items():
        row = rows.get(name, {})
        came = row.get("pid"), row.get("ready"), row.get("waiting_for", "")
        expect(
            came == (pid, True, ""), f"pid, ready, waiting_for of {name} are {came}, due {(pid, True, '')}"
        )
        late_s = row.get("silent_s", float("nan"))
        expect(0 <= late_s < most_s, f"silent_s of {name} is {late_s}, it reports twice a second")
    left = rows.keys() & (PUSHED.keys() - pids.keys())
    return expect(not left, f"{sorted(left)} has left" if left else f"{len(pids)} rows")


def _adds_up(peers: Peers) -> str:
    status, produced = told(peers), sum(PUSHED.values())
    due = {"env_steps": RECEIVED, "critic_updates": RECEIVED // 8, "trained_transitions": 4 * RECEIVED}
    came = {name: status.get(name) for name in due}
    expect(came == due, f"the counts are {came}, reported were {due}")
    samples = {name: status.get("samples", {}).get(name) for name in ("produced", "received")}
    due = {"produced": produced, "received": RECEIVED}
    return expect(samples == due, f"of samples {samples}, reported were {due}")


def told(peers: Peers) -> dict[str, Any]:
    """The last status before somebody lies."""
    peers.reached("counted")
    return dict(peers.between("told", "counted", "status", CONTROL)[-1].fields)


def _believes_no_liar(peers: Peers) -> str:
    peers.reached("unmoved")
    before, status = told(peers), {}
    for message in peers.between("lied", "unmoved", "status", CONTROL):
        status = dict(message.fields)
        for name in ("samples", "env_steps"):
            expect(status[name] == before[name], f"{name} was {before[name]} and is {status[name]}")
    expect("critic_learner-0" in status["processes"], "a sampler says that the critic-learner was killed")
    best = (status.get("evaluation") or {}).get("best") or SCORE
    expect(best["mean_return"] <= SCORE["mean_return"], "it takes a score from a sampler")
    return "two lies and two false accounts"


def _ends_at_its_limit(peers: Peers) -> str:
    stopped = peers.note("stopped").fields
    expect(not peers.note("too soon"), "it says stop before the last checkpoint is whole")
    return expect(
        stopped["roles"] == ["launcher"], f"the stop is for {stopped['roles']}: {stopped['reason']}"
    )


def _ends_as_asked(peers: Peers) -> str:
    roles = peers.note("stop").fields["roles"]
    return expect(roles == ["*"], f"without a launcher the stop is for {roles}")


def _completes_checkpoints(peers: Peers) -> str:
    early = peers.note("early")
    expect(not early, f"the manifest is there with {' and with '.join(early)}")
    if "manifest" not in peers.notes:
        raise NotSeen("it asked for the next checkpoint meanwhile")
    manifest = peers.notes["manifest"]
    names = [part["name"] for part in manifest["parts"]]
    due = [f"{role}.bin" for role in peers.plan.learning.learners]
    expect(sorted(names) == sorted(due), f"its parts are {names}, came {due}")
    count = manifest["state"].get("counts", {}).get("env_steps")
    return expect(
        manifest["format"] == 1 and count == RECEIVED, f"format {manifest['format']}, {count} steps"
    )


def _asks_for_checkpoints(peers: Peers) -> str:
    folders = peers.note("folders")
    expect(folders == sorted(set(folders)), f"the folders {folders} do not sort by their age")
    return folders[0]  # type: ignore[no-any-return]


def _passes_stopping_on(peers: Peers) -> str:
    stopped: set[str] = set()
    for turn, role in enumerate((SAMPLER, EVALUATOR), 1):
        stopped.add(role)
        roles, what = peers.note(f"passed on {turn}").fields["roles"], " and ".join(sorted(stopped))
        expect(stopped == set(roles), f"the launcher has stopped {what}, the stop is for {roles}")
    return f"for {what}"


def _goes_on(peers: Peers) -> str:
    before, after = peers.note("before"), peers.note("after")
    expect(after["t_s"] >= before["t_s"], f"t_s was {before['t_s']:.1f}, and is {after['t_s']:.1f}")
    produced = before["samples"]["produced"], after["samples"]["produced"]
    return expect(produced[0] == produced[1], f"{produced[1]} transitions produced, before it {produced[0]}")


def _sums_up(peers: Peers) -> str:
    summary, reason = peers.note("summary"), peers.note("stopped").fields["reason"]
    due = ("exit_reason", "wall_s", "env_steps", "samples", "best")
    missing = [name for name in due if name not in summary]
    expect(not missing, f"summary.json has no {', '.join(missing)}")
    expect(summary["exit_reason"] == reason, f"exit_reason is {summary['exit_reason']!r}, not {reason!r}")
    produced = summary["samples"].get("produced", 0)
    return expect(produced > ENOUGH, f"{produced} transitions produced, {summary['wall_s']:.1f} s")


def _writes_down(peers: Peers) -> str:
    entries = [m.fields for m in peers.between("begun", "counted", "entry", FEED)]
    topics = {entry["topic"] for entry in entries}
    due = {"hello", "evaluation", "workers", "status"}
    expect(due <= topics, f"no entry of {', '.join(sorted(due - topics))} on feed")
    found = next(entry["about"] for entry in entries if entry["topic"] == "evaluation")
    expect({name: found.get(name) for name in SCORE} == SCORE, f"the evaluation says {found}")
    file = peers.folder.metrics
    kinds = {json.loads(line)["kind"] for line in file.read_text().splitlines()} if file.exists() else set()
    return expect(due <= kinds, f"metrics.jsonl has {', '.join(sorted(kinds))}")


def _grants_requests(peers: Peers) -> str:
    option, value = peers.note("asked")
    message = peers.note("set").fields
    came = message["option"], message["value"]
    expect(came == (option, value), f"it sets {came}, was asked for {(option, value)}")
    words = {row.get("word") for status in statuses(peers, "begun") for row in status.get("refusals", ())}
    return expect("bad_request" in words, f"{option} is set; it refused {', '.join(sorted(words))}")


CLAUSES = (
    Clause("L1", "birth", every_role_checks.takes_its_name),
    Clause("L2", "birth", every_role_checks.holds_its_lock),
    Clause("L3", "birth", every_role_checks.leaves_a_taken_name),
    Clause("L4", "birth", every_role_checks.writes_its_pid),
    Clause("L5", "birth", clauses.exits_with_0),
    Clause("L5", "govern", clauses.exits_with_0),
    Clause("L8", "birth", every_role_checks.has_an_incarnation),
    Clause("L9", "govern", clauses.another_incarnation),
    Clause("L10", "birth", lambda peers: clauses.exits_with_2(peers, "format")),
    Clause("L14", "birth", clauses.leaves_no_child),
    Clause("C9", "birth", _leaves_a_taken_path),
    Clause("C10", "birth", lambda peers: clauses.repeats_its_latest(peers, "stop")),
    Clause("M2", "birth", _counts_what_it_publishes),
    Clause("M3", "birth", every_role_checks.keeps_the_format),
    Clause("M4", "birth", "garbage"),
    Clause("M5", "birth", "newer"),
    Clause("B1", "birth", _beats),
    Clause("B2", "govern", _shows_its_processes),
    Clause("B3", "govern", _adds_up),
    Clause("B4", "birth", _ends_as_asked),
    Clause("B4", "govern", _ends_at_its_limit),
    Clause("B5", "govern", _completes_checkpoints),
    Clause("B6", "govern", _asks_for_checkpoints),
    Clause("B7", "govern", _believes_no_liar),
    Clause("B8", "govern", _passes_stopping_on),
    Clause("B9", "govern", _goes_on),
    Clause("B10", "govern", _sums_up),
    Clause("B11", "govern", _writes_down),
    Clause("B12", "govern", _grants_requests),
)
