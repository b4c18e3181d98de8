"""``spreeze bench``: this machine's limits and the system's rates beside them, measured in turn."""

from __future__ import annotations

import argparse
import importlib
import math
import os
import platform
import re
import signal
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from spreeze_zmq import algorithms, envs
from spreeze_zmq.base.errors import InputError, InvalidEnvironment
from spreeze_zmq.base.files import check_output, output, write_json
from spreeze_zmq.base.provenance import properties
from spreeze_zmq.base.schema import suggestion
from spreeze_zmq.base.trust import make_importable
from spreeze_zmq.commands.arguments import add_json_file
from spreeze_zmq.commands.bench.figures import Job, Section, number
from spreeze_zmq.plan.devices import device_problem, num_cuda_devices, resolve_device, torch_has_cuda

WIDTH = 100
DEVICE = re.compile(r"cpu|cuda(:\d+)?")
#: In order of measurement; each is a module of this package with ``measure(job) -> Section``.
SECTIONS = ("sampler", "channels", "learner", "replay", "start")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "sections",
        nargs="*",
        metavar="SECTION",
        help="sampler: environments and a whole sampler beside the bare physics; channels: what they move "
        "beside bare pyzmq; learner: updates beside matrix products; replay: what it stores and draws beside "
        "bare copies; start: from Enter to the first update, beside importing torch (default: all, a minute "
        "and a half)",
    )
    parser.add_argument(
        "--env",
        default="HalfCheetah-v5",
        metavar="ID",
        help="the environment, whose sizes learner and replay take too (default: %(default)s)",
    )
    parser.add_argument(
        "--algorithm",
        metavar="NAME",
        help="whose policy acts and whose updates are measured (default: sac, or dqn where actions are "
        "discrete, and one line of each shipped one)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=8.0,
        metavar="N",
        help="how long each section measures, besides its start; small numbers take longer than they say "
        "(default: %(default)g)",
    )
    parser.add_argument(
        "--device",
        default="cpu",
        metavar="DEVICE",
        help="of learner and replay: cpu, cuda or cuda:1 (default: %(default)s)",
    )
    add_json_file(parser)


def main(arguments: argparse.Namespace) -> int:
    """Measure the requested sections and print each as soon as it is done.

    Raises:
        InputError: an unknown section, algorithm or environment, a senseless time, a device that is not
            there, a file that cannot be written.
    """
    names = list(dict.fromkeys(arguments.sections)) or list(SECTIONS)
    for name in names:
        if name not in SECTIONS:
            raise InputError(f"there is no section {name!r} ({suggestion(name, SECTIONS)})")
    sections = []
    with ending_on_sigterm():
        job = checked_job(arguments)
        about = machine()
        print(machine_line(about))
        for name in names:
            section = importlib.import_module(f"spreeze_zmq.commands.bench.{name}")
            sections.append(section.measure(job))
            print("\n" + table(sections[-1]), flush=True)
    print("\nratio: the median over neighbouring turns of what we reach to the limit")
    if arguments.json:
        write_json(arguments.json, {"machine": about, "figures": plain_figures(sections)}, output)
    return 0


def checked_job(arguments: argparse.Namespace) -> Job:
    """The job of a command line, checked before anything is measured.

    Raises:
        InputError: it cannot be measured or written; one line.
    """
    seconds, path, device = arguments.seconds, arguments.json, arguments.device
    if not (math.isfinite(seconds) and seconds > 0):
        raise InputError(f"--seconds {seconds:g}: a number of seconds above 0 is expected")
    if DEVICE.fullmatch(device) is None:
        raise InputError(f"--device {device}: expected cpu, cuda or cuda:1")
    if problem := device_problem(device, num_cuda_devices(), torch_has_cuda()):
        raise InputError(f"--device {problem}; without it the CPU is measured")
    if path is not None:
        check_output(path)
    make_importable(Path.cwd())
    env_id = arguments.env
    try:
        spec = envs.probe(env_id)
        algorithm = arguments.algorithm or ("sac" if spec.action_kind == "box" else "dqn")
        kind = algorithms.get(algorithm)
        algorithms.check(kind, kind.Options(), spec)
    except InvalidEnvironment as error:
        text = str(error)
        raise InputError("--env " + (text if text.startswith(env_id) else f"{env_id}: {text}")) from None
    except InputError as error:
        raise InputError(f"--algorithm {arguments.algorithm}: {error}") from None
    # torch selects a device only by its number: "cuda" becomes "cuda:0".
    device = resolve_device("critic_learner", device, num_cuda_devices())
    return Job(env_id, algorithm, seconds, device, arguments.algorithm is None)


# --- output ---------------------------------------------------------------------------------------


def table(section: Section) -> str:
    """The figures of one section in lines of at most ``WIDTH`` columns."""
    lines = textwrap.wrap(f"{section.name}: {section.about}", WIDTH, subsequent_indent="  ")
    rows = [("", "limit", "reached", "", "ratio")] + [
        (one.name, number(one.limit), number(one.reached), one.unit, f"{one.ratio:.2f}  {one.note}")
        for one in section.figures
    ]
    name, limit, reached, unit, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
    for row in rows if section.figures else []:
        numbers = f"{row[1]:>{limit}}  {row[2]:>{reached}}"
        lines.append(f"  {row[0]:<{name}}  {numbers}  {row[3]:<{unit}}  {row[4]}".rstrip())
    return "\n".join(lines)


def plain_figures(sections: list[Section]) -> list[dict[str, Any]]:
    return [{"section": section.name, **asdict(figure)} for section in sections for figure in section.figures]


def machine() -> dict[str, Any]:
    """The properties of the machine that the figures depend on."""
    about = properties()
    versions = {"python": platform.python_version(), **about.pop("packages"), "pyzmq": version("pyzmq")}
    system = f"{platform.system()} {platform.machine()}"
    return {**about, "load_before": os.getloadavg()[0], "system": system, "versions": versions}


def machine_line(machine: dict[str, Any]) -> str:
    """The machine in words, with a warning where other programs load it, which changes every rate."""
    cores, load = machine["cores"], machine["load_before"]
    parts = [machine["cpu"], f"{cores} core{'s' if cores != 1 else ''}", *machine["gpus"], machine["system"]]
    installed = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    lines = textwrap.wrap(f"{', '.join(parts)}; {installed}", WIDTH, subsequent_indent="  ")
    if load > 0.5:
        lines.append(
            f"  load average {load:.1f} before the start: something else runs here, which moves the rates"
        )
    return "\n".join(lines)


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """A context in which SIGTERM raises an exception, as Ctrl-C does, so that everything is cleaned up."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
