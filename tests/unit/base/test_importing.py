"""What other threads import meanwhile."""

import contextlib
import importlib
import sys
import threading

from spreeze_zmq.base.importing import loaded


def test_a_module_that_another_thread_is_importing_is_given_whole(tmp_path, monkeypatch):
    """As torch in one process of all components: it was seeded before it had such a function."""
    begun = threading.Event()
    (tmp_path / "imported_slowly.py").write_text("import time\nbegun()\ntime.sleep(0.5)\nlast = 1\n")
    for name, last in (("imported_in_vain", "import no_such_one"), ("that_raises", "1 / 0")):
        (tmp_path / f"{name}.py").write_text(f"import time\nbegun()\ntime.sleep(0.5)\n{last}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("builtins.begun", begun.set, raising=False)
    for name in ("imported_slowly", "imported_in_vain", "that_raises"):
        assert loaded(name) is None
        begun.clear()
        thread = threading.Thread(target=_import, args=[name])
        thread.start()
        assert begun.wait(30)
        found = loaded(name)
        thread.join()
        assert getattr(found, "last", None) == (1 if name == "imported_slowly" else None)
    assert sys.modules.pop("imported_slowly") is not None


def _import(name):
    with contextlib.suppress(ImportError, ZeroDivisionError):
        importlib.import_module(name)
