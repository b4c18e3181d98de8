"""Files between a node's half and the head's, over a real channel: what comes, and what does not."""

import errno
import io
import os
import resource
import time
from contextlib import suppress

import numpy as np
import pytest

from spreeze_zmq.base.errors import ChannelError
from spreeze_zmq.component.handing import Handing
from spreeze_zmq.evaluation.video.films import VideoSchedule
from spreeze_zmq.nodes.archive import Archive
from spreeze_zmq.nodes.errands import KINDS, Errands
from spreeze_zmq.nodes.transfer import PIECE_BYTES, WINDOW_BYTES, fits
from spreeze_zmq.plan.roles import EVALUATOR, ROLES
from spreeze_zmq.run.checkpoint import complete, latest, write_part
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.outbox import BEST_POLICY, CHECKPOINT, ask_for, hand_over
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import Dealer, Router, poll

DEADLINE_S = 20.0
NAME = "evaluator-0"


class Pair:
    """Two folders of one run, and all messages between them."""

    def __init__(self, folder, process=NAME, resume_from=None, beside=()):
        self.router = Router("tcp://127.0.0.1:*", bind=True, kinds=KINDS)
        self.dealer = Dealer(self.router.endpoint, kinds=KINDS)
        self.there, self.here = RunFolder(folder / "there"), RunFolder(folder / "here")
        self.there.outbox.mkdir(parents=True)
        self.here.path.mkdir()
        self.peer = b""
        self.errands = Errands(self.there, self.dealer.send)
        self.archive = Archive(
            self.here,
            resume_from,
            lambda message: self.router.send(self.peer, message),
            {process, *beside}.__contains__,
        )
        self.under_way = self.most_under_way = 0
        self.lines = []

    def step(self):
        """One look at either end."""
        self.errands.run()
        poll([self.router, self.dealer], timeout_s=0.01)
        while (received := self.router.receive()) is not None:
            self.peer, message = received
            self.under_way = message.fields.get("begin", 0) + PIECE_BYTES - self._written()
            self.most_under_way = max(self.most_under_way, self.under_way)
            self.archive.hear(message)
        self.lines += self.archive.serve()
        while (message := self.dealer.receive()) is not None:
            self.errands.hear(message)

    def _written(self):
        return max((path.stat().st_size for path in self.here.path.rglob(".writing-*")), default=0)

    def until_gone(self, place):
        """Go on until an errand is done."""
        self.until(lambda: not place.exists())

    def until(self, condition):
        """Go on until something is so."""
        until_s = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < until_s
            self.step()

    def close(self):
        """Leave nothing behind."""
        self.errands.close()
        self.archive.close()
        self.dealer.close()
        self.router.close()


@pytest.fixture
def pair(tmp_path):
    """A node and a head, the evaluator on the node."""
    made = Pair(tmp_path)
    yield made
    made.close()


def test_a_file_comes_whole_as_it_was_handed_over(pair):
    """Also one of many pieces that is replaced meanwhile; never more than a window is under way."""
    first = np.random.default_rng(1).bytes(5 * WINDOW_BYTES + 17)
    pair.there.best_policy.write_bytes(first)
    place = hand_over(pair.there, NAME, [pair.there.best_policy])
    pair.there.best_policy.unlink()
    pair.there.best_policy.write_bytes(b"the next one")
    pair.step()
    assert not pair.here.best_policy.exists()
    pair.until_gone(place)
    assert pair.here.best_policy.read_bytes() == first
    assert pair.there.best_policy.read_bytes() == b"the next one"
    assert pair.most_under_way <= WINDOW_BYTES + PIECE_BYTES
    assert [path.name for path in pair.here.path.iterdir()] == [pair.here.best_policy.name]


def test_several_files_and_an_empty_one_come_in_their_order(pair):
    """Each errand is done when all of its files are at the head."""
    videos = pair.there.path / "videos"
    videos.mkdir()
    contents = {"1.safetensors": b"", "1.mp4": b"x" * (PIECE_BYTES + 1), "2.safetensors": b"y"}
    for name, content in contents.items():
        (videos / name).write_bytes(content)
    places = [hand_over(pair.there, NAME, [videos / name]) for name in contents]
    pair.until_gone(places[-1])
    assert not places[0].exists()
    assert {path.name: path.read_bytes() for path in (pair.here.path / "videos").iterdir()} == contents


def test_an_evaluator_elsewhere_knows_the_videos_of_the_one_before_it(pair, tmp_path):
    """On a machine that had nothing of them, the first ones would be made again, of the policy of now."""
    videos = pair.here.path / "videos"
    videos.mkdir()
    pair.here.best_policy.write_bytes(b"now")
    for name in ("100.safetensors", "100.mp4", "200.safetensors", ".writing-200.mp4"):
        (videos / name).write_bytes(name.encode())
    pair.until_gone(ask_for(pair.there, NAME, BEST_POLICY))
    schedule = VideoSchedule(pair.there, (100, 200, 300), tmp_path, ())
    schedule._begin = lambda policy: None
    schedule.reached(250)
    found = {path.name: path.read_bytes() for path in (pair.there.path / "videos").iterdir()}
    assert found == {n: n.encode() for n in ("100.safetensors", "100.mp4", "200.safetensors")}
    schedule.reached(300)
    assert (pair.there.path / "videos" / "300.safetensors").read_bytes() == b"now"


def test_what_a_process_asks_for_is_there_when_its_errand_is_done(pair):
    """And nothing where there is no such file yet."""
    pair.until_gone(ask_for(pair.there, NAME, BEST_POLICY))
    assert not pair.there.best_policy.exists()
    pair.here.best_policy.write_bytes(b"p" * (3 * PIECE_BYTES))
    pair.until_gone(ask_for(pair.there, NAME, BEST_POLICY))
    assert pair.there.best_policy.read_bytes() == pair.here.best_policy.read_bytes()


def fetched(pair, word):
    """What the process raises that asks for something while its machine is served."""

    def go_on():
        with suppress(OSError):  # the machine says it, and goes on
            pair.step()
        return True

    handing = Handing(pair.there, NAME, lambda message: None, lambda: None)
    with pytest.raises(ChannelError) as error:
        handing.fetch(word, go_on)
    return str(error.value)


def test_who_asks_hears_that_what_came_did_not_fit_on_the_disk(pair):
    """It would else go on as if there were nothing; whatever comes next is taken as before."""
    pair.here.best_policy.write_bytes(b"p" * (3 * PIECE_BYTES))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (PIECE_BYTES + 1000, before[1]))
    try:
        why = fetched(pair, BEST_POLICY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert why == f"the best policy has not come from the head: {pair.there.best_policy}: File too large"
    assert not list(pair.there.path.glob("*.safetensors"))
    pair.until_gone(ask_for(pair.there, NAME, BEST_POLICY))
    assert pair.there.best_policy.read_bytes() == pair.here.best_policy.read_bytes()


def test_who_asks_hears_that_the_head_cannot_read_it(pair):
    """And so does the head."""
    pair.here.best_policy.mkdir()
    why = f"{pair.here.best_policy}: Is a directory"
    assert fetched(pair, BEST_POLICY) == f"the best policy has not come from the head: {why}"
    assert pair.lines == [f"{NAME} cannot be given what it asks for: {why}"]


def test_who_asks_hears_of_a_file_that_could_be_opened_and_not_read(pair, monkeypatch):
    """It is passed over; the next file comes."""

    class Worn(io.BytesIO):
        def read(self, size=-1):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(pair.archive, "_files", lambda role, what: [("policy.safetensors", Worn(b"p"))])
        assert fetched(pair, BEST_POLICY).endswith("policy.safetensors: Input/output error")
    pair.here.best_policy.write_bytes(b"p")
    pair.until_gone(ask_for(pair.there, NAME, BEST_POLICY))
    assert pair.there.best_policy.read_bytes() == b"p"


def test_the_head_serves_others_while_it_reads_a_whole_checkpoint(tmp_path):
    """Its bytes come from a pipe that nobody has written into yet, as from a slow disk."""
    name = "critic_learner-0"
    pair = Pair(tmp_path, name)
    try:
        place = pair.here.checkpoints / "000000000007-000000001"
        part = write_part(place, "critic_learner.pt", lambda path: path.write_bytes(b""))
        complete(place, [part], {})
        (place / part.name).unlink()
        os.mkfifo(place / part.name)
        asked = ask_for(pair.there, name, CHECKPOINT)
        for _ in range(20):  # else the first would never end
            pair.step()
        assert asked.exists()
    finally:
        (place / part.name).open("wb").close()
        pair.close()


@pytest.mark.parametrize("origin", ["own", "resumed"])
def test_a_learner_gets_its_own_parts_of_the_newest_checkpoint(tmp_path, origin):
    """As a checkpoint that can be read: of this run, or of the one that it goes on from. What it writes for
    the next one comes here, whatever it calls it behind its role, and stays there no longer.
    """
    name, earlier = "actor_learner-0", tmp_path / "earlier" / "000000000007-000000001"
    pair = Pair(tmp_path, name, str(earlier) if origin == "resumed" else None)
    try:
        place = earlier if origin == "resumed" else pair.here.checkpoints / earlier.name
        names = ("actor_learner.pt", "actor_learner-replay-0.npy", "critic_learner.pt")
        parts = [write_part(place, each, lambda path: path.write_bytes(b"w" * 300_000)) for each in names]
        complete(place, parts, {"t_s": 3.0})
        pair.until_gone(ask_for(pair.there, name, CHECKPOINT))
        found = latest(pair.there.checkpoints)
        assert (set(found.parts), found.state) == (set(names[:2]), {"t_s": 3.0})
        mine = pair.there.checkpoints / "000000000009-000000002"
        own = (*names[:2], "actor_learner.safetensors", "actor_learner-moments.bin")
        for each in own:
            write_part(mine, each, lambda path: path.write_bytes(b"next"))
        pair.until_gone(hand_over(pair.there, name, [mine / each for each in own]))
        came = (pair.here.checkpoints / mine.name).iterdir()
        assert {path.name: path.read_bytes() for path in came} == dict.fromkeys(own, b"next")
        assert not list(mine.iterdir())
        assert fits(f"checkpoints/{mine.name}/MANIFEST.json", ROLES["actor_learner"].writes) is False
    finally:
        pair.close()


def test_a_checkpoint_that_the_head_passes_over_is_a_line_there(tmp_path):
    """The machine gets the one before as if it were the newest: there nobody can tell."""
    pair = Pair(tmp_path, "critic_learner-0")
    try:
        folders = [pair.here.checkpoints / name for name in "12"]
        for folder in folders:
            part = write_part(folder, "critic_learner.pt", lambda path: path.write_bytes(b"w"))
            complete(folder, [part], {})
        os.truncate(folders[1] / part.name, 0)
        pair.until_gone(ask_for(pair.there, "critic_learner-0", CHECKPOINT))
        (line,) = pair.lines
        assert line.startswith(f"critic_learner: checkpoint skipped: {folders[1]}/")
        assert line.endswith(f"goes on from {folders[0]}")
    finally:
        pair.close()


def test_learners_that_move_together_get_a_checkpoint_that_both_can_read(tmp_path):
    """In one folder: the manifest that one gets is not of its parts alone, as the other reads it, too."""
    learners = ("critic_learner", "actor_learner")
    pair = Pair(tmp_path, "critic_learner-0", beside=("actor_learner-0",))
    try:
        place = pair.here.checkpoints / "000000000007-000000001"
        parts = [write_part(place, f"{each}.pt", lambda path: path.write_bytes(b"w")) for each in learners]
        complete(place, parts, {})
        for each in learners:
            pair.until_gone(ask_for(pair.there, f"{each}-0", CHECKPOINT))
        found = latest(pair.there.checkpoints)
        assert {*found.parts} == {f"{each}.pt" for each in learners}
    finally:
        pair.close()


@pytest.mark.parametrize(
    "path", ["summary.json", "../policy.safetensors", "videos/../run.json", "/etc/passwd", "videos/.mp4", ""]
)
def test_a_role_writes_its_own_files_alone(path):
    """None beside them, and none outside the run's folder."""
    assert not fits(path, ROLES[EVALUATOR].writes)


def test_a_file_that_may_not_be_written_is_refused_and_passed_over(pair):
    """The errand is done all the same: the process goes on, and the head has counted it."""
    (pair.there.path / "summary.json").write_bytes(b"z" * (2 * PIECE_BYTES))
    place = hand_over(pair.there, NAME, [pair.there.path / "summary.json"])
    with pytest.raises(Exception, match=r"piece.path is 'summary.json', which is not evaluator-0"):
        pair.until_gone(place)
    pair.until_gone(place)
    assert not list(pair.here.path.iterdir())


def test_a_process_of_another_machine_gets_and_writes_nothing(pair):
    """Whatever it calls itself."""
    pair.there.best_policy.write_bytes(b"p")
    for about in ("evaluator-1.7", "sampler-0.7", "evaluator-0", ""):
        fields = {"about": about, "path": "policy.safetensors", "begin": 0, "size": 1}
        with pytest.raises(Exception, match="which is n"):
            pair.archive.hear(Message("piece", fields, {"bytes": np.zeros(1, np.uint8)}))
    assert not list(pair.here.path.iterdir())
