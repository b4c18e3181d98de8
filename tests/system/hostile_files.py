"""Puts mutated policy files and run folders to the commands that read those of others.

    python -m tests.system.hostile_files RUN --count 1000

RUN is the folder of a run that has ended. Each copy has one file of it changed: bytes, values of JSON, sizes,
or what a name stands for. A command ends with 0, or with 2 and one line; without a hang, much memory, or any
byte that a terminal obeys.
"""

import argparse
import contextlib
import io
import json
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from spreeze_zmq.commands.spreeze import main as spreeze
from tests.system.besieged import MARK

#: What may stand anywhere in JSON.
ODD = [None, [], {}, "", 5, -1, 0, 1e308, 10**400, True, [[]], {"a": {}}, 2**53, float("nan"), float("inf")]
ODD += ["x" * 60_000, "\x1b]0;owned\x07\x1b[2J\r\nforged", "../../../etc/passwd", "a\0b", "/dev/zero"]
ODD += ["os:system", f"__import__('os').system('touch {MARK}')", f"$(touch {MARK})", [1] * 100_000]
NESTED = "[" * 100_000
#: A pickle that would execute something.
PICKLE = b"cos\nsystem\n(S'touch %s'\ntR." % str(MARK).encode()
OBEYED = ("\x1b", "\x07", "\x9b", "\r")
#: The commands, by what they are given: a policy file, a run's folder, a folder of runs.
OF_POLICIES = (["eval"], ["eval"], ["export"])
OF_RUNS = (["eval"], ["doctor"], ["compare"], ["runs"], ["export"])
FILES = ("run.json", "summary.json", "metrics.jsonl", "policy.safetensors")
#: CPU time of one command for a file that it refuses, and for one that it plays or exports; memory of any;
#: and the time after which it hangs.
MOST_S, LONGEST_S, MOST_BYTES, HANG_S = 2.0, 5.0, 150e6, 120


class Hang(BaseException):
    """A command did not end."""


def places(value, path=()):
    """The paths to everything in a JSON value."""
    yield path
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value[:50])
        for key, inner in items:
            yield from places(inner, (*path, key))


def changed(rng, value):
    """A JSON value with something else at one to three places."""
    for _ in range(rng.randrange(1, 4)):
        path = rng.choice([path for path in places(value) if path] or [()])
        if not path:
            return rng.choice(ODD)
        inner = value
        for key in path[:-1]:
            inner = inner[key]
        if rng.random() < 0.2 and isinstance(inner, dict):
            del inner[path[-1]]
        else:
            inner[path[-1]] = rng.choice(ODD)
    return value


def of_bytes(rng, content):
    """Bytes replaced, cut, doubled, or others altogether."""
    what, content = rng.randrange(6), bytearray(content)
    if what == 0:
        return bytes(content[: rng.randrange(len(content) + 1)])
    if what == 1:
        return rng.choice((b"", b"\0" * 4096, PICKLE, NESTED.encode(), rng.randbytes(5000)))
    if what == 2:
        return bytes(content * 2)
    for _ in range(rng.randrange(1, 20)):
        place = rng.randrange(len(content) + 1)
        content[place : place + rng.randrange(4)] = rng.randbytes(rng.randrange(4))
    return bytes(content)


def of_policy(rng, content):
    """A policy file with another header: values of its texts, which are JSON, and of its table of arrays."""
    size = struct.unpack("<Q", content[:8])[0]
    header, arrays = json.loads(content[8 : 8 + size]), content[8 + size :]
    about = header["__metadata__"]
    name = rng.choice([*about, ""])
    if not name:
        header = changed(rng, header)
    elif about[name][:1] in "[{":
        about[name] = json.dumps(changed(rng, json.loads(about[name])))
    else:
        about[name] = rng.choice((NESTED, "9" * 5000, "-1", "nan", "\x1b[2J", "3000000"))
    packed = json.dumps(header).encode()
    length = len(packed) if rng.random() < 0.95 else rng.choice((0, 2**63, len(packed) * 2, 1 << 30))
    return struct.pack("<Q", length) + packed + arrays


def of_json(rng, content):
    """A file of JSON, or of lines of it, with other values."""
    lines = (
        content.decode().splitlines() if content[:1] == b"{" and content.count(b"\n{") else [content.decode()]
    )
    number = rng.randrange(len(lines))
    lines[number] = json.dumps(changed(rng, json.loads(lines[number])))
    return "\n".join(lines).encode() + b"\n"


def spoil(rng, path):
    """Change one file, or what its name stands for; returns what was done."""
    content = path.read_bytes()
    what = rng.choices(
        ("bytes", "values", "fifo", "folder", "link", "sparse", "gone"), (4, 12, 1, 1, 1, 1, 1)
    )[0]
    if what == "bytes":
        path.write_bytes(of_bytes(rng, content))
    elif what == "values":
        policy = path.suffix == ".safetensors"
        path.write_bytes((of_policy if policy else of_json)(rng, content))
    elif what == "sparse":
        os.truncate(path, 6_000_000_000)
    else:
        path.unlink()
    if what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "link":
        path.symlink_to(rng.choice(("/dev/zero", "/dev/tty", path.name, "/proc/self/mem", "nowhere")))
    return f"{path.name} {what}"


def judged(words, what):
    """Run a command in this process; returns its code, and what is wrong with how it ended."""
    out, err, wrong = io.StringIO(), io.StringIO(), []

    def hang(*_):
        raise Hang

    signal.signal(signal.SIGALRM, hang)
    signal.alarm(HANG_S)
    began_s, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = spreeze(words)
    except SystemExit as stop:
        code = stop.code
    except Hang:
        code, wrong = -1, [f"hangs for {HANG_S} s"]
    except BaseException:
        code, wrong = -1, [traceback.format_exc()[-1500:]]
    finally:
        signal.alarm(0)
    spent_s = time.process_time() - began_s
    grown = 1000 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    said = out.getvalue() + err.getvalue()
    wrong += [f"exit code {code}: {said[:500]}"] if code not in (0, 1, 2) and not wrong else []
    wrong += [f"no line: {said[:500]}"] if code == 2 and err.getvalue().count("\n") != 1 else []
    wrong += [f"a terminal obeys {said!r:.300}"] if any(mark in said for mark in OBEYED) else []
    wrong += [f"{spent_s:.1f} s"] if spent_s > (MOST_S if code == 2 else LONGEST_S) else []
    wrong += [f"{grown / 1e6:.0f} MB"] if grown > MOST_BYTES else []
    wrong += ["it executed what it read"] if MARK.exists() else []
    return code, [f"{' '.join(words[:1])} ({what}): {each}" for each in wrong]


def more_of(command, place):
    """What a command is told besides: little work, and a place to write to."""
    return {"eval": ["--episodes", "3"], "export": ["--onnx", str(place / "policy.onnx")]}.get(command, [])


def main():
    """Print how the commands ended, and what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--count", type=int, default=100, help="of policy files, and of run folders")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng, ends, wrong, longest = random.Random(given.seed), Counter(), [], (0.0, "")
    MARK.unlink(missing_ok=True)
    for command in ("eval", "export"):  # what these import is no memory of a hostile file
        judged([command, str(given.run), *more_of(command, given.run)], "as it is")
    for number in range(2 * given.count):
        of_policies = number % 2
        with tempfile.TemporaryDirectory(prefix="hostile-") as place:
            folder = Path(place) / "run"
            folder.mkdir()
            for name in FILES:
                shutil.copy(given.run / name, folder)
            what = spoil(rng, folder / (FILES[-1] if of_policies else rng.choice(FILES)))
            command = rng.choice(OF_POLICIES if of_policies else OF_RUNS)
            target = folder / FILES[-1] if of_policies else folder.parent if command == ["runs"] else folder
            more = more_of(command[0], Path(place))
            began_s = time.process_time()  # whoever has few of the cores waits long for any command
            code, faults = judged([*command, str(target), *more], f"{given.seed}:{number} {what}")
            spent_s = round(time.process_time() - began_s, 1)
            longest = max(longest, (spent_s, f"{command[0]} ({number} {what}) {code}"))
        ends[f"{'policy' if of_policies else 'folder'} {command[0]} {code}"] += 1
        for fault in faults:
            print(fault, flush=True)
        wrong += faults
    print(json.dumps({"ends": dict(sorted(ends.items())), "longest_s": longest}, indent=1))
    print(f"{len(wrong)} wrong of {2 * given.count}; executed: {int(MARK.exists())}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
