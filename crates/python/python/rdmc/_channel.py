"""Messages between processes of one host, by Unix sockets that carry files."""

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

# Longest reason that is told to others, in bytes of UTF-8: JSON makes at most six bytes of each.
_REASON_BYTES = 4096
_MESSAGE_BYTES = 8 * _REASON_BYTES
# Shortest wait: 0 would mean that the socket does not wait at all, which is another error.
SHORTEST_WAIT = 0.001
_CREDENTIALS = struct.Struct("3i")
_KINDS = {kind.__name__: kind for kind in (MemberLost, Stalled, Corrupt, Differs, Refused, Aborted)}


class Channel:
    """A connection to a process of this host, which errors name by its rank.

    Either end may end the group: what it said is raised at the other as the exception that it was, also after the process is gone.
    """

    def __init__(self, connection: socket.socket, rank: int) -> None:
        self._connection = connection
        self.rank = rank

    def fileno(self) -> int:
        """Of the socket."""
        return self._connection.fileno()

    def send(self, message: dict[str, Any], file: FileIO | None, seconds: float) -> None:
        """Sends a message and a file, waiting for at most so long."""
        files = [] if file is None else [file.fileno()]
        try:
            self._connection.settimeout(max(seconds, SHORTEST_WAIT))
            socket.send_fds(self._connection, [json.dumps(message).encode()], files)
            return
        except OSError as error:
            lost = self._lost(error)
        # It may have said why it ended.
        self.receive(SHORTEST_WAIT)
        raise lost

    def receive(self, seconds: float) -> tuple[dict[str, Any], FileIO | None]:
        """The next message, and the file that came with it, waiting for at most so long."""
        try:
            self._connection.settimeout(max(seconds, SHORTEST_WAIT))
            try:
                content, file = self._received()
            except ConnectionError:
                # Of an end that has not read all, the system tells before what came from it.
                content, file = self._received()
        except TimeoutError:
            raise Stalled(self.rank, f"rank {self.rank} was waited for longer than {round(seconds, 1):g} s") from None
        except OSError as error:
            raise self._lost(error) from None
        if not content:
            raise MemberLost(self.rank, f"rank {self.rank} has ended")
        try:
            message = json.loads(content)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise MemberLost(self.rank, f"rank {self.rank} has sent what is no message of a group")
        if "ended" in message:
            rank = message.get("rank")
            kind = _KINDS.get(str(message["ended"]), MemberLost)
            raise kind(rank if isinstance(rank, int) else None, str(message.get("reason")))
        return message, file

    def end(self, error: MemberLost) -> None:
        """Tells the other end why the group has ended, and ends the connection. Also for a call on another thread that waits."""
        message = {"ended": type(error).__name__, "rank": error.rank, "reason": _cut(error.reason)}
        # One that is gone, or does not read, learns of it by the connection.
        with suppress(OSError):
            self._connection.settimeout(SHORTEST_WAIT)
            socket.send_fds(self._connection, [json.dumps(message).encode()], [])
        # A child of fork may hold a copy of it: closing would not end it.
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
    """Whether the other end is of the same user. Names of abstract sockets are no secret."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(credentials)[1] == os.geteuid())


def _cut(reason: str) -> str:
    content = as_utf8(reason).encode()
    if len(content) <= _REASON_BYTES:
        return content.decode()
    return content[:_REASON_BYTES].decode("utf-8", "ignore") + "..."
