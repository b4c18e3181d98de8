"""``spreeze bench``: this machine's limits beside what we reach of them, measured in turn."""

from __future__ import annotations

import argparse
import math
import os
import platform
import re
import signal
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import spreeze_zmq
from spreeze_zmq import algorithms, envs
from spreeze_zmq.bench.figures import Figure, Section, number
from spreeze_zmq.errors import InputError, InvalidEnvironment
from spreeze_zmq.metrics import write_json
from spreeze_zmq.topology.mistakes import suggestion
from spreeze_zmq.topology.resolve import (
    available_cores,
    device_problem,
    num_cuda_devices,
    torch_has_cuda,
)

WIDTH = 100
DEVICE = re.compile(r"cpu|cuda(:\d+)?")
#: The packages whose speed is measured with ours.
PACKAGES = ("numpy", "torch", "mujoco", "gymnasium", "envpool", "pyzmq")
#: The channels' measurement warms up and starts a process for every turn: so much of the time is its own.
CHANNELS_SHARE = 0.4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "sections",
        nargs="*",
        metavar="SECTION",
        help="sampler: environments and a whole sampler beside the bare physics; channels: what they move "
        "beside bare pyzmq; learner: updates beside matrix products (default: these, half a minute); envs: "
        "batches of environments on all cores beside EnvPool and Gymnasium (minutes)",
    )
    parser.add_argument(
        "--env",
        default="HalfCheetah-v5",
        metavar="ID",
        help="the sampler's environment, whose sizes the learner takes too (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=8.0,
        metavar="N",
        help="how long each section measures, besides its start; the channels take at least 10 s "
        "(default: %(default)g)",
    )
    parser.add_argument(
        "--device",
        default="cpu",
        metavar="DEVICE",
        help="where the learner updates: cpu, cuda or cuda:1 (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the same figures to FILE as well")


def main(arguments: argparse.Namespace) -> int:
    """Measure the sections that were asked for and print each as soon as it is there.

    Raises:
        InputError: an unknown section or environment, a senseless time, a file that cannot be written.
    """
    names = list(dict.fromkeys(arguments.sections)) or [name for name in SECTIONS if name != "envs"]
    check(names, arguments.env, arguments.seconds, arguments.json, arguments.device)
    machine = describe_machine()
    print(machine_line(machine))
    sections = []
    with ending_on_sigterm():
        for name in names:
            sections.append(SECTIONS[name](arguments.env, arguments.seconds, arguments.device))
            print("\n" + table(sections[-1]), flush=True)
    print("\nratio: the median over neighbouring turns of what we reach to the limit")
    if arguments.json:
        write_json(arguments.json, {"machine": machine, "figures": plain_figures(sections)})
    return 0


def check(names: list[str], env_id: str, seconds: float, path: Path | None, device: str = "cpu") -> None:
    """Refuse what cannot be measured or written, before anything is measured.

    Raises:
        InputError: one clear line.
    """
    for name in names:
        if name not in SECTIONS:
            raise InputError(f"there is no section {name!r} ({suggestion(name, SECTIONS)})")
    if not (math.isfinite(seconds) and seconds > 0):
        raise InputError(f"--seconds {seconds:g}: a number of seconds above 0 is expected")
    if DEVICE.fullmatch(device) is None:
        raise InputError(f"--device {device}: expected cpu, cuda or cuda:1")
    if problem := device_problem(device, num_cuda_devices(), torch_has_cuda()):
        raise InputError(f"--device {problem}; without it the CPU is measured")
    if path is not None and (path.is_dir() or not os.access(path.absolute().parent, os.W_OK)):
        raise InputError(f"--json {path}: no file can be written there")
    try:
        sac = algorithms.get("sac")
        sac.check(envs.probe(env_id), sac.Options())
    except InvalidEnvironment as error:
        text = str(error)
        raise InputError("--env " + (text if text.startswith(env_id) else f"{env_id}: {text}")) from None


# --- the sections; what each needs is imported when it is asked for ------------------------------


def measure_sampler(env_id: str, seconds: float, device: str) -> Section:
    """Environments and a whole sampler, which needs no device."""
    from spreeze_zmq.bench import sampler as bench_sampler

    return bench_sampler.measure(env_id, seconds)


def measure_channels(env_id: str, seconds: float, device: str) -> Section:
    """Messages of several sizes; environment and device play no part."""
    from spreeze_zmq.bench import channels as bench_channels

    sizes = bench_channels.SIZES
    rows = bench_channels.measure(sizes, CHANNELS_SHARE * seconds / len(sizes))
    return channels_section(rows)


def measure_learner(env_id: str, seconds: float, device: str) -> Section:
    """Updates of both halves on ``device``."""
    from spreeze_zmq.bench import learner as bench_learner

    return bench_learner.measure(env_id, seconds, device=device)


def measure_envs(env_id: str, seconds: float, device: str) -> Section:
    """Tasks and scenarios of its own; environment and device play no part."""
    from spreeze_zmq.bench import envs as bench_envs

    return bench_envs.measure(seconds)


#: In the order in which they are measured.
SECTIONS: dict[str, Callable[[str, float, str], Section]] = {
    "sampler": measure_sampler,
    "channels": measure_channels,
    "learner": measure_learner,
    "envs": measure_envs,
}


def channels_section(rows: Any) -> Section:
    """The rows of ``bench_channels`` as figures."""
    figures = []
    for row in rows:
        size = row.message_bytes
        name = f"{size >> 20} MB messages" if size >= 1 << 20 else f"{size >> 10} KB messages"
        figure = Figure(name, row.bare_per_s, row.channel_per_s, "messages/s", row.ratio)
        details = {
            "message_bytes": size,
            "limit_gb_per_s": row.bare_gb_per_s,
            "reached_gb_per_s": row.channel_gb_per_s,
        }
        note = f"{row.channel_gb_per_s:.2f} of {row.bare_gb_per_s:.2f} GB/s"
        figures.append(replace(figure, note=note, details=details))
    return Section("channels", "push to pull between two processes over ipc; limit: bare pyzmq", figures)


# --- what is printed and written ------------------------------------------------------------------


def table(section: Section) -> str:
    """The figures of one section in lines of at most ``WIDTH`` columns."""
    lines = textwrap.wrap(f"{section.name}: {section.about}", WIDTH, subsequent_indent="  ")
    lines.append(f"  {'':25}{'limit':>10}{'reached':>11}  {'':15}{'ratio':>6}")
    for figure in section.figures:
        numbers = f"{number(figure.limit):>10}{number(figure.reached):>11}"
        line = f"  {figure.name:<25}{numbers}  {figure.unit:<15}{figure.ratio:6.2f}  {figure.note}"
        lines.append(line.rstrip())
    return "\n".join(lines)


def plain_figures(sections: list[Section]) -> list[dict[str, Any]]:
    """The figures as JSON holds them."""
    return [{"section": section.name, **asdict(figure)} for section in sections for figure in section.figures]


def describe_machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "cpu": cpu_model(),
        "cores": available_cores(),
        "load_before": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {
            "spreeze_zmq": spreeze_zmq.__version__,
            "python": platform.python_version(),
            **{name: package_version(name) for name in PACKAGES},
        },
    }


def machine_line(machine: dict[str, Any]) -> str:
    """The machine in words; a load that others make is mentioned, since it moves every rate."""
    cores, load = machine["cores"], machine["load_before"]
    text = f"{machine['cpu']}, {cores} core{'s' if cores != 1 else ''}, {machine['system']}; " + ", ".join(
        f"{name} {installed}" for name, installed in machine["versions"].items()
    )
    lines = textwrap.wrap(text, WIDTH, subsequent_indent="  ")
    if load > 0.5:
        lines.append(
            f"  load average {load:.1f} before the start: something else runs here, which moves the rates"
        )
    return "\n".join(lines)


def cpu_model() -> str:
    """As the kernel names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown CPU"


def package_version(name: str) -> str:
    """Of an installed package, without importing it."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """SIGTERM ends the bench as Ctrl-C does: by an exception, which clears everything up on its way."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
