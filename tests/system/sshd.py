"""An ssh server of a test's own, and the ssh command that reaches it."""

import getpass
import shutil
import socket
import subprocess
import time
from pathlib import Path

from tests.ports import free_ports

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin")
CONFIG = """
ListenAddress {address}:{port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
"""


class Server:
    """sshd in the foreground; ``ssh`` logs in as this user, by whatever name the host is called.

    Args:
        folder: for its files.
        address: to listen at.
        inside: begins the command that starts it.
    """

    def __init__(self, folder, address="127.0.0.1", inside=()):
        Path("/run/sshd").mkdir(exist_ok=True)
        for name in ("host", "user"):
            made = ["ssh-keygen", "-q", "-N", "", "-t", "ed25519", "-f", folder / name]
            subprocess.run(made, check=True)
        [self.port] = free_ports(1)
        (folder / "config").write_text(CONFIG.format(address=address, port=self.port, folder=folder))
        self.process = subprocess.Popen([*inside, SSHD, "-D", "-f", folder / "config"])
        options = {
            "HostName": address,
            "Port": self.port,
            "User": getpass.getuser(),
            "IdentityFile": folder / "user",
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "LogLevel": "ERROR",
        }
        self.ssh = "ssh -F none " + " ".join(f"-o {name}={value}" for name, value in options.items())
        until_s = time.monotonic() + 60
        while time.monotonic() < until_s:
            with socket.socket() as probe:
                if probe.connect_ex((address, self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("sshd does not listen")

    def close(self):
        """Leave nothing behind."""
        self.process.kill()
        self.process.wait()
