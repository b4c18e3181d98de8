"""What the sampler of PROTOCOL.md imports, with the environment that it makes."""

import fcntl
import secrets
import socket

import gymnasium
import msgpack
import numpy
import zmq
from gymnasium.envs.classic_control import pendulum

IMPORTED = (fcntl, gymnasium, msgpack, numpy, pendulum, secrets, socket, zmq)
