"""What is drawn of an environment: pictures of one kind, or a line that says what is wrong with them."""

import subprocess

import gymnasium
import imageio_ffmpeg
import numpy as np
import pytest
from gymnasium import spaces

from spreeze_zmq import envs
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.evaluation.stage import open_stage, rendered
from spreeze_zmq.evaluation.video.recorder import record
from tests.unit.envs.ported import Port
from tests.unit.policy.test_playing import policy_of

OWN = "tests.unit.evaluation.test_pictures"
SIZE = 32


class Drawn(gymnasium.Env):
    """Five steps; its picture grows darker, in the form that it is asked for."""

    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, form="rgb", render_mode=None):
        self.form, self.render_mode, self.t = form, render_mode, 0
        self.canvas = np.zeros((SIZE, SIZE, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.canvas[:] = self.picture()
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(3, np.float32), 1.0, False, self.t == 5, {}

    def render(self):
        """A picture of the form."""
        picture = self.picture()
        if self.form != "same memory":
            return picture
        self.canvas[:] = picture
        return self.canvas

    def picture(self):
        """A new one."""
        grey = np.full((SIZE, SIZE + 2 * self.t * (self.form == "grows")), 200 - 40 * self.t, np.uint8)
        if self.form == "grey":
            return grey[..., None]
        if self.form == "float":
            return np.repeat(grey[..., None] / 255, 3, -1)
        return np.repeat(grey[..., None], 3, -1)


class Seen(Drawn):
    """It observes its picture, and draws none."""

    observation_space = spaces.Box(0, 255, (SIZE, SIZE, 3), np.uint8)

    def __init__(self):
        super().__init__()

    def reset(self, *, seed=None, options=None):
        _, info = super().reset(seed=seed)
        return self.render(), info

    def step(self, action):
        _, *rest = super().step(action)
        return self.render(), *rest


class Blind(Port):
    """A simulator with a port of its own, of whose pictures nothing comes."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, port, render_mode=None):
        super().__init__(port)
        self.render_mode = render_mode

    def render(self):
        """None."""


def filmed(path, name, form=None, num_obs=3):
    """The mean brightness of each picture of a video."""
    spec = envs.probe(f"{OWN}:{name}", {"form": form} if form else {})
    made = record(policy_of(num_obs), spec, path, speed=0.5)
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", str(path), "-f", "rawvideo"]
    shown = subprocess.run([*command, "-pix_fmt", "rgb24", "-"], capture_output=True, check=True).stdout
    return made, np.frombuffer(shown, np.uint8).reshape(-1, 3 * SIZE * SIZE).mean(1)


@pytest.mark.parametrize("form", ["rgb", "grey", "same memory"])
def test_a_video_has_the_pictures_that_the_environment_drew(tmp_path, form):
    """Grey ones as grey ones, those of one array too; as many as are said, with the last one, which only a
    reset follows.
    """
    made, shown = filmed(tmp_path / "run.mp4", "Drawn", form)
    assert made.num_frames == len(shown) == 6
    assert np.allclose(shown, [200, 160, 120, 80, 40, 0], atol=4)


def test_an_episode_that_a_video_does_not_show_to_its_end_is_said_to_be_none(tmp_path):
    """Its return is that of the steps so far, and no score."""
    spec = envs.probe(f"{OWN}:Drawn")
    cut, whole = (
        record(policy_of(), spec, tmp_path / "a.mp4", speed=0.5, max_s=s).episodes for s in (0.6, 9)
    )
    assert [episode.said() for episode in cut] == ["return 2.00, 2 steps, not to its end"]
    assert [episode.said() for episode in whole] == ["return 5.00, 5 steps"]


def test_an_environment_without_pictures_is_filmed_by_the_images_that_it_observes(tmp_path):
    """From the first of an episode to its last."""
    made, shown = filmed(tmp_path / "run.mp4", "Seen", num_obs=3 * SIZE * SIZE)
    assert made.num_frames == len(shown) == 6
    assert np.allclose(shown, [200, 160, 120, 80, 40, 0], atol=4)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("grows", r"render\(\) drew picture 1 in 34x32 and the first in 32x32"),
        ("float", r"nothing to see: .* render\(\) gave float64 \(32, 32, 3\) and no picture: expected uint8"),
    ],
)
def test_pictures_that_make_no_video_are_named(tmp_path, form, said):
    """A floating one would be cut to black, and one of another size runs into the next."""
    with pytest.raises(InputError, match=said):
        filmed(tmp_path / "run.mp4", "Drawn", form)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("picture", "said"),
    [
        (None, "NoneType"),
        ("text", "str"),
        ([[1], [1, 2]], "list"),
        (np.zeros((8, 8, 5), np.uint8), r"uint8 \(8, 8, 5\)"),
        (np.zeros((0, 8, 3), np.uint8), r"uint8 \(0, 8, 3\)"),
    ],
    ids=["none", "text", "ragged", "channels", "empty"],
)
def test_what_is_no_picture_is_refused_in_a_line(picture, said):
    """By what came."""
    with pytest.raises(InputError, match=f"gave {said} and no picture"):
        rendered(picture)


@pytest.mark.parametrize(("low", "high"), [(0, 256), (-1, 255)])
def test_numbers_that_are_no_shades_are_named(low, high):
    """They would wrap around: white into black."""
    picture = np.full((8, 8, 3), low, np.int64)
    picture[0] = high
    with pytest.raises(InputError, match=f"gave int64 of {low} to {high}: expected 0 to 255"):
        rendered(picture)
    assert (rendered(picture.clip(0, 255))[0] == 255).all()


def test_an_alpha_channel_is_left_out():
    """And a picture without channels is a grey one."""
    image = np.arange(8 * 8 * 4, dtype=np.uint8).reshape(8, 8, 4)
    assert (rendered(image) == image[..., :3]).all()
    assert (rendered(image[..., 0]) == image[..., :1]).all()


def test_the_page_says_what_is_wrong_with_a_picture():
    """And shows the curves."""
    stage = open_stage(envs.probe(f"{OWN}:Drawn", {"form": "float"}))
    assert stage.draw is None
    assert "no picture to show: render() gave float64" in stage.why_not
    stage.env.close()


def test_an_environment_that_cannot_draw_is_closed_before_the_next_one_is_made():
    """Which has the same number, and so the same port; what is shown then frees it, too."""
    stage = open_stage(envs.probe(f"{OWN}:Blind", {"port": "{index}"}), number=7)
    assert "no picture to show: render() gave NoneType" in stage.why_not
    assert Port.taken == {7}
    stage.env.close()
    assert not Port.taken
