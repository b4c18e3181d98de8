"""What the rules read: a run's plan and what its journal has said so far."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from spreeze_zmq.base.journal import INHERITED, RESUMED, TURNED, is_look
from spreeze_zmq.broker.doctor.finding import Finding
from spreeze_zmq.broker.doctor.trend import (
    WINDOW_S,
    FirstEpisodes,
    Lately,
    Steadiness,
    Trend,
    machine_rows,
    numbers,
    whole_numbers,
)

#: Looks after the best one that tell what policies do now.
LOOKS_SINCE_BEST = 5
#: More environments than any run has.
MOST_ENVS = 1e6


class Vitals:
    """What is known of a run at one time; all times in seconds since it began.

    Args:
        plan: the contents of its run.json.

    Attributes:
        turned: the numbers of options that were set while it trained, or a run before it.
        t_s: time of the newest status.
        status: the numbers of the newest: those of its own, and its maps of numbers by name.
        looks: the mean return of each first look that time has not cut, also of runs that this one goes on
            from; ``num_looks`` counts its own.
        last_look: the numbers of the newest one; empty where time has cut it.
        best: return and length in steps of the best one; ``since_best`` the same of the newest after it.
        training: the mean return of training episodes, about one value a second.
        critic_loss: of the critic-learner.
        successes: how many looks, likewise, had any success, and how many none, where info says it.
        extremes: the least and greatest value so far, likewise, of each figure of ``status.experience``, and
            of the ``return`` of its own training episodes.
        first_update_s: when the first update was seen; None before. ``first_update_steps``: env steps shortly
            before it.
        first_step_s: when the first env step was seen; None before.
        steps_each: env steps of one environment, of as many as there were at each moment.
        went_back: times that learners went back to a checkpoint, ``went_back_s`` when the last one did.
        trained: of late, since the first update; ``played`` since the beginning.
        steadiness: of the figures that rules ask for.
    """

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.plan = plan
        self.turned: Mapping[str, float] = {}
        self.t_s = 0.0
        self.status: dict[str, Any] = {}
        self.looks, self.training, self.critic_loss = Trend(), Trend(), Trend()
        self.successes: Counter[bool] = Counter()
        self.trained, self.played = Lately(), Lately()
        self.num_looks = self.went_back = 0
        self.last_look: Mapping[str, float] = {}
        self.went_back_s = -math.inf
        self.best = (-math.inf, 0.0)
        self.since_best: deque[tuple[float, float]] = deque(maxlen=LOOKS_SINCE_BEST)
        self.extremes: dict[str, tuple[float, float]] = {}
        self.first_update_s: float | None = None
        self.first_update_steps = 0
        self.first_step_s: float | None = None
        self._first = FirstEpisodes()
        self.steadiness = Steadiness()
        self._began: Mapping[str, Any] = {}  # its first status: a resumed run does not begin at 0
        self.steps_each = 0.0

    # --- what comes in

    def take(self, kind: str, t_s: float, about: Mapping[str, Any]) -> None:
        """Take one entry of the journal, of which some kinds have no figures. Of runs that this one goes on
        from it keeps what they have reached.
        """
        is_own = not about.get(INHERITED)
        if kind == RESUMED:
            self.turned = numbers(about.get(TURNED))
        elif kind == "status" and is_own:
            self._take_status(t_s, about)
        elif kind == "status":
            self._widen(numbers(about.get("experience")))
            self.training.add(numbers(about.get("episodes")).get("mean_return"), t_s)
        elif kind == "evaluation" and is_look(about):
            self._take_look(t_s, about, is_own=is_own)
        elif kind == "episodes" and is_own:
            self._take_episodes(numbers(about), t_s)

    def _take_look(self, t_s: float, about: Mapping[str, Any], *, is_own: bool) -> None:
        look, info, is_cut = numbers(about), numbers(about.get("info")), about.get("timed_out")
        told = [info[name] for name in ("is_success", "success") if name in info]
        self.successes.update(bool(share) for share in told[:1] if share or not is_cut)
        self.looks.add(None if is_cut else about.get("mean_return"), t_s)
        self.last_look = look if is_own and not is_cut else {}
        if self.last_look:
            self.num_looks += 1
            self.since_best.append((look.get("mean_return", -math.inf), look.get("mean_length", 0.0)))
            if self.since_best[-1] > self.best:
                self.best = self.since_best.pop()
                self.since_best.clear()

    def _take_episodes(self, ended: Mapping[str, float], t_s: float) -> None:
        if not ended.keys() >= {"count", "mean", "std"}:
            return
        self.training.add(ended["mean"], t_s)
        for end in ended.keys() & {"min", "max"}:
            self._widen({"return": ended[end]})
        self._first.add(int(ended["count"]), ended["mean"], ended["std"])

    def _take_status(self, t_s: float, about: Mapping[str, Any]) -> None:
        """Take a status, of which any field may be missing or odd: the journal may be anybody's."""
        status: dict[str, Any] = dict(numbers(about))
        status |= {name: numbers(about.get(name)) for name in ("episodes", "gauges", "experience", "machine")}
        workers = about.get("workers")
        rows = workers.items() if isinstance(workers, Mapping) else ()
        status["workers"] = {role: numbers(row) for role, row in rows}
        self._began = self._began or status
        before, self.t_s, self.status = self.status or status, t_s, status
        self.turned = numbers(about.get("values")) or self.turned
        more = status.get("env_steps", 0) - before.get("env_steps", 0)
        self.steps_each += max(0.0, more) / max(self._num_envs(before), self._num_envs(status))
        status.setdefault("num_sampler_failures", status.get("num_failures", 0))  # of all in earlier releases
        if self.first_step_s is None and self.env_steps > 0:
            self.first_step_s = t_s
        if self.first_update_s is None and status.get("critic_updates_per_s", 0) > 0:
            self.first_update_s, self.first_update_steps = t_s, int(before.get("env_steps", 0))
            self.trained.add(t_s, self._began)  # on-policy they come in bursts
        self._count(t_s)
        self._widen(status["experience"])
        self.critic_loss.add(status["gauges"].get("critic_loss"), t_s)
        went_back = about.get("went_back")
        if isinstance(went_back, list) and went_back:
            self.went_back = int(status.get("num_went_back", len(went_back)))
            self.went_back_s = numbers(went_back[-1]).get("t_s", t_s)
        waits = {f"{role} starved": row.get("starved", 0.0) for role, row in status["workers"].items()}
        status["machines"] = machine_rows(about.get("machines"))
        waits |= {f"{name} blocked": row.get("blocked", 0.0) for name, row in status["machines"].items()}
        used = numbers(about.get("efficiency"))
        waits |= {"arithmetic used": used["share"]} if "share" in used else {}
        figures = {**status["gauges"], **status["experience"], **status["machine"], **waits}
        self.steadiness.add(t_s, figures)

    def _count(self, t_s: float) -> None:
        if self.first_update_s is not None:
            self.trained.add(t_s, {"critic_updates": self.updates})
        failures = self.status.get("num_sampler_failures", 0)
        self.played.add(t_s, {"episodes": self.num_episodes, "failures": failures})

    def _widen(self, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            low, high = self.extremes.get(name, (value, value))
            self.extremes[name] = min(low, value), max(high, value)

    # --- what the rules ask

    def option(self, name: str, default: Any = None) -> Any:
        """An option of the algorithm; ``default`` where it has none of this name."""
        return self.algorithm.get(name, default)

    def number(self, name: str, default: float) -> float:
        """An option of the algorithm that is a number; ``default`` where it has no such one."""
        return numbers(self.algorithm).get(name, default)

    @property
    def divides_rewards(self) -> bool:
        """Whether losses see rewards that were divided to a size of their own."""
        return self.option("normalize_rewards") is True or "reward_divisor" in self.status.get("gauges", {})

    @property
    def has_other_rewards(self) -> bool:
        """Whether there are rewards to learn from that no sampler has got: of data, of further goals."""
        relabels = self.option("hindsight", "off") != "off" or self.table("learning").get("rows_each", 1) != 1
        return bool(self.table("data")) or relabels

    def table(self, name: str) -> Mapping[str, Any]:
        """A table of the plan, with what was set since; empty where there is none: it may be anybody's."""
        table = self.plan.get(name)
        found = table if isinstance(table, Mapping) else {}
        turned = found.keys() & self.turned.keys() if name in ("algorithm", "balance") else ()
        return {**found, **{option: self.turned[option] for option in turned}} if turned else found

    @property
    def algorithm(self) -> Mapping[str, Any]:
        """The algorithm's options."""
        return self.table("algorithm")

    @property
    def environment(self) -> Mapping[str, Any]:
        """The environment's spec as plain data."""
        return self.table("environment")

    @property
    def tried(self) -> Mapping[str, Any]:
        """What was odd about the environment when it was tried out."""
        return self.table("tried")

    @property
    def num_actions(self) -> int:
        """The number of an action's dimensions."""
        return math.prod(whole_numbers(self.environment.get("action_shape"))) or 1

    @property
    def on_policy(self) -> bool:
        """Whether it trains on rounds of rollouts."""
        return bool(self.table("learning").get("on_policy"))

    @property
    def is_resumed(self) -> bool:
        """Whether its first policy is a trained one."""
        return bool(self.table("run").get("resume_from"))

    @property
    def env_steps(self) -> int:
        """Transitions that this run has sampled."""
        return int(self.status.get("env_steps", 0)) - self.steps_before

    @property
    def steps_before(self) -> int:
        """Those of the runs that this one goes on from."""
        return int(self._began.get("env_steps", 0))

    @property
    def updates(self) -> int:
        """Critic updates, those before a resumed run included."""
        return int(self.status.get("critic_updates", 0))

    @property
    def updates_per_s(self) -> float:
        """Critic updates a second, since the first or in the last minutes."""
        return self.trained.rate("critic_updates")

    @property
    def num_episodes(self) -> int:
        """Training episodes of this run that have ended."""
        count, before = (row.get("episodes", {}).get("count", 0) for row in (self.status, self._began))
        return int(count) - int(before)

    def _num_envs(self, status: Mapping[str, Any]) -> float:
        """Environments of all samplers at a moment."""
        sampler = self.table("components").get("sampler")
        options = numbers(sampler.get("options")) if isinstance(sampler, Mapping) else {}
        count = status["workers"].get("sampler", {}).get("count", 1)
        return float(min(max(1.0, options.get("envs", 1) * count), MOST_ENVS))

    @property
    def training_s(self) -> float:
        """Seconds since the first update."""
        return 0.0 if self.first_update_s is None else self.t_s - self.first_update_s

    def steady(self, name: str, window_s: float = WINDOW_S) -> list[float]:
        """The values of a figure in the last seconds; none where they are too few to be believed."""
        return self.steadiness.values(name, window_s)

    def typical(self, name: str) -> float | None:
        """The median of these; None where they are too few."""
        values = self.steady(name)
        return median(values) if values else None

    @property
    def rewards(self) -> tuple[float, float] | None:
        """The least and the greatest reward reported so far; None before any."""
        if not self.extremes.keys() >= {"reward_min", "reward_max"}:
            return None
        return self.extremes["reward_min"][0], self.extremes["reward_max"][1]

    @property
    def only_return(self) -> float | None:
        """The return of every training episode so far, where all have the same."""
        low, high = self.extremes.get("return", (0.0, 1.0))
        return low if low == high else None

    @property
    def random_return(self) -> tuple[float, float] | None:
        """Mean return of the first episodes, and its standard error; None while they are too few, and in a
        resumed run, whose first policy is a trained one.
        """
        return None if self.is_resumed else self._first.mean()

    @property
    def has_risen(self) -> bool:
        """Whether the return has risen, at 5 %, above the first looks or episodes, also before this run."""
        curve = self.looks if len(self.looks.values) >= 3 else self.training
        return curve.has_risen(self.random_return)


#: What says of a run that something keeps it from learning; its name is that of what it finds.
Rule = Callable[[Vitals], Finding | None]
