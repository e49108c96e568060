"""Messages between processes of one host, over Unix sockets that pass files."""

from __future__ import annotations

import json
import os
import socket
import struct
from contextlib import suppress
from io import FileIO
from typing import Any

from rdmc._text import as_utf8
from rdmc.errors import Aborted, Corrupt, Differs, MemberLost, Refused, Stalled

# Longest reason sent to other processes, in bytes of UTF-8; each takes at most six bytes in JSON.
_REASON_BYTES = 4096
_MESSAGE_BYTES = 8 * _REASON_BYTES
# Shortest wait in seconds: 0 would make the socket non-blocking, which raises a different error.
SHORTEST_WAIT = 0.001
_CREDENTIALS = struct.Struct("3i")
_KINDS = {kind.__name__: kind for kind in (MemberLost, Stalled, Corrupt, Differs, Refused, Aborted)}


class Channel:
    """A connection to a process of this host, which errors name by its rank.

    Either end may end the group; the other end raises the same exception, even if the process that sent it is gone.
    """

    def __init__(self, connection: socket.socket, rank: int) -> None:
        self._connection = connection
        self.rank = rank

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._connection.fileno()

    def send(self, message: dict[str, Any], file: FileIO | None, seconds: float) -> None:
        """Sends a message and a file; waits for at most ``seconds``."""
        files = [] if file is None else [file.fileno()]
        try:
            self._connection.settimeout(max(seconds, SHORTEST_WAIT))
            socket.send_fds(self._connection, [json.dumps(message).encode()], files)
            return
        except OSError as error:
            lost = self._lost(error)
        # The other end may have sent why it ended.
        self.receive(SHORTEST_WAIT)
        raise lost

    def receive(self, seconds: float) -> tuple[dict[str, Any], FileIO | None]:
        """Returns the next message and its file; waits for at most ``seconds``."""
        try:
            self._connection.settimeout(max(seconds, SHORTEST_WAIT))
            try:
                content, file = self._received()
            except ConnectionError:
                # If the other end closed with unread data, the system reports that before its last message.
                content, file = self._received()
        except TimeoutError:
            raise Stalled(self.rank, f"rank {self.rank} did not respond within {round(seconds, 1):g} s") from None
        except OSError as error:
            raise self._lost(error) from None
        if not content:
            raise MemberLost(self.rank, f"rank {self.rank} has ended")
        try:
            message = json.loads(content)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise MemberLost(self.rank, f"rank {self.rank} sent data that is not a message of a group")
        if "ended" in message:
            rank = message.get("rank")
            kind = _KINDS.get(str(message["ended"]), MemberLost)
            raise kind(rank if isinstance(rank, int) else None, str(message.get("reason")))
        return message, file

    def end(self, error: MemberLost) -> None:
        """Sends the other end the cause, and ends the connection, which also ends a wait on another thread."""
        message = {"ended": type(error).__name__, "rank": error.rank, "reason": _cut(error.reason)}
        # An end that is gone or does not read learns of it from the connection.
        with suppress(OSError):
            self._connection.settimeout(SHORTEST_WAIT)
            socket.send_fds(self._connection, [json.dumps(message).encode()], [])
        # A child of fork may hold a copy of the socket: close alone would not end the connection.
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Frees the socket."""
        self._connection.close()

    def _received(self) -> tuple[bytes, FileIO | None]:
        content, files, _, _ = socket.recv_fds(self._connection, _MESSAGE_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        return content, FileIO(files[0], "r+b") if files else None

    def _lost(self, error: OSError) -> MemberLost:
        return MemberLost(self.rank, f"rank {self.rank} has ended ({error})")


def is_own(connection: socket.socket) -> bool:
    """Whether the other end belongs to the same user. Names of abstract sockets are not secret."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(credentials)[1] == os.geteuid())


def _cut(reason: str) -> str:
    content = as_utf8(reason).encode()
    if len(content) <= _REASON_BYTES:
        return content.decode()
    return content[:_REASON_BYTES].decode("utf-8", "ignore") + "..."
