"""``spreeze conform ROLE -- COMMAND``: check one component, in any language, against PROTOCOL.md.

COMMAND is started as the launcher would start it, and every other process of the run is played over real
sockets. Each numbered clause of components/PROTOCOL.md that can be observed from outside is checked.
"""

from __future__ import annotations

import argparse
import html
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.files import check_output, output
from spreeze_zmq.commands import table
from spreeze_zmq.commands.arguments import add_set
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.roles import LEARNERS

MARKS = {"kept": "ok", "broken": "BROKEN", "not verified": "not verified"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("role", metavar="ROLE", help="the role of the program: sampler, ...")
    parser.add_argument("program", metavar="COMMAND", nargs="+", help="after --; RUN_FILE INDEX are appended")
    parser.add_argument("--topology", default="pendulum", metavar="T", help="the run that it joins")
    add_set(parser)
    parser.add_argument(
        "--tier", default="must", choices=("fast", "must", "should"), help="which clauses (default: must)"
    )
    parser.add_argument("--only", default="", metavar="X1,L2", help="only the acts that check these")
    parser.add_argument(
        "--patience",
        type=float,
        default=10.0,
        metavar="S",
        help="longest wait for what must come (default: 10)",
    )
    parser.add_argument("--html", metavar="FILE", help="write the same table as a page")


def main(arguments: argparse.Namespace) -> int:
    """Print a table of clauses; returns 0 if none is broken, else 1."""
    from spreeze_zmq import peers  # slow to import
    from spreeze_zmq.nn.native import library as native

    if arguments.role not in peers.ROLES:
        raise InputError(f"{arguments.role}: expected one of {', '.join(peers.ROLES)}")
    only = frozenset(filter(None, arguments.only.split(",")))
    unknown = only - {clause.number for clause in peers.clauses_of(arguments.role)}
    if unknown:
        raise InputError(f"--only {','.join(sorted(unknown))}: no clause of this number is checked")
    plan = topology.load(arguments.topology, [*shape(arguments), *arguments.set])
    if arguments.html:
        check_output(Path(arguments.html))
    if arguments.role in LEARNERS:
        native.prepare(lambda line: say(line, file=sys.stderr))
    began_s = time.monotonic()
    how = (arguments.tier, only, arguments.patience)
    results = list(peers.run(arguments.role, arguments.program, plan, *how))
    rows = [(r.clause.number, r.clause.tier, MARKS[r.verdict], r.clause.expected, r.seen) for r in results]
    table.show(("clause", "tier", "", "expected", "seen"), rows, wrapping=2)
    counts = Counter(result.verdict for result in results)
    words = ", ".join(f"{counts[verdict]} {verdict}" for verdict in MARKS)
    took_s = time.monotonic() - began_s
    say(f"{arguments.role}: {words}, in {took_s:.1f} s; the clauses stand in components/PROTOCOL.md")
    if arguments.html:
        with output(Path(arguments.html)) as file:
            file.write_text(page(arguments, rows, words), encoding="utf-8")
    return 1 if counts["broken"] else 0


def shape(arguments: argparse.Namespace) -> list[str]:
    """Overrides for small rollouts, if the sampler has options for that, and with nothing to measure."""
    plan = topology.load(arguments.topology, arguments.set)
    options, small = plan.components["sampler"].options, {"envs": 4, "rollout_steps": 24}
    chosen = [f"components.sampler.{name}={value}" for name, value in small.items() if name in options]
    return chosen + [f"{key}={1 if key.endswith('threads') else 256}" for key in plan.to_measure]


def page(arguments: argparse.Namespace, rows: Sequence[Sequence[str]], words: str) -> str:
    """The report as one HTML file."""
    cells = "\n".join(
        f"<tr class={'bad' if row[2] == 'BROKEN' else 'good' if row[2] == 'ok' else 'none'}>"
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
        + "</tr>"
        for row in rows
    )
    title = html.escape(f"{arguments.role}: {' '.join(arguments.program)}")
    return f"""<!doctype html><meta charset="utf-8"><title>{title}</title>
<style>body {{ font: 15px/1.4 sans-serif; margin: 2em auto; max-width: 70em }} td, th {{ text-align: left;
padding: .3em .8em; border-bottom: 1px solid #ddd; vertical-align: top }} .bad {{ background: #fdd }}
.none {{ color: #777 }}</style>
<h1>{title}</h1><p>{html.escape(words)}; clauses of components/PROTOCOL.md, tier {arguments.tier},
topology {html.escape(arguments.topology)}.</p>
<table><tr><th>clause<th>tier<th><th>expected<th>seen</tr>
{cells}
</table>
"""
