"""The page's scripts, run in node."""

import json
import shutil
import subprocess

import pytest

from spreeze_zmq.base.machine import shipped_folder

STATIC = shipped_folder("launch").parent / "spreeze_zmq" / "screen" / "page" / "static"
NODE = shutil.which("node")


@pytest.fixture
def told(tmp_path):
    """Runs a script beside the page's own; gives what it prints, from JSON."""
    if NODE is None:
        pytest.skip("no node here: apt-get install nodejs")
    shutil.copytree(STATIC, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("uplot*"))
    (tmp_path / "package.json").write_text('{"type": "module"}')

    def run(script, **given):
        values = "\n".join(f"const {name} = {json.dumps(value)};" for name, value in given.items())
        (tmp_path / "script.js").write_text(f"{script.strip()}\n".replace("GIVEN", values))
        done = subprocess.run([NODE, tmp_path / "script.js"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run
