"""Runs a component's process from its command line to its exit code."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, TextIO

from spreeze_zmq.algorithms.class_policy import loader_of_run
from spreeze_zmq.base.charset import printable, say
from spreeze_zmq.base.errors import (
    DiskFull,
    EnvironmentFailure,
    InputError,
    InvalidEnvironment,
    SpreezeError,
    in_one_line,
    place_of,
)
from spreeze_zmq.base.importing import marked
from spreeze_zmq.base.log_level import log_level
from spreeze_zmq.base.machine import allow_open_files
from spreeze_zmq.base.trust import make_importable, modules_folder
from spreeze_zmq.component.component import Component
from spreeze_zmq.plan import sizing
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.processes import python
from spreeze_zmq.plan.roles import ROLES
from spreeze_zmq.policy import register_class_loader
from spreeze_zmq.run.folder import SIGNALLED, RunFolder, write_plan
from spreeze_zmq.supervisor import standing
from spreeze_zmq.wire import channels

log = logging.getLogger("spreeze")

#: Time for environments to close, within the least ``stop_grace_s``.
CLOSE_S = 2.0


def run(role: str, main: Callable[[Component], None]) -> int:
    """Join the run named on the command line, call ``main(component)``, leave, and end the process.

    ``PROGRAM RUN [INDEX]`` joins a live run, named by its folder or run.json. Given a topology instead, the
    process creates the run's folder and endpoints itself and waits for peers.
    """
    try:
        log_to(sys.stderr)
    except InputError as error:
        say(f"{role}: {error}", file=sys.stderr)
        _leave(error.exit_code)
    standing.answer()
    with marked():  # as the launcher is, which has not started one that joins by hand
        _leave(live(role, main, sys.argv[1:], _heed_signals, leave=_leave))


def _leave(code: int) -> NoReturn:
    """End this process, whatever threads environments have left behind."""
    logging.shutdown()
    sys.stdout.flush()
    # A regular exit of an interpreter with torch takes 0.3 s.
    os._exit(code)


class Lines(logging.Formatter):
    """Lines with their time; what they quote of others moves no cursor and looks like no line of the log."""

    def format(self, record: logging.LogRecord) -> str:
        return re.sub(r"\n(?=\d{4}-)", "\n    ", printable(super().format(record)))


def log_to(stream: TextIO) -> None:
    """Write the lines of the log to ``stream``, with their time. Raises InputError, as ``log_level``."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Lines("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=log_level(), handlers=[handler])


def live(
    role: str,
    main: Callable[[Component], None],
    arguments: list[str],
    joined: Callable[[Component], None],
    leave: Callable[[int], object] = lambda code: None,
) -> int:
    """Run one component in this thread: join the run, call ``main``, leave; returns the exit code.

    Args:
        role: the component's role.
        main: its work.
        arguments: the command line, ``RUN [INDEX]``.
        joined: called with the component before ``main``.
        leave: ends the process with an exit code, if it may be ended while an environment is being closed.
    """
    component: Component | None = None
    allow_open_files()
    try:
        component, sockets = _join(role, arguments)
        joined(component)
        register_class_loader(loader_of_run(component.plan.run.algorithm))
        main(component)
        log.info("stopped: %s", component.stop_reason or "done")
        component.close(component.stop_reason or "done")
        if sockets is not None:
            sockets.remove()
        _close_environments(component, leave, 0)
    except Exception as problem:
        error = problem if component is None else _as_of_disk(problem, component)
        code = error.exit_code if isinstance(error, SpreezeError) else 1
        is_input = isinstance(error, InputError)
        if not is_input:
            log.error("%s failed\n%s", component.name if component else role, traceback.format_exc())
        try:
            if component is not None:
                component.close(f"failed: {type(error).__name__}: {error}")
        except Exception:  # the last figures of what is half built; the first error is the cause
            log.debug("no last report", exc_info=True)
        finally:
            if isinstance(error, SpreezeError):  # this line says what the user can mend, so it comes last
                with contextlib.suppress(OSError):  # the log's disk is full: the launcher finds that out
                    say(f"{role}: {error if is_input else str(error).splitlines()[0]}", file=sys.stderr)
            if component is not None:
                _close_environments(component, leave, code)
        return code
    return 0


def _as_of_disk(problem: Exception, component: Component) -> Exception:
    """That the run's disk is full, where that led to an error; else the error. Where an environment writes is
    not known.
    """
    is_own = isinstance(problem, EnvironmentFailure | InvalidEnvironment)
    if is_own or not component.folder.is_filled_by(problem):
        return problem
    return DiskFull(component.folder.path, elsewhere=component.handing.is_elsewhere)


def _close_environments(component: Component, leave: Callable[[int], object], code: int) -> None:
    """Call what is to be called at the end; if that takes longer than ``CLOSE_S``, the process leaves with an
    exit code. After a failure nothing is said of it, whose line is the last.
    """
    level = logging.DEBUG if code else logging.WARNING

    def give_up() -> None:
        log.log(level, "close() of an environment has not returned after %.0f s: it is left", CLOSE_S)
        leave(code)

    watch = threading.Timer(CLOSE_S, give_up)
    watch.daemon = True
    watch.start()
    for close in component.at_end:
        try:
            close()
        except BaseException as error:  # the run is over, and nothing depends on it any more
            log.log(level, "close() raised %s [%s]", in_one_line(error), place_of(error))
    watch.cancel()


def _heed_signals(component: Component) -> None:
    for number, why in SIGNALLED.items():
        signal.signal(number, lambda *_, why=why: component.stop(why))


def _join(role: str, arguments: list[str]) -> tuple[Component, channels.SocketFolder | None]:
    if not 1 <= len(arguments) <= 2 or (len(arguments) == 2 and not arguments[1].isdecimal()):
        raise InputError(
            f"usage: {role} RUN [INDEX]; RUN is the folder or run.json of a live run, "
            "or a topology to stand alone with"
        )
    index = int(arguments[1]) if len(arguments) == 2 else None
    run_file = RunFolder(Path(arguments[0])).run_file if Path(arguments[0]).is_dir() else Path(arguments[0])
    if run_file.suffix == ".json":
        plan = _with_own_options(Plan.read(run_file), role)
        make_importable(modules_folder(plan.topology_file))
        return Component(role, plan, index), None
    from spreeze_zmq.plan import topology  # a process of a live run reads no TOML

    plan = sizing.settle(topology.load(arguments[0], without=ROLES))  # there is no launcher
    plan, sockets = write_plan(plan, RunFolder.create(plan.name))
    joining = f"{python()} -m spreeze_zmq.components.ROLE {RunFolder(Path(plan.run_dir)).run_file}"
    log.info("standing alone; others join with: %s", joining)
    return Component(role, plan, index), sockets


def _with_own_options(plan: Plan, role: str) -> Plan:
    """The plan with this program's default for each option that the run's own component of the role, another
    program, does not have.
    """
    folder = Path(getattr(sys.modules["__main__"], "__file__", None) or "").resolve().parent
    component = plan.components[role]
    if folder == Path(component.folder).resolve() or not (folder / "component.toml").is_file():
        return plan
    from spreeze_zmq.plan.topology.component_file import read_component_file

    own = {option.name: option.default for option in read_component_file(folder).options}
    component = replace(component, options={**own, **component.options})
    return replace(plan, components={**plan.components, role: component})
