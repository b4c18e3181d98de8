"""The balance of production and consumption: pure arithmetic, no clock and no socket."""

from spreeze_zmq.balance.batch_size import BatchSize
from spreeze_zmq.balance.envs_per_sampler import EnvsPerSampler
from spreeze_zmq.balance.forecast import Forecast
from spreeze_zmq.balance.gates import DelayGate, LagHistogram, RatioGate
from spreeze_zmq.balance.layout import Layout, layout
from spreeze_zmq.balance.rebalance import Change, Rebalancer
from spreeze_zmq.balance.schedule import Schedule, updates_per_round
from spreeze_zmq.balance.spell import Spell, Window
from spreeze_zmq.balance.throughput import Model, fitted
from spreeze_zmq.balance.windows import Windows

__all__ = [
    "BatchSize",
    "Change",
    "DelayGate",
    "EnvsPerSampler",
    "Forecast",
    "LagHistogram",
    "Layout",
    "Model",
    "RatioGate",
    "Rebalancer",
    "Schedule",
    "Spell",
    "Window",
    "Windows",
    "fitted",
    "layout",
    "updates_per_round",
]
