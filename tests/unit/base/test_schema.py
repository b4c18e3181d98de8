"""One declaration of an option: what follows from a dataclass's field, and what is refused of it."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.schema import Unfit, check, option, options_of, with_default


@dataclass(frozen=True)
class Inner:
    """A table within a table."""

    depth: int = option(2, "how deep", minimum=1)


@dataclass(frozen=True)
class Table:
    """Something of everything."""

    needed: str = option(help="has no default")
    sizes: tuple[int, ...] = option((4, 4), "each", minimum=1)
    weights: tuple[float, ...] | None = option(None, "of each")
    batch: int | Literal["auto"] = option("auto", "how many", minimum=1, words=("auto",))
    kind: Literal["a", "b"] = option("a", "which")
    within: Inner = option(Inner, "more")
    mean_return: float | None = option(None, "at which to stop", name="return")
    extras: dict[str, Any] = option(dict, "passed on")
    not_declared: int = 0


OPTIONS = {found.name: found for found in options_of(Table)}


def test_name_type_and_default_follow_from_the_field():
    """And a field that is no option is left out."""
    assert {name: (found.type, found.default) for name, found in OPTIONS.items()} == {
        "needed": ("str", None),
        "sizes": ("ints", [4, 4]),
        "weights": ("floats", None),
        "batch": ("int", "auto"),
        "kind": ("str", "a"),
        "within": ("table", {}),
        "return": ("float", None),
        "extras": ("table", {}),
    }
    assert [found.name for found in OPTIONS["within"].options] == ["depth"]
    assert [name for name, found in OPTIONS.items() if found.required] == ["needed"]
    assert OPTIONS["kind"].choices == ("a", "b")


def test_an_inherited_option_can_have_another_default():
    """And is otherwise the same."""

    @dataclass(frozen=True)
    class Wider(Table):
        sizes: tuple[int, ...] = with_default(Table, "sizes", (8,))

    found = {each.name: each for each in options_of(Wider)}
    assert found == {**OPTIONS, "sizes": replace(OPTIONS["sizes"], default=[8])}
    with pytest.raises(KeyError, match="size"):
        with_default(Table, "size", (8,))


@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        ("sizes", (3,), [3]),
        ("weights", [1, 2.5], [1.0, 2.5]),
        ("weights", "none", None),
        ("return", "none", None),
        ("return", None, None),
        ("batch", "auto", "auto"),
        ("needed", "none", "none"),
    ],
)
def test_a_value_takes_the_plans_form(name, written, value):
    """``"none"`` is how files write None, where the annotation allows it."""
    assert check(OPTIONS[name], written) == value


@pytest.mark.parametrize(
    ("name", "written", "problem"),
    [
        ("batch", "none", 'expected a whole number of at least 1 or "auto", got "none"'),
        ("batch", None, "expected a whole number"),
        ("weights", [1.0, "x"], 'expected a list of numbers or "none", got \\[1.0, "x"\\]'),
        ("kind", "c", 'expected one of "a", "b", got "c"'),
        ("needed", None, "expected a text"),
    ],
)
def test_what_the_annotation_does_not_allow_is_refused(name, written, problem):
    """With what was expected and what came."""
    with pytest.raises(Unfit, match=problem):
        check(OPTIONS[name], written)


def test_an_annotation_that_no_file_can_hold_is_refused_by_name():
    """Before a value of it is read."""

    @dataclass(frozen=True)
    class Odd:
        """Of a type that TOML lacks."""

        shape: complex = option(1j, "of the wave")

    with pytest.raises(InputError, match=r"option shape: its annotation .*complex.* is none of bool, int"):
        options_of(Odd)
