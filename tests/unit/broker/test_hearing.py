"""What the broker's state is written for at once: the broker may die a moment later."""

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from spreeze_zmq.broker.hearing import Hearing
from spreeze_zmq.broker.learning_figures import GAUGES_KEPT
from spreeze_zmq.broker.notes import Notes
from spreeze_zmq.run.checkpoint import read_manifest, write_part
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.wire import Message
from tests.protocol.golden_messages import MESSAGES
from tests.unit.broker.test_helm import Steered

WENT_BACK = {"name": "critic_learner-0", "summary": "critic_loss is nan", "traceback": "", "checkpoint": "1"}


def evaluation(**more):
    """The golden evaluation with other fields."""
    message = MESSAGES["evaluation"]
    return message._replace(fields={**message.fields, **more})


@pytest.fixture
def heard(tmp_path):
    """A function that says whether a message is written down at once, or soon."""
    steered = Steered(tmp_path, updates=5)
    notes = Notes(RunFolder(tmp_path), SimpleNamespace(publish=lambda message: True))
    with contextlib.closing(notes):
        hearing = Hearing(steered.plan, steered.record, notes, steered.helm, SimpleNamespace(), lambda: 1.0)

        def hear(message):
            hearing.is_pressing = hearing.is_urgent = False
            hearing.handle(message, 1.0)
            return "at once" if hearing.is_urgent else "soon" if hearing.is_pressing else ""

        hear.record, hear.hearing, hear.folder = steered.record, hearing, RunFolder(tmp_path)
        yield hear


def test_a_new_life_is_not_stuck_by_what_was_refused_of_the_last_one(heard):
    """It says so by its hello, once."""
    refused = {"sender": "sampler-0", "kind": "policy", "word": "wrong_dtype", "first": "", "good": 0}
    refusals = heard.record.refusals

    def take(now_s, count):
        """Whether it is stuck once so many have been refused."""
        refusals.take("sampler-1", [{**refused, "count": count}], now_s)
        return refusals.rows(now_s)[0].stuck

    refusals._patience_s = lambda *about: 1.5
    assert not take(-9.0, 1)
    assert take(0.5, 9)
    for count in (10, 12):
        heard(MESSAGES["hello"])
        assert not take(1.0, count)
    assert take(3.0, 15)


@pytest.mark.parametrize(
    ("message", "when"),
    [
        (evaluation(best=False), "soon"),
        (evaluation(best=True), "at once"),
        (Message("failure", WENT_BACK, {}, "critic_learner-0"), "at once"),
        (Message("failure", {**WENT_BACK, "name": "sampler-0"}, {}, "sampler-0"), ""),  # no learner
        (MESSAGES["stopping"], "at once"),
        (Message("stop_request", {"reason": "enough"}), "at once"),
        (Message("request", {"who": "Plateau", "what": "stop", "text": "solved"}), "at once"),
        (
            Message("request", {"who": "Plateau", "what": "set", "option": "replay_ratio", "value": 2.0}),
            "at once",
        ),
        (Message("request", {"who": "Plateau", "what": "note", "text": "a plateau"}), "at once"),
        (MESSAGES["workers"], ""),  # the launcher tells the next broker again
        (MESSAGES["hello"], ""),
        (MESSAGES["episodes"], ""),
    ],
    ids=lambda value: value.kind if isinstance(value, Message) else "",
)
def test_what_is_said_once_is_written_at_once(heard, message, when):
    """A best evaluation, or what ends the run, would be lost with a broker that writes once a second, or less
    often where that costs much.
    """
    assert heard(message) == when


@pytest.mark.parametrize("name", ["sampler-0", "critic_learner-0"])
def test_nothing_is_measured_of_a_process_that_starts(heard, name):
    """It reports while its environments are made, or its replay is read: no trial is judged by that, and
    nothing is decided from what its name made before.
    """
    role, windows = name[:-2], heard.hearing.helm.balancer.windows
    heard.record.processes.clear()

    def measured(kind, incarnation):
        """Whether windows have figures of it once it has said this."""
        fields = {**MESSAGES[kind].fields, "role": role, "name": name, "pid": incarnation}
        for now_s in (1.0, 2.0):
            heard.hearing.handle(Message(kind, fields, {}, name, incarnation), now_s)
        return name in windows.spells(1.0, 2.0)

    assert [measured(kind, 1) for kind in ("report", "hello", "report")] == [False, False, True]
    assert [measured(kind, 2) for kind in ("report", "hello", "report")] == [False, False, True]


def test_another_replay_ratio_is_measured_from_the_request_on(heard):
    """What was trained on at the ratio before says nothing of it."""
    learning = heard.record.learning
    learning.counts |= {"trained_transitions": 8000, "sampled_transitions": 1000}
    about = {"who": "Plateau", "what": "set"}
    heard(Message("request", {**about, "option": "learning_rate", "value": 1e-4}))
    assert learning.replay_ratio(8.0).measured == 8.0
    heard(Message("request", {**about, "option": "replay_ratio", "value": 2.0}))
    learning.counts |= {"trained_transitions": 8200, "sampled_transitions": 1100}
    assert learning.replay_ratio(2.0).measured == 2.0


def test_what_a_process_refused_last_counts(heard):
    """It says so as it leaves; and a life that has ended, while another one has its name."""
    about = {"sender": "sampler-0", "kind": "rollout", "word": "bad_shape", "first": "it is [3]", "good": 0}
    fields = {**MESSAGES["bye"].fields, "role": "critic_learner", "name": "critic_learner-0"}
    count = {"count": 3}

    def bye(incarnation):
        return Message(
            "bye", {**fields, "refused": [{**about, **count}]}, {}, "critic_learner-0", incarnation
        )

    heard(bye(7))
    assert heard.record.refusals.mistakes == 3
    heard(Message("hello", {**fields, "pid": 9}, {}, "critic_learner-0", 8))
    count["count"] = 5
    heard.hearing.hear_late(bye(7), 2.0)
    assert heard.record.refusals.mistakes == 5


def test_a_checkpoint_whose_learner_has_died_is_asked_for_again_when_all_are_back(heard):
    """The next one would come an interval later. But once: the part itself may be what ends the learner."""
    helm = heard.hearing.helm

    def hello(role, incarnation, now_s):
        fields = {**MESSAGES["hello"].fields, "role": role, "name": f"{role}-0"}
        heard.hearing.handle(Message("hello", fields, {}, f"{role}-0", incarnation), now_s)
        return helm.checkpoints.pending

    assert hello("critic_learner", 1, 1.0) == ""
    first = helm.checkpoint(2.0)
    assert hello("critic_learner", 1, 3.0) == hello("sampler", 2, 3.0) == first
    heard.record.lose("actor_learner-0", "was killed by SIGKILL")
    assert hello("critic_learner", 2, 4.0) == first
    again = hello("actor_learner", 2, 5.0)
    assert again != first
    assert hello("critic_learner", 3, 6.0) == again
    helm.state = "training"
    helm.decide(helm.checkpoints.next_s)
    due = helm.checkpoints.pending
    assert due != again
    assert hello("critic_learner", 4, 9999.0) != due


def test_gauges_beyond_those_kept_are_told_once(heard):
    """A report's gauges were cut to 64 before they were counted: the others were missing without a word."""
    learning, golden, told = heard.record.learning, MESSAGES["report"], list[str]()
    life = heard.record.processes["critic_learner-0"].incarnation
    for num_more in (0, 1, 1):
        gauges = {f"of_layer_{layer}": 0.0 for layer in range(GAUGES_KEPT + num_more)}
        fields = {**golden.fields, "gauges": gauges}
        heard.hearing.hear(golden._replace(fields=fields, sender="critic_learner-0", incarnation=life))
        assert len(learning.gauges) == GAUGES_KEPT
        told.append(learning.tell_left_out())
    assert told[::2] == ["", ""]
    assert f"'of_layer_{GAUGES_KEPT}' and others are not drawn" in told[1]


def test_every_file_of_a_part_is_in_the_checkpoint(heard):
    """Those beyond 64 were left out of a manifest that called the checkpoint whole."""
    helm, golden = heard.hearing.helm, MESSAGES["part"]
    folder = helm.checkpoint(1.0)
    place, names = heard.folder.checkpoints / folder, [f"critic_learner-{n}.bin" for n in range(300)]
    parts = {name: write_part(place, name, Path.touch).to_dict() for name in names}
    for role, part in (("critic_learner", parts), ("actor_learner", {})):
        fields = {"folder": folder, "part": part}
        life = heard.record.processes[f"{role}-0"].incarnation
        heard.hearing.hear(golden._replace(fields=fields, sender=f"{role}-0", incarnation=life))
    assert [*read_manifest(place).parts] == names
