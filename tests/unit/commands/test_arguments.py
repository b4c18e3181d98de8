"""Command lines: the order of their words, and words that nothing takes."""

import pytest

from spreeze_zmq.commands import compare, view
from spreeze_zmq.commands.arguments import Parser
from spreeze_zmq.commands.bench import bench
from spreeze_zmq.commands.spreeze import main


@pytest.mark.parametrize(
    ("command", "several", "words", "taken"),
    [
        (view, "beside", "A --port 1 B C", ["B", "C"]),
        (view, "beside", "--port 1 A B --trust m C", ["B", "C"]),
        (view, "beside", "A --port 1", []),
        (compare, "runs", "A --png f B --csv g C", ["A", "B", "C"]),
        (bench, "sections", "replay --seconds 1 start", ["replay", "start"]),
    ],
)
def test_words_may_stand_before_and_behind_options(command, several, words, taken):
    """In the order in which they are written."""
    parser = Parser()
    command.add_arguments(parser)
    assert getattr(parser.parse_args(words.split()), several) == taken


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("view A --prot 1 B", '--prot: unknown argument; did you mean "--port"?'),
        ("runs A --json B", "B: unknown argument (spreeze runs --help lists all)"),
        (
            "play A --seconds 3",
            "--seconds is the length of a video: write --video FILE, or leave it out",
        ),
    ],
)
def test_what_nothing_takes_is_one_line(words, says, capsys):
    """Exit code 2."""
    try:
        code = main(words.split())
    except SystemExit as ended:
        code = ended.code
    assert (code, capsys.readouterr().err) == (2, f"spreeze {words.split()[0]}: {says}\n")
