"""Declares options: the values that each accepts, its default and its meaning."""

from spreeze_zmq.base.schema.option import TYPES, Option, Unfit, option, options_of, show, with_default
from spreeze_zmq.base.schema.values import check, did_you_mean, near_ones, nearest, one_of, suggestion

__all__ = [
    "TYPES",
    "Option",
    "Unfit",
    "check",
    "did_you_mean",
    "near_ones",
    "nearest",
    "one_of",
    "option",
    "options_of",
    "show",
    "suggestion",
    "with_default",
]
