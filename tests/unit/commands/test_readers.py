"""Output whose reader has left, as ``| head -1`` does, that finds no room, or that nobody has opened."""

import errno
import os
import socket
import subprocess
import sys

import pytest

from spreeze_zmq.commands import spreeze
from spreeze_zmq.commands.arguments import for_readers
from tests.unit.evaluation.test_saved import save


def sockets():
    """Descriptors of a connected pair, as ssh gives a command without a terminal."""
    return tuple(each.detach() for each in socket.socketpair())


@pytest.mark.parametrize(
    ("words", "connected"),
    [
        ("launch --list", os.pipe),
        ("launch --help", sockets),
        ("spreeze runs .", os.pipe),
        *(
            pytest.param(words, connected, marks=pytest.mark.thorough)
            for words, connected in (
                ("launch --list", sockets),
                ("launch --help", os.pipe),
                ("spreeze runs .", sockets),
            )
        ),
    ],
)
def test_a_reader_that_has_left_is_no_error(words, connected, tmp_path):
    """No traceback, also where all of the output fits into the buffer that is flushed at the end."""
    reader, writer = connected()
    os.close(reader)
    command = f"{sys.executable} -m spreeze_zmq.commands.{words}".split()
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, "")


def shell(words, redirected, cwd):
    """A program of Python with its streams redirected as a shell does it."""
    command = ["sh", "-c", f'"$@" {redirected}', "sh", sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [
        ("runs .", ""),
        ("options", "1"),
        ("--help", ""),
        *(
            pytest.param(*case, marks=pytest.mark.thorough)
            for case in (("runs .", "1"), ("options", ""), ("--help", "1"))
        ),
    ],
)
def test_a_full_disk_behind_the_output_is_a_line(words, unbuffered, tmp_path, monkeypatch):
    """And exit code 1: what was asked for is not there."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    ended = shell(["-m", "spreeze_zmq.commands.spreeze", *words.split()], "> /dev/full", tmp_path)
    assert ended.returncode == 1
    [line] = ended.stderr.splitlines()
    assert line.endswith(": what it prints, or a file, cannot be written: No space left on device")


def test_what_is_no_file_is_not_called_unwritten(capfd):
    """A file out of reach is named; what names none is a fault of the program, which shows its traceback."""

    @for_readers
    def main(argv=None):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), *argv)

    assert main(["a/folder"]) == 1
    assert capfd.readouterr().err.endswith(": a/folder: Is a directory\n")
    with pytest.raises(IsADirectoryError):
        main([])


def test_a_broken_pipe_of_another_reader_is_no_success(capfd):
    """Such as a worker's: what was asked for is not there."""

    @for_readers
    def main(argv=None):
        reader, writer = os.pipe()
        os.close(reader)
        os.write(writer, b"a")

    with pytest.raises(BrokenPipeError):
        main()


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_program_without_streams_does_its_work(closed, tmp_path):
    """As a daemon has none; no file that it opens gets what it prints."""
    program = "import sys; from spreeze_zmq.commands.begin import spreeze_launch; sys.exit(spreeze_launch())"
    ended = shell(["-c", program, "--env", "Pendulum-v1", "--check"], closed, tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ("nothing to mend" in ended.stdout) == (">&-" not in closed.replace("2>&-", ""))


@pytest.mark.parametrize(
    "words",
    [
        ("export", "RUN", "--onnx", "{}"),
        ("play", "RUN", "--video", "{}"),
        ("bench", "--json", "{}"),
        ("search", "pendulum", "--over", "algorithm.tau=0.1,0.2", "--png", "{}"),
        ("conform", "sampler", "--html", "{}", "--", "true"),
    ],
    ids=" ".join,
)
def test_an_output_at_a_link_that_leads_nowhere_is_a_line(words, tmp_path, capsys, monkeypatch):
    """With exit code 2, and where it takes long before any of it is done."""
    monkeypatch.chdir(tmp_path)
    link = tmp_path / f"out{'.mp4' if 'play' in words else '.onnx' if 'export' in words else '.png'}"
    link.symlink_to("missing/file")
    save(tmp_path / "RUN", "Pendulum-v1")
    assert spreeze.main([word.format(link.name) for word in words]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert f"{link.name} leads to {tmp_path}/missing/file: there is no folder {tmp_path}/missing" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["RUN", link.name]


@pytest.mark.parametrize("command", ["eval", "play", "record"])
@pytest.mark.parametrize("seed", ["-1", "4294967296", "1.5"])
def test_a_seed_that_is_none_is_a_line(command, seed, tmp_path, capsys, monkeypatch):
    """With exit code 2."""
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "RUN", "Pendulum-v1")
    with pytest.raises(SystemExit, match="2"):
        spreeze.main([command, "RUN", f"--seed={seed}"])
    [line] = capsys.readouterr().err.splitlines()
    assert f"argument --seed: '{seed}': a whole number from 0 to 2**32 - 1 is expected" in line
