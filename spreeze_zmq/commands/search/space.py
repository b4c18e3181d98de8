"""What a search varies: keys of a topology, each with the values that it may take, from ``--over``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spreeze_zmq.base.errors import InputError

_NUMBER = r"[-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"(log:)?({_NUMBER})\.\.({_NUMBER})")
_WHOLE = re.compile(r"[-+]?\d+")
_OPENING, _CLOSING, _QUOTES = "[{", "]}", "\"'"
#: Significant digits of a value between the ends of a range.
DIGITS = 4
#: Keys that the search sets itself.
OWN = ("run.seed", "run.stop")


@dataclass(frozen=True)
class Choices:
    """A key and the values that it may take, as TOML."""

    key: str
    texts: tuple[str, ...]

    @property
    def tried(self) -> tuple[str, ...]:
        """Values that show whether all are allowed."""
        return self.texts

    def suggested(self, trial: Any) -> str:
        """The value that an optuna trial gets, as TOML."""
        return str(trial.suggest_categorical(self.key, self.texts))


@dataclass(frozen=True)
class Range:
    """A key that may take any number from ``low`` to ``high``, whole ones where both ends are.

    ``log`` spreads them evenly over their logarithms.
    """

    key: str
    low: float
    high: float
    log: bool

    @property
    def tried(self) -> tuple[str, ...]:
        """Values that show whether all are allowed."""
        return repr(self.low), repr(self.high)

    def suggested(self, trial: Any) -> str:
        """The value that an optuna trial gets, as TOML."""
        if isinstance(self.low, int):
            return repr(trial.suggest_int(self.key, self.low, self.high, log=self.log))
        value = trial.suggest_float(self.key, self.low, self.high, log=self.log)
        short = float(f"{value:.{DIGITS}g}")
        return repr(short if self.low <= short <= self.high else value)


Varied = Choices | Range


def parse(over: str) -> Varied:
    """What one ``--over KEY=VALUES`` varies.

    Raises:
        InputError: it is neither a range nor a list of at least two values.
    """
    key, equals, text = (part.strip() for part in over.partition("="))
    expected = f"--over {over}: expected KEY=log:LOW..HIGH, KEY=LOW..HIGH or KEY=VALUE,VALUE"
    if not equals or not key:
        raise InputError(f"{expected}, as in algorithm.tau=0.005,0.02")
    if any(key == own or key.startswith(f"{own}.") for own in OWN):
        raise InputError(f"--over {over}: a search gives each run its own seed and time; see --minutes")
    if found := _RANGE.fullmatch(text):
        return _range(over, key, *found.groups())
    texts = tuple(split(text))
    if len(texts) < 2 or not all(texts):
        raise InputError(f"{expected}; a single value is written as --set")
    if len(set(texts)) < len(texts):
        raise InputError(f"--over {over}: the same value stands there twice")
    return Choices(key, texts)


def _range(over: str, key: str, log: str | None, first: str, last: str) -> Range:
    number = int if _WHOLE.fullmatch(first) and _WHOLE.fullmatch(last) else float
    low, high = number(first), number(last)
    if not low < high:
        raise InputError(f"--over {over}: a range goes up, from LOW to a higher HIGH")
    if log and low <= 0:
        raise InputError(f"--over {over}: logarithms need a range above 0")
    return Range(key, low, high, bool(log))


def parse_all(overs: list[str]) -> tuple[Varied, ...]:
    """What all of ``--over`` vary.

    Raises:
        InputError: there is none, one of them is wrong, or two vary the same key.
    """
    if not overs:
        raise InputError("nothing is varied: --over algorithm.learning_rate=log:1e-4..1e-2 would vary that")
    space = tuple(map(parse, overs))
    keys = [varied.key for varied in space]
    for key in keys:
        if keys.count(key) > 1:
            raise InputError(f"--over {key}: varied twice; write all its values in one --over")
    return space


def split(text: str) -> list[str]:
    """The values of a list, separated by commas outside of brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in _QUOTES:
            quote = character
        depth += (character in _OPENING) - (character in _CLOSING) if not quote else 0
        if character == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def overrides(values: Mapping[str, str]) -> list[str]:
    """``--set`` words of these values."""
    return [f"{key}={text}" for key, text in values.items()]
