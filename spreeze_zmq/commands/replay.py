"""``spreeze replay FILE``: feed one process alone with a recording of ``spreeze-launch --record``."""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.importing import hand_down
from spreeze_zmq.base.trust import FILE, grant_of, make_importable, module_of, modules_folder
from spreeze_zmq.commands.evaluate import add_trust
from spreeze_zmq.evaluation.saved import own_modules
from spreeze_zmq.peers.outputs import Outputs
from spreeze_zmq.peers.playback import Pace, Playback, in_fixed_order
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.releases import other_releases
from spreeze_zmq.plan.roles import LEARNERS
from spreeze_zmq.plan.topology.component_file import find_component
from spreeze_zmq.run.folder import RunFolder, write_plan
from spreeze_zmq.supervisor.process import KEEP_FREED_MEMORY, with_threads
from spreeze_zmq.wire.channels import RecordingReader

#: Longest wait for a message of the shipped component; a COMMAND of the user's may take any time.
TIMEOUT_S = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("file", metavar="FILE", type=Path, help="RUN/recordings/PROCESS.recording")
    parser.epilog = (
        "After -- the COMMAND of the program to feed, as in -- python -m pdb -m "
        "spreeze_zmq.components.sampler; RUN_FILE and INDEX are added (default: the shipped component)."
    )
    parser.add_argument(
        "--pace",
        choices=("recorded", "full", "step"),
        help="feed with the recorded times, as fast as the process takes it, or one message at each Enter "
        "(default: full where the order is fixed, else recorded)",
    )
    parser.add_argument(
        "--by-hand", action="store_true", help="print the command, to be started in another terminal"
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=0.0,
        metavar="X",
        help="largest absolute and relative difference of numbers (default: 0, every bit is compared)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="S",
        help=f"longest wait for one message of the process (default: {TIMEOUT_S:g}; for ever with COMMAND)",
    )
    parser.add_argument(
        "--run-dir", metavar="DIR", help="the folder of the replay (default: runs/replay-...)"
    )
    add_trust(parser)


def main(arguments: argparse.Namespace) -> int:
    """Feed the process to its end and compare what it sends with the recording; returns 1 if it fails, or if
    they differ although the order is fixed.
    """
    recording = RecordingReader(arguments.file)
    plan = _plan_of(recording, arguments.trust)
    about = recording.about
    command = arguments.program or _shipped(plan, about["role"])
    fixed = in_fixed_order(plan, about["role"])
    pace: Pace = arguments.pace or ("full" if fixed else "recorded")
    folder = RunFolder.create(f"replay-{about['name']}", arguments.run_dir)
    plan, sockets = write_plan(plan, folder)
    words = [*command, str(folder.run_file), str(about["index"])]
    under_test = bool(arguments.program) or arguments.by_hand
    timeout_s = arguments.timeout or (math.inf if under_test else TIMEOUT_S)
    playback = Playback(recording, plan, pace, Outputs(arguments.tolerance), timeout_s)
    process = None
    try:
        _say(f"{about['name']} of {about['plan']['run_dir']}, replayed in {folder.shown}")
        if arguments.by_hand:
            _say(f"start it in another terminal: {shlex.join(words)}")
        else:
            process = _started(words, plan, about["role"], shares_terminal=pace != "step")
            playback.alive = lambda: process.poll() is None
        _heed_signals(playback, alone=process is None or pace == "step")
        playback.run()
        _see_off(playback, process, math.inf if under_test else plan.components[about["role"]].stop_grace_s)
    finally:
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        playback.close()
        sockets.remove()
    return _end(playback, None if process is None else process.returncode)


def _plan_of(recording: RecordingReader, trust: Sequence[str]) -> Plan:
    """The plan of a recording, with new endpoints in place of the recorded run's.

    The recording of a run that this user made imports what that run did. Any other may be a stranger's.

    Raises:
        InputError: the header holds no plan of this version, the plan lacks the process's role, or it names
            a module that is not trusted.
    """
    try:
        plan = Plan.from_json(json.dumps(recording.about["plan"]))
        plan.components[recording.about["role"]]
    except InputError as error:
        raise InputError(f"{recording.path}: {error}") from None
    except KeyError as error:
        raise InputError(f"{recording.path}: its header has no {error}") from None
    places = {name: replace(channel, endpoint=None) for name, channel in plan.channels.items()}
    grant = grant_of(recording.path.absolute().parent.parent)  # RUN/recordings/PROCESS.recording
    if grant.plan != recording.about["plan"]:
        grant = FILE
        plan = replace(plan, topology_file=str(Path.cwd() / Path(plan.topology_file).name))
    for what, name in (("an environment", plan.run.env), ("an algorithm", plan.run.algorithm)):
        if (module := module_of(name)) and module not in {*trust, *grant.modules}:
            raise grant.refusal(recording.path, what, module)
    grant.make_importable(trust)
    beside = modules_folder(plan.topology_file)
    make_importable(beside)
    hand_down(own_modules(plan), beside)
    return replace(plan, channels=places, recording={}, launcher=0)  # nobody plays it


def _shipped(plan: Plan, role: str) -> Sequence[str]:
    """The command of the shipped component. Never that of the file, which may come from a stranger."""
    use = plan.components[role].use
    folder = None if "/" in use else find_component(use, Path.cwd())
    if folder is None:
        raise InputError(f"{role} was {use}, which is not shipped: give its command after --")
    return [sys.executable, str(folder)]


def _started(
    words: Sequence[str], plan: Plan, role: str, *, shares_terminal: bool
) -> subprocess.Popen[bytes]:
    """Start the process with the environment variables that a launcher sets."""
    threads = with_threads(plan.components[role].threads)
    memory = KEEP_FREED_MEMORY if role in LEARNERS else {}
    environment = {**os.environ, **threads, **memory, "PYTHONUNBUFFERED": "1"}
    try:
        return subprocess.Popen(words, env=environment, stdin=None if shares_terminal else subprocess.DEVNULL)
    except OSError as error:
        raise InputError(f"{words[0]} cannot be started: {error.strerror}") from error


def _heed_signals(playback: Playback, *, alone: bool) -> None:
    """SIGTERM ends the playback, and so does Ctrl-C if ``alone``; else Ctrl-C is left to the process."""

    def end(*_: object) -> None:
        playback.interrupted = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end if alone else lambda *_: None)


def _see_off(playback: Playback, process: subprocess.Popen[bytes] | None, grace_s: float) -> None:
    """Wait for the process to end; SIGTERM after ``grace_s``, or at once if no message can stop it."""
    until_s = time.monotonic() + (grace_s if playback.hears_control else 0.0)
    while not playback.over or (process is not None and process.poll() is None):
        playback.pump(0.1)
        if playback.interrupted:
            return
        if process is not None and time.monotonic() > until_s:
            process.terminate()
            until_s = math.inf


def _end(playback: Playback, code: int | None) -> int:
    """Print the comparison; returns the exit code."""
    fed = f"{playback.num_fed} messages fed"
    left = f", {playback.num_left} not, since it ended before" if playback.num_left else ""
    torn = playback.recording.torn_bytes
    _say(f"{playback.name}: {fed}{left}" + (f"; the last {torn} bytes are torn" if torn else ""))
    for line in playback.outputs.lines():
        _say(line)
    others = other_releases(playback.recording.about["plan"].get("packages"))
    if others and not playback.outputs.equal:
        _say(f"it was recorded with other releases: {', '.join(others)}")
    _say(f"kept: {playback.kept.path}")
    if code:
        _say(f"{playback.name} ended with {code}")
    return int(bool(code) or playback.interrupted or (playback.fixed and not playback.outputs.equal))


def _say(line: str) -> None:
    say(line, flush=True)
