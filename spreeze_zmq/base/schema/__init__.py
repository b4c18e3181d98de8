"""Declares options: the values that each accepts, its default and its meaning."""

from spreeze_zmq.base.schema.option import (
    TYPES,
    Option,
    Unfit,
    option,
    options_of,
    own_fields,
    show,
    with_default,
)
from spreeze_zmq.base.schema.scheduled import COUNTS, Scheduled, in_words, mapped, schedules_in, share_of
from spreeze_zmq.base.schema.values import check, did_you_mean, near_ones, nearest, one_of, suggestion

__all__ = [
    "COUNTS",
    "TYPES",
    "Option",
    "Scheduled",
    "Unfit",
    "check",
    "did_you_mean",
    "in_words",
    "mapped",
    "near_ones",
    "nearest",
    "one_of",
    "option",
    "options_of",
    "own_fields",
    "schedules_in",
    "share_of",
    "show",
    "suggestion",
    "with_default",
]
