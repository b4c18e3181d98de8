"""Why a run may not learn: rules over its plan and its journal, the same live and afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from spreeze_zmq.base.journal import INHERITED
from spreeze_zmq.broker.doctor.experience_rules import EXPERIENCE_RULES
from spreeze_zmq.broker.doctor.finding import Finding
from spreeze_zmq.broker.doctor.learning_rules import LEARNING_RULES
from spreeze_zmq.broker.doctor.machine_rules import MACHINE_RULES
from spreeze_zmq.broker.doctor.option_rules import MOVING_RULES
from spreeze_zmq.broker.doctor.plan_rules import PLAN_RULES
from spreeze_zmq.broker.doctor.resumed_rules import never_trains_again
from spreeze_zmq.broker.doctor.vitals import Rule, Vitals
from spreeze_zmq.plan.form import to_plain

RULES = (*EXPERIENCE_RULES, *LEARNING_RULES, *MACHINE_RULES, never_trains_again)
#: What the plan shows lasts, unless a rule of the same name judges it by what is seen later.
LASTING = frozenset(rule.__name__ for rule in PLAN_RULES) - {rule.__name__ for rule in RULES}
#: A finding is named when its rule has held for the first of these, and leaves when it has not for the
#: second, in seconds; a rule that lacks figures to say no does not count as one that does not hold.
NAMED_AFTER_S, LEAVES_AFTER_S = 3.0, 15.0


class Doctor:
    """The findings of one run, each named once, and its end once. It reads no clock and no file: entries of
    the journal come in.

    Args:
        plan: the contents of run.json.
        turned: the numbers of options that were set in a run before, and hold in this one.

    Attributes:
        vitals: the record that the rules read.
        held: the findings that hold, by name.
    """

    def __init__(self, plan: Mapping[str, Any], turned: Mapping[str, float] | None = None) -> None:
        self.vitals = Vitals(plan)
        self.vitals.turned = turned or {}
        self.held = _found_by(PLAN_RULES, self.vitals)
        self._turned = self.vitals.turned
        self._since_s: dict[str, float] = {}
        self._last_s: dict[str, float] = dict.fromkeys(self.held, 0.0)
        self._news = [{**to_plain(finding), "holds": True} for finding in self.held.values()]

    def take(self, kind: str, t_s: float, about: Mapping[str, Any]) -> None:
        """Take one entry of the journal: its kind, its time in seconds, its fields."""
        self.vitals.take(kind, t_s, about)
        if self.vitals.turned != self._turned:
            self._turned = self.vitals.turned
            self._judge_options(t_s)
        if kind != "status" or about.get("state") == "stopping" or about.get(INHERITED):
            return
        found, unknown = _judged_by(RULES, self.vitals)
        self._last_s |= dict.fromkeys(unknown, t_s)
        for name, finding in found.items():
            self._last_s[name] = t_s
            since_s = self._since_s.setdefault(name, t_s)
            if name in self.held:
                self.held[name] = replace(finding, t_s=self.held[name].t_s)
            elif t_s - since_s >= NAMED_AFTER_S:
                self.held[name] = self._tell(finding, t_s, holds=True)
        for name in self._since_s.keys() - found.keys():
            del self._since_s[name]
        for name in self.held.keys() - found.keys() - LASTING:
            if t_s - self._last_s[name] >= LEAVES_AFTER_S:
                self._tell(self.held.pop(name), t_s, holds=False)

    def _judge_options(self, t_s: float) -> None:
        """Judge by the values that options have now: what is said of them is so at once."""
        found = _found_by(MOVING_RULES, self.vitals)
        for name, finding in found.items():
            if name in self.held:
                self.held[name] = replace(finding, t_s=self.held[name].t_s)
            else:
                self.held[name] = self._tell(finding, t_s, holds=True)
        for name in (rule.__name__ for rule in MOVING_RULES):
            if name in self.held and name not in found:
                self._tell(self.held.pop(name), t_s, holds=False)

    def _tell(self, finding: Finding, t_s: float, *, holds: bool) -> Finding:
        finding = replace(finding, t_s=round(t_s, 1))
        told = [row for row in self._news if row["name"] == finding.name]
        if told and told[-1]["holds"] and not holds:
            self._news.remove(told[-1])  # nobody has read that it holds
        else:
            self._news.append({**to_plain(finding), "holds": holds})
        return finding

    def read(self, journal: Iterable[Mapping[str, Any]]) -> None:
        """Take the lines of a journal; those that are none are passed over."""
        for entry in journal:
            if isinstance(entry.get("kind"), str) and isinstance(entry.get("t_s"), int | float):
                self.take(entry["kind"], entry["t_s"], entry)

    def news(self) -> list[dict[str, Any]]:
        """What has changed since the last call: rows with ``holds``, false where a finding has left."""
        news, self._news = self._news, []
        return news

    def findings(self) -> list[Finding]:
        """The findings that hold, the worst first."""
        return sorted(self.held.values(), key=lambda finding: (finding.rank, finding.t_s))

    def rows(self) -> list[dict[str, Any]]:
        """The same as status and summary.json have them."""
        return to_plain(self.findings())  # type: ignore[no-any-return]


def findings_at_start(plan: Mapping[str, Any]) -> list[Finding]:
    """The findings of a plan, as run.json has it."""
    return list(_found_by(PLAN_RULES, Vitals(plan)).values())


def findings_of(plan: Mapping[str, Any], journal: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The findings of a past run, as its broker had them at its end.

    Args:
        plan: the contents of run.json.
        journal: the lines of metrics.jsonl.
    """
    doctor = Doctor(plan)
    doctor.read(journal)
    return doctor.rows()


def _found_by(rules: Iterable[Rule], vitals: Vitals) -> dict[str, Finding]:
    """By name, what the rules find in a run now."""
    return _judged_by(rules, vitals)[0]


def _judged_by(rules: Iterable[Rule], vitals: Vitals) -> tuple[dict[str, Finding], set[str]]:
    """The same, and the names of the rules that lack the figures to say no."""
    found, unknown = {}, set()
    for rule in rules:
        vitals.steadiness.lacks, name = False, rule.__name__
        if (finding := rule(vitals)) is not None:
            found[name] = replace(finding, name=name)
        elif vitals.steadiness.lacks:
            unknown.add(name)
    return found, unknown
