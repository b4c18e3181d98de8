"""A broker whose second life begins when its start has been seen."""

from pathlib import Path

SHIPPED = Path(__file__).parents[2] / "components" / "broker" / "component.toml"
#: Of its folder: there is a file once it has lived, and its next life waits for another one.
LIVED, SEEN = "lived", "seen"
PROGRAM = f"""
import runpy, time
from pathlib import Path

folder = Path(__file__).parent
while (folder / "{LIVED}").exists() and not (folder / "{SEEN}").exists():
    time.sleep(0.05)
(folder / "{LIVED}").touch()
runpy.run_module("spreeze_zmq.components.broker", run_name="__main__")
"""


def returning_broker(folder):
    """Make the folder of such a component; returns it."""
    folder.mkdir()
    (folder / "component.toml").write_text(SHIPPED.read_text())
    (folder / "__main__.py").write_text(PROGRAM)
    return folder
