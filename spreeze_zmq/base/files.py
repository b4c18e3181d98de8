"""Files of which a reader never sees half: they are written beside their place and moved there when complete.

JSON files hold no NaN and no numpy, so that any program can read them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import json
import math
import os
import pwd
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from spreeze_zmq.base.errors import InputError, NoHome
from spreeze_zmq.base.patience import patient

#: The best policy, in a run's folder.
POLICY_FILE = "policy.safetensors"
#: How a file comes to its place: the path at which to write it is given, which is where it appears.
Way = Callable[[Path], contextlib.AbstractContextManager[Path]]
#: Least number of a descriptor that processes inherit by its number.
LEAST_INHERITED = 200
#: What a file system says that has no fsync of folders.
CANNOT_SYNC = (errno.EINVAL, errno.EBADF, errno.ENOTSUP)
#: Of Linux, and the folder whose files are in memory.
MFD_CLOEXEC, SHARED_MEMORY = 1, "/dev/shm"
#: Prefix of half-written files.
TEMPORARY = ".writing-"


def home() -> Path:
    """The user's home folder. Raises NoHome."""
    if os.path.isabs(found := os.path.expanduser("~")):
        return Path(found)
    raise NoHome


def file_name(text: str) -> str:
    """A text as the name of a file or folder: others than letters, digits, dots, - and _ become _."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)


@contextlib.contextmanager
def replacing(
    path: Path, *, sync: bool = False, place: Callable[[Path, Path], object] | None = None
) -> Iterator[Path]:
    """The path at which to write a file, which then replaces ``path``; nothing is left where that fails.

    Args:
        path: where the file appears; the one to write has the same suffix, and a name that no other has:
            processes of several machines and containers share folders, and have the same ids.
        sync: whether the whole file or the earlier one is there even after a power failure.
        place: gives the written file its name, by default in place of an earlier one.
    """
    temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(4)}-{path.name}")
    try:
        yield temporary
        if sync:
            _sync(temporary)
        (place or os.replace)(temporary, path)
        if sync:
            _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, write: Callable[[Path], object], way: Way = replacing) -> None:
    """Have ``write`` write a file, which appears when it is complete; waits while its disk is full.

    Args:
        path: where the file appears.
        write: writes the file at the path that it is given, and is called again after a disk was full, also
            where only the flush to the disk says that: what it takes the content from must still be there.
        way: ``replacing`` or ``output``.
    """

    def once() -> None:
        with way(path) as beside:
            write(beside)

    patient(once, path)


def copy_whole(source: Path, path: Path) -> None:
    """Copy a file, as :func:`write_whole` writes one."""
    write_whole(path, lambda beside: shutil.copyfile(source, beside))


#: As ``replacing``, and a power failure leaves the whole file or the earlier one, too.
safely: Way = functools.partial(replacing, sync=True)


def check_output(path: Path) -> None:
    """Raise InputError where no file can be written at a path that the user has named."""
    if path.is_dir():
        raise InputError(f"{path} is a folder, the name of a file is expected")
    end = path
    if path.is_symlink() and not path.exists():
        end = Path(os.path.realpath(path))
        if end.is_symlink():
            raise InputError(f"{path} is a link that leads to itself, the name of a file is expected")
    if not end.parent.is_dir():
        leads = f" leads to {end}" * (end != path)
        raise InputError(f"{path}{leads}: there is no folder {end.parent}")
    place = path if _stays(path) and path.exists() else end.parent
    if not os.access(place, os.W_OK):
        raise InputError(f"{path} cannot be written: {place} is not yours to write to")


@contextlib.contextmanager
def output(path: Path) -> Iterator[Path]:
    """As ``replacing``, for a path that the user has named. What is there and is no file, such as a link, a
    device or the pipe of /dev/stdout, stays, and is written into.

    Raises:
        InputError: no file can be written there.
    """
    check_output(path)
    if not _stays(path):
        with replacing(path) as temporary:
            yield temporary
        return
    with tempfile.TemporaryDirectory() as folder:
        yield (whole := Path(folder) / path.name)
        with whole.open("rb") as content, path.open("wb") as into:
            shutil.copyfileobj(content, into)


def _stays(path: Path) -> bool:
    """Whether something is there that a file must not take the place of."""
    return path.is_symlink() or (path.exists() and not path.is_file())


#: How files are opened that this package appends to: a link, which may lead anywhere, is refused.
APPENDS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def append_to(path: Path) -> BinaryIO:
    """Open a file to append to and to read, made where it is missing.

    Raises:
        OSError: it is a link, or cannot be opened.
    """
    return os.fdopen(os.open(path, APPENDS, 0o666), "a+b")


def append_text(path: Path) -> TextIO:
    """The same for text, which is flushed at each end of line."""
    return os.fdopen(os.open(path, APPENDS, 0o666), "a", buffering=1, encoding="utf-8")


def read_whole(path: Path, most_bytes: int) -> bytes:
    """The bytes of a file that may be anybody's; nobody waits for a FIFO.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no file, or is larger.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is no file")
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"it has more than {most_bytes:,} bytes")
    return content


def _sync(path: Path) -> None:
    """Flush a file or folder to the disk; some network file systems cannot for a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in CANNOT_SYNC or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def memory_file(name: str) -> int:
    """The descriptor of an empty file in memory, which programs that are executed do not inherit.

    Pythons built against a glibc before 2.27, as some of conda and uv, have no ``os.memfd_create``, though
    the machine's library may; where neither has it, the file is one without a name in /dev/shm.

    Args:
        name: that /proc shows.

    Raises:
        OSError: there is no room for it.
    """
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    import ctypes  # few Pythons need it

    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "memfd_create"):
        descriptor: int = libc.memfd_create(name.encode(), MFD_CLOEXEC)
        if descriptor < 0:
            raise OSError(number := ctypes.get_errno(), os.strerror(number))
        return descriptor
    folder = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    with tempfile.TemporaryFile(dir=folder) as file:
        return os.dup(file.fileno())


def for_children(descriptor: int) -> int:
    """The same open file at a number that is free in a process which inherits it by that number: a forked one
    may have opened low ones by itself, as ZeroMQ does at the fork.
    """
    try:
        high: int = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, LEAST_INHERITED)
    except OSError:  # the limit of open files is lower
        return descriptor
    os.close(descriptor)
    return high


def plain(value: Any) -> Any:
    """Convert a value to JSON's types; NaN and infinities become None, arrays become lists.

    Raises:
        TypeError: a part of the value has no JSON type.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # numpy arrays and scalars, without importing numpy
        return plain(value.tolist())
    raise TypeError(f"{type(value).__name__} has no place in JSON: {value!r:.80}")


def write_json(path: Path, value: Mapping[str, Any], way: Way = replacing, *, indent: int | None = 1) -> None:
    """Write ``value`` in :func:`plain` form, by ``replacing`` or as ``output``; one line, without an indent,
    costs far less.
    """
    text = json.dumps(plain(value), indent=indent, allow_nan=False) + "\n"
    write_whole(path, lambda beside: beside.write_text(text), way)


def user_name(uid: int) -> str:
    """A user as a message names one."""
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user {uid}"
