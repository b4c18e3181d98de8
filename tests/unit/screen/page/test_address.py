"""The page's port and its address."""

import socket
import tempfile
from pathlib import Path

import pytest

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder, write_plan
from spreeze_zmq.run.history import read_run
from spreeze_zmq.screen.page import address
from tests.rights import root_only, without_rights


def test_a_visitor_is_noticed_and_waits():
    """Before anybody serves: the connection stands, and the port says that it is wanted."""
    listener = address.open_port(0)
    assert not address.is_wanted(listener)
    with socket.create_connection(listener.getsockname(), timeout=5) as visitor:
        assert address.is_wanted(listener)
        visitor.send(b"x")
    listener.close()


def test_a_taken_port_is_one_line():
    """It names the port and the option that mends it."""
    first = address.open_port(0)
    port = first.getsockname()[1]
    with pytest.raises(
        InputError, match=rf"^port {port} .*in use; write another components\.visualizer\.port"
    ):
        address.open_port(port)
    first.close()


def test_the_address_stands_in_the_folder_until_the_port_is_closed(tmp_path):
    """A new token each time, readable by the user alone; a dead run's address is not taken for a live one."""
    folder, listener = RunFolder.create("run", str(tmp_path / "run")), address.open_port(0)
    _, sockets = write_plan(topology.load("pendulum"), folder)
    assert address.of_live_run(folder) is None
    first, second = (address.publish(folder, listener) for _ in range(2))
    assert first != second
    assert second == folder.page_address.read_text().strip()
    assert second.split("/")[3] == address.token_of(folder.page_address)
    assert folder.page_address.stat().st_mode & 0o777 == 0o600
    assert address.of_live_run(folder) == second
    sockets.remove()
    assert address.of_live_run(folder) is None, "another program may have the port"
    listener.close()


@root_only
def test_who_may_read_a_live_run_sees_that_it_lives_and_not_where_its_page_is():
    """Its user has opened its folder for others, to whom it had seemed to have crashed."""
    listener = address.open_port(0)
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder.create("run", f"{place}/run")
        _, sockets = write_plan(topology.load("pendulum"), folder)
        address.publish(folder, listener)
        for path in (Path(place), folder.path):
            path.chmod(0o755)
        with without_rights():
            state, found = read_run(folder.path).state, address.of_live_run(folder)
        sockets.remove()
    listener.close()
    assert (state, found) == ("running", None)


def test_a_missing_address_is_one_line(tmp_path):
    """The file's name stands in it."""
    with pytest.raises(InputError, match=r"page\.url, the page's address: No such file"):
        address.token_of(RunFolder(tmp_path).page_address)
