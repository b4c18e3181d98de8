"""Tasks whose physics MuJoCo steps for the whole batch in native code; ``MujocoTask`` is their base."""

from spreeze_zmq.envs.mujoco.task import MujocoTask

__all__ = ["MujocoTask"]
