"""What replays are made of, for the tests: the spec of an environment and an algorithm's options."""

from spreeze_zmq.algorithms import ReplayOptions
from spreeze_zmq.envs import EnvironmentSpec


def spec(obs_shape=(1,), obs_dtype="float32", action_shape=(1,), action_kind="box"):
    """An environment with these observations and actions."""
    return EnvironmentSpec("Some-v0", {}, obs_shape, obs_dtype, action_kind, action_shape)


def save(replay, folder):
    """Save a replay into a folder, as a learner into its checkpoint."""
    folder.mkdir(exist_ok=True)
    replay.save(lambda name, write: write(folder / name))


def options(capacity, gamma=0.9, n_step=1, stack=1, **others):
    """Options of an algorithm with such a replay."""
    sizes = {"replay_capacity": capacity, "learning_starts": 1, "frame_stack": stack}
    return ReplayOptions(**sizes, gamma=gamma, n_step=n_step, **others)
