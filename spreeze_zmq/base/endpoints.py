"""Endpoints, and the CURVE keys of tcp ones, in files that only their user may read: one pair for all runs of
a user, or those of one run that other machines join.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from spreeze_zmq.base.errors import ChannelError, InputError
from spreeze_zmq.base.files import replacing
from spreeze_zmq.base.machine import base_folder

#: The longest path of a unix socket on Linux, in bytes.
MAX_IPC_BYTES = 107


def ipc_endpoint(path: Path) -> str:
    """The endpoint of a socket at ``path``.

    Raises:
        ChannelError: the path is longer than unix sockets allow.
    """
    num_bytes = len(os.fsencode(path))
    if num_bytes > MAX_IPC_BYTES:
        raise ChannelError(
            f"{path}: the path of a socket has at most {MAX_IPC_BYTES} bytes, this one {num_bytes}; "
            "choose a shorter one"
        )
    return f"ipc://{path}"


def is_loopback(host: str) -> bool:
    """Whether a tcp host is reachable from this machine only; IPv4, as all sockets here."""
    try:
        return host == "localhost" or ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        return False


def is_address(host: str) -> bool:
    """Whether ``host`` is the IPv4 address of one machine."""
    try:
        return not ipaddress.IPv4Address(host).is_unspecified
    except ValueError:
        return False


def local_path(endpoint: str, *, has_keys: bool) -> Path | None:
    """The path of an ipc endpoint; None for tcp. Raises ChannelError for tcp beyond loopback without keys."""
    transport, _, address = endpoint.partition("://")
    if transport == "ipc" and address.startswith("/"):
        ipc_endpoint(Path(address))
        return Path(address)
    if transport == "tcp":
        if not has_keys and not is_loopback(address.rpartition(":")[0]):
            raise ChannelError(
                f"{endpoint}: without keys tcp stays on loopback (127.0.0.1): see spreeze keys"
            )
        return None
    raise ChannelError(f"{endpoint!r} is no endpoint: expected ipc:///ABSOLUTE/PATH or tcp://127.0.0.1:PORT")


#: The reason under which handshakes with wrong keys are counted as refusals.
BAD_KEYS = "bad_keys"
#: The environment variable with the path of another file of keys.
KEYS_VARIABLE = "SPREEZE_KEYS"
#: A key as ZeroMQ writes it: 32 bytes in Z85.
_Z85 = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")


@dataclass(frozen=True)
class Keys:
    """One pair of keys, each 40 characters of Z85, which an end of a channel proves to hold.

    Attributes:
        public: the public key.
        secret: the secret key.
        server: the public key of the ends that bind; empty if every process of the run has this pair.
        guests: the folder with the public keys that an end that binds accepts, one in each file; empty if it
            accepts only holders of this pair.
    """

    public: str
    secret: str
    server: str = ""
    guests: str = ""

    def __repr__(self) -> str:
        return f"Keys({self.public})"


def keys_path() -> Path:
    """``$SPREEZE_KEYS``, else ``spreeze/keys.json`` in ``$XDG_CONFIG_HOME`` or ``~/.config``; or NoHome."""
    if named := os.environ.get(KEYS_VARIABLE):
        return Path(named).absolute()
    return base_folder("XDG_CONFIG_HOME", ".config") / "spreeze" / "keys.json"


def read_keys(path: Path | None = None) -> Keys:
    """Keys from a file, by default the user's at :func:`keys_path`.

    Raises:
        InputError: there is no file, others can read it, or it does not contain keys.
    """
    path = path or keys_path()
    try:
        with path.open(encoding="utf-8-sig") as file:
            mode, owner = os.fstat(file.fileno()).st_mode, os.fstat(file.fileno()).st_uid
            text = file.read(4096)
    except FileNotFoundError:
        raise InputError(
            f"{path}: no keys there; make them with `spreeze keys`, or copy that file from the machine that "
            "the run was started on"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: the keys cannot be read: {error}") from None
    if owner != os.getuid() or mode & 0o077:
        raise InputError(f"{path}: others than its user have access to the keys: chmod 600 {path}")
    try:
        return parse_keys(text)
    except ValueError:
        raise InputError(f"{path}: no pair of keys; `spreeze keys --new` writes another one") from None


def parse_keys(text: str) -> Keys:
    """Keys from the text of their file. Raises ValueError."""
    try:
        keys = Keys(**json.loads(text))
        sound = all(map(_Z85.fullmatch, filter(None, (keys.public, keys.secret, keys.server))))
    except TypeError:
        sound = False
    if not sound:
        raise ValueError("no pair of keys")
    return keys


def write_keys(keys: Keys, path: Path | None = None) -> Path:
    """Write keys with mode 0600, by default to :func:`keys_path`, replacing earlier ones; returns the path.

    Raises:
        InputError: the file cannot be written.
    """
    path = path or keys_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(path) as temporary:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump({name: value for name, value in asdict(keys).items() if value}, file)
    except OSError as error:
        raise InputError(f"{path}: the keys cannot be written: {error.strerror}") from error
    return path
