"""One end of a channel: a ZeroMQ socket."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import zmq

from spreeze_zmq.base.endpoints import Keys, local_path
from spreeze_zmq.base.errors import ChannelError, EndpointTaken, WireError
from spreeze_zmq.wire import (
    MAX_ARRAYS,
    MAX_FRAME_BYTES,
    Buffer,
    Message,
    claims_of,
    decode,
    encode_from,
    frozen,
)
from spreeze_zmq.wire.channels.connections import ZERO_COPY_BYTES, KernelBuffer, Upload, set_options
from spreeze_zmq.wire.channels.contexts import this_thread
from spreeze_zmq.wire.channels.handshakes import Handshakes
from spreeze_zmq.wire.channels.locks import Claim
from spreeze_zmq.wire.channels.refusals import Refusals

#: Most messages that one call refuses, so that a flood of them cannot stop a process.
MOST_REFUSED_AT_ONCE = 1000
#: Frames that are kept of one message, more than any may have: an address, a header and arrays. Of those
#: behind them, of which there may be millions, one call passes over so many.
FRAMES_KEPT, PASSED_AT_ONCE = MAX_ARRAYS + 3, 5000
_SNDMORE = int(zmq.SNDMORE)  # the enum member costs a conversion at each use


class Channel:
    """One end of a channel. It belongs to the thread that opened it.

    Args:
        endpoint: ``ipc://PATH`` or ``tcp://HOST:PORT``, which needs ``keys`` beyond loopback.
        sender: name of this process, written into every message that it sends.
        incarnation: number of this start of the process, written into them likewise.
        bind: this end binds the endpoint; else it connects, retrying until the other end exists.
        kinds: the kinds of message that the channel carries; empty for all.
        high_water_mark: messages queued at this end for, or from, each peer.
        socket_buffer_bytes: the kernel's buffer of each connection (SNDBUF, RCVBUF); 0 for the system's own.
        linger_s: how long queued messages may take to leave after ``close``; always 0 for a receiving end.
        keys: of a tcp endpoint, to encrypt and authenticate with.
        remote: a tcp endpoint that this end binds too, with the system's own kernel buffers; then ``keys``
            are for this one alone.

    Attributes:
        refusals: the refused messages, for reports.
        on_refused: called with the unverified origin and fields of a message that cannot be read.
        endpoint: as given, with the port that the system chose for ``:*``.
        remote: likewise; empty without one.
        record: called with whether a message was sent, and its frames; None to record nothing.

    Raises:
        EndpointTaken: another process has the endpoint's port.
        ChannelError: the endpoint is too long, of another transport or beyond loopback without keys.
    """

    _type: int
    _is_looked_at = False
    #: Upper bound of what comes to an end of this class, in bytes of a frame.
    _most_bytes = MAX_FRAME_BYTES
    _is_within = False

    def __init__(
        self,
        endpoint: str,
        *,
        sender: str = "",
        incarnation: int = 0,
        bind: bool = False,
        kinds: Collection[str] = (),
        high_water_mark: int = 1000,
        socket_buffer_bytes: int = 0,
        linger_s: float = 1.0,
        keys: Keys | None = None,
        remote: str = "",
    ) -> None:
        self.sender = sender
        self.incarnation = incarnation
        self.kinds = frozenset(kinds)
        self.remote = ""
        self.record: Callable[[bool, Sequence[Buffer]], None] | None = None
        self.on_refused: Callable[[Message], None] = lambda claims: None
        self.refusals = Refusals(endpoint)
        path = local_path(endpoint, has_keys=keys is not None)
        self._claim = Claim.take(path) if bind and path is not None else None
        self.socket: zmq.Socket[bytes] = this_thread.context.socket(self._type)
        # The backend's ``send``: checks of unused options in pyzmq's wrapper would double its time.
        self.send_frame: Callable[[Buffer | zmq.Frame, int, bool], Any] = super(  # type: ignore[misc]
            zmq.Socket, self.socket
        ).send
        # ZeroMQ sets these of tcp connections alone; an ipc one has its own.
        self._set_options(high_water_mark, 0 if path else socket_buffer_bytes, linger_s)
        self._timeout_ms = 0
        self._handshakes: Handshakes | None = None
        self._kernel_buffer: KernelBuffer | None = None
        if path is not None and socket_buffer_bytes and self._type == zmq.PUSH and not bind:
            self._kernel_buffer = KernelBuffer(self.socket, path, socket_buffer_bytes)
        if keys is not None and not remote:
            self._set_keys(keys, endpoint, bind=bind)
        self.endpoint = self._open(endpoint, bind=bind)
        if remote:  # the options of a socket hold for the endpoints that it binds from then on
            assert keys is not None
            assert bind
            self._set_keys(keys, remote, bind=True)
            self.socket.sndbuf = self.socket.rcvbuf = -1
            self.remote = self._open(remote, bind=True)

    def _set_keys(self, keys: Keys, endpoint: str, *, bind: bool) -> None:
        self._handshakes = Handshakes(
            self.socket,
            keys,
            bind=bind,
            endpoint=endpoint,
            is_looked_at=bind and self._is_looked_at,
            refuse=self.refusals.refuse,
        )
        if bind:
            this_thread.accept(keys)

    def _open(self, endpoint: str, *, bind: bool) -> str:
        """Bind or connect; returns the endpoint, with the port that the system chose."""
        try:
            if bind:
                self.socket.bind(endpoint)
            else:
                self.socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            if error.errno == errno.EADDRINUSE:
                raise EndpointTaken(endpoint) from error
            verb = "bound" if bind else "connected to"
            raise ChannelError(f"{endpoint} cannot be {verb}: {error.strerror}") from error
        return self.socket.getsockopt_string(zmq.LAST_ENDPOINT) if bind else endpoint

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.endpoint})"

    def _set_options(self, high_water_mark: int, socket_buffer_bytes: int, linger_s: float) -> None:
        set_options(self.socket, self.kinds, high_water_mark, socket_buffer_bytes, linger_s, self._most_bytes)

    def refuse(self, error: WireError, sender: str, kind: str) -> None:
        """Count a message that this end has returned and that cannot be used; log why, at a limited rate."""
        self.refusals.refuse(error, sender, kind, taken=True)

    def attend(self) -> str:
        """Count the handshakes that have failed since the last call, as ``poll`` does after each wait.

        Returns:
            Why the other end will never accept this one; empty while it may.
        """
        if self._handshakes is None:
            return ""
        self._handshakes.serve()
        return self._handshakes.why_refused

    @property
    def is_replaced(self) -> bool:
        """Whether the other end, which accepted this one, is gone, and another is there with other keys."""
        return self._handshakes is not None and self._handshakes.is_replaced

    def upload(self) -> Upload | None:
        """Have each connection to another machine be one that sends; None where it is no other machine."""
        if self._handshakes is None:
            return None
        upload = Upload(self.remote or self.endpoint)
        self._handshakes.on_connected = upload.begin
        return upload

    def close(self) -> None:
        """Close the socket; queued messages still leave within ``linger_s``.

        ZeroMQ removes the file of a bound socket later, in its own thread. The endpoint therefore stays
        claimed until ``terminate``; otherwise ZeroMQ could remove the file of the next process that binds it.
        """
        for watch in (self._kernel_buffer, self._handshakes):
            if watch is not None:
                watch.close()
        self.socket.close()
        if self._claim is not None:
            this_thread.claims_of_closed.append(self._claim)
            self._claim = None

    def _encode(self, message: Message, sequence: int) -> list[Buffer]:
        """The frames of ``message`` with this end as its origin; its large arrays become read-only."""
        if self.kinds and message.kind not in self.kinds:
            raise WireError("wrong_kind", f"a {message.kind} message does not travel on {self.endpoint}")
        frames = encode_from(message, self.sender, self.incarnation, sequence)
        for position in range(1, len(frames)):
            if len(frames[position]) >= ZERO_COPY_BYTES:
                frames[position] = frozen(frames[position])
        return frames

    def _wait_at_most(self, timeout_s: float) -> None:
        """Set the longest wait of the next ``_send`` or ``_receive``."""
        timeout_ms = math.ceil(1000 * timeout_s)
        if timeout_ms != self._timeout_ms:
            self.socket.sndtimeo = self.socket.rcvtimeo = self._timeout_ms = timeout_ms

    def _send(self, frames: list[Buffer]) -> bool:
        """Send; False if no queue has room, which only the first frame can show."""
        send, left = self.send_frame, len(frames)
        try:
            for frame in frames:
                left -= 1
                send(frame, _SNDMORE if left else 0, len(frame) < ZERO_COPY_BYTES)
        except zmq.Again:
            return False
        if self.record is not None:
            self.record(True, frames)
        return True

    def forward(self, frames: list[Buffer]) -> bool:
        """Send the frames of another process's message, unchecked; False if no queue has room."""
        self._wait_at_most(0.0)
        return self._send(frames)

    def _receive(self) -> Message | None:
        """The next valid message; None if none waits, or after ``MOST_REFUSED_AT_ONCE`` refused ones."""
        for _ in range(MOST_REFUSED_AT_ONCE):
            if (frames := self._receive_frames()) is None:
                return None
            if (message := self._taken(frames)) is not None:
                return message
        return None

    def _taken(self, frames: list[Buffer]) -> Message | None:
        """The message of these frames, counted; None for one that is refused."""
        if self.record is not None:
            self.record(False, frames)
        try:
            message = decode(frames)
            if self.kinds and message.kind not in self.kinds:
                raise WireError("wrong_kind", f"a {message.kind} message on {self.endpoint}")
        except WireError as error:
            claims = claims_of(frames)
            self.refusals.refuse(error, claims.sender, claims.kind)
            self.on_refused(claims)
            return None
        self.refusals.take(message.sender, message.kind)
        return message

    def _receive_frames(self) -> list[Buffer] | None:
        """The frames of the next message, as :meth:`take_frames`; None if none waits."""
        if not (frames := self.take_frames()):
            return None
        # The header: a small copy costs less than a view.
        return [frames[0].bytes, *[frame.buffer for frame in frames[1:]]]

    def take_frames(self) -> list[zmq.Frame]:
        """The frames of the next message; empty if none waits. Of one with too many the first ones come, and
        the rest is passed over by the next calls.
        """
        receive = self.socket.recv
        try:
            if self._is_within and not self._pass_over():
                return []
            frames = [receive(copy=False)]
        except zmq.Again:
            return []
        while frames[-1].more and len(frames) < FRAMES_KEPT:
            frames.append(receive(copy=False))
        self._is_within = frames[-1].more
        return frames

    def _pass_over(self) -> bool:
        """Pass over frames of a message with too many; whether its end has come."""
        return any(not self.socket.recv(copy=False).more for _ in range(PASSED_AT_ONCE))
