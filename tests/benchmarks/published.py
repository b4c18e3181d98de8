"""Our learning curves beside those that others publish as files: return over env steps and over transitions
trained on, and of ours over wall time and core-seconds, which nobody publishes.

    python tests/benchmarks/published.py runs/halfcheetah-... runs/hopper-... --out published.png
    python tests/benchmarks/published.py --task Hopper --task Ant          # of others alone, tables only

Ours are read from folders of runs, or of folders of several seeds, as ``spreeze compare`` reads them. The
others are those of ``published.toml``, downloaded once into the user's cache and checked by their sha256.
Without a network the returns at a few places in ``published.csv`` stand for those that the cache has not;
``--write-points`` writes that file again. Returns are what each says that its evaluations returned, of the
policy of that moment.
"""

import csv
import hashlib
import io
import re
import sys
import tomllib
import urllib.error
import urllib.request
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import four_axes
import numpy as np
import whole_runs

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.files import replacing
from spreeze_zmq.base.machine import cache_folder
from spreeze_zmq.commands.compare import evaluated_runs, grouped
from spreeze_zmq.run.curves import Curve

SOURCES = Path(__file__).with_name("published.toml")
POINTS = Path(__file__).with_name("published.csv")
TASKS = ("HalfCheetah", "Hopper", "Walker2d", "Ant", "Humanoid")
#: Env steps of the returns in ``published.csv``.
STEPS = (50_000, 100_000, 300_000, 500_000, 1_000_000)
#: Licences under which a few returns are kept in this repository.
FREE = ("MIT", "Apache-2.0")
TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Source:
    """An entry of ``published.toml``, where a comment describes each field."""

    who: str
    repo: str
    commit: str
    path: str
    sha256: str
    row: str
    licence: str
    trained: int | None = None

    @property
    def url(self):
        """The public address of the file."""
        return f"https://raw.githubusercontent.com/{self.repo}/{self.commit}/{self.path}"

    def lines(self, text):
        """The lines of the tasks in a file's text."""
        parse = zoo_rows if self.path.endswith(".md") else evaluations
        for env, seeds in parse(text, self.row).items():
            if env.rpartition("-v")[0] in TASKS:
                curves = [curve_of(points, self.trained) for points in seeds.values()]
                yield four_axes.line_of(self.who, env, curves)


def load(path=SOURCES):
    """The sources of a table."""
    return [Source(who, **entry) for who, entry in tomllib.loads(path.read_text()).items()]


def evaluations(text, row):
    """``{env: {seed: [(env steps, return), ...]}}`` of a CSV table with a line for each evaluation."""
    found = {}
    for line in csv.DictReader(io.StringIO(text)):
        if line["exp_name"] == row and line["metric"] == "avg_return":
            env = line["env_name"].replace("_", "-")
            point = float(line["env_step"]), float(line["value"])
            found.setdefault(env, {}).setdefault(line["seed"], []).append(point)
    return found


def zoo_rows(text, row):
    """The same of a table of rl-baselines3-zoo, which has one run of each algorithm and its last return."""
    size = {"k": 1e3, "M": 1e6}
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == row and (steps := re.fullmatch(r"(\d+)([kM])", cells[4])):
            found[cells[1]] = {"": [(float(steps[1]) * size[steps[2]], float(cells[2]))]}
    return found


def curve_of(points, trained):
    """One seed's points as a curve; ``trained``: transitions trained on for each env step, or None."""
    steps, returns = np.array(sorted(points)).T
    over = {} if trained is None else {"trained_transitions": trained * steps}
    return Curve({"env_steps": steps, **over}, returns)


def text_of(source, folder):
    """The text of a source's file, downloaded unless the cache has it.

    Raises:
        OSError: it cannot be downloaded.
        InputError: what came is another file.
    """
    path = folder / f"{source.sha256[:16]}-{Path(source.path).name}"
    if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == source.sha256:
        return path.read_text()
    with urllib.request.urlopen(source.url, timeout=TIMEOUT_S) as answer:
        content = answer.read()
    found = hashlib.sha256(content).hexdigest()
    if found != source.sha256:
        raise InputError(f"{source.url} has the sha256 {found}, {source.sha256} was expected")
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(path) as scratch:
        scratch.write_bytes(content)
    return content.decode()


def lines_of_others(sources, folder, text_of=text_of):
    """The lines of all sources: whole curves where their files can be had, else their points; says which."""
    points, lines, without = list(read_points(POINTS)), [], {}
    for source in sources:
        try:
            lines += source.lines(text_of(source, folder))
        except (OSError, InputError) as error:
            why = str(error.reason) if isinstance(error, urllib.error.URLError) else str(error)
            without.setdefault(why, []).append(source.who)
            lines += [line for line in points if line.who == source.who]
    for why, names in without.items():
        print(f"no whole curves of {', '.join(names)} ({why}): of these only {POINTS.name}", file=sys.stderr)
    return lines


def write_points(lines, sources, path):
    """Write the returns at ``STEPS`` of what may be kept."""
    about = {source.who: source for source in sources}
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("who", "env", "seeds", "env_steps", "mean_return", "worst_return"))
        for line in lines:
            if about[line.who].licence in FREE:
                places = [step for step in STEPS if line.at("env_steps", step)] or line.over["env_steps"][0]
                for step in places:
                    shown = (f"{value:.0f}" for value in line.at("env_steps", step))
                    writer.writerow((line.who, line.env, line.seeds, int(step), *shown))


def read_points(path):
    """The lines of ``published.csv``."""
    trained = {source.who: source.trained for source in load()}
    found = {}
    for row in csv.DictReader(io.StringIO(path.read_text())):
        key = row["who"], row["env"], int(row["seeds"])
        point = [float(row[name]) for name in ("env_steps", "mean_return", "worst_return")]
        found.setdefault(key, []).append(point)
    for (who, env, seeds), rows in found.items():
        steps, mean, worst = np.array(rows).T
        over = {"env_steps": (steps, mean, worst)}
        if trained.get(who) is not None:
            over["trained_transitions"] = trained[who] * steps, mean, worst
        yield four_axes.Line(who, env, seeds, over)


def lines_of_ours(folders):
    """A line for each setting and task of our runs."""
    groups = grouped(evaluated_runs(folders)) if folders else []
    return [four_axes.line_of(f"spreeze_zmq {group.label}", group.env, group.curves) for group in groups]


def main():
    """Print the tables, and draw."""
    parser = whole_runs.parser(__doc__)
    parser.add_argument("runs", nargs="*", metavar="RUN", help="folders of our runs, or of several seeds")
    parser.add_argument("--task", action="append", choices=TASKS, help="by default those of the runs, or all")
    parser.add_argument("--out", type=Path, metavar="FILE", help="draw, as PNG or SVG; needs matplotlib")
    parser.add_argument(
        "--cache", type=Path, default=cache_folder() / "published", help="of the files (default: %(default)s)"
    )
    parser.add_argument("--write-points", action="store_true", help=f"write {POINTS.name} anew")
    arguments = parser.parse_args()
    if arguments.out and find_spec("matplotlib") is None:
        parser.error("--out needs matplotlib, which is not installed: pip install 'spreeze_zmq[compare]'")
    if arguments.out and not arguments.out.absolute().parent.is_dir():
        parser.error(f"--out {arguments.out}: there is no folder {arguments.out.parent}")
    try:
        ours = lines_of_ours(arguments.runs)
    except InputError as error:
        parser.error(str(error))
    others = lines_of_others(load(), arguments.cache)
    if arguments.write_points:
        write_points(others, load(), POINTS)
    tasks = arguments.task or list(dict.fromkeys(line.task for line in ours)) or TASKS
    lines = [line for task in tasks for line in (*ours, *others) if line.task == task]
    print(four_axes.tables(lines))
    print("\nmean of the seeds, the worst in brackets")
    if arguments.out:
        four_axes.draw(lines, arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
