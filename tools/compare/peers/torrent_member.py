"""A member of `./dev bench fetch` that uses libtorrent.

torrent_member.py seed ADDRESS TORRENT FILE                  writes TORRENT, prints `ready`, and sends FILE to others until it is killed
torrent_member.py fetch ADDRESS TORRENT DIRECTORY SHARE_S    prints `ready`, reads a line with the addresses of its peers, gets the file into
                                                             DIRECTORY, prints `complete`, and sends to others for that many seconds more

Peers are those of that line alone, which is what a tracker would answer, and whom these know.
"""

import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any

_PORT = 6881
_TIMEOUT_S = 3600
# No discovery, and TCP alone: uTP yields to other connections on the same link. Rates have no limits by default. The others are for a short
# download: by default 8 peers are sent to at a time, changed every 15 s, connections that failed are tried again after 60 s, and blocks are
# requested 3 s ahead, so that more of them are requested from the server by several hosts.
_SETTINGS = {
    "enable_dht": False, "enable_lsd": False, "enable_upnp": False, "enable_natpmp": False, "enable_incoming_utp": False, "enable_outgoing_utp": False,
    "unchoke_slots_limit": 64, "min_reconnect_time": 1, "smooth_connects": False, "request_queue_time": 1}
# Of about this many a file is made; a piece has at least one of BitTorrent's blocks.
_PIECES, _BLOCK_BYTES = 2048, 16384


class Member:
    """A session with one torrent."""

    def __init__(self, address: str) -> None:
        # Not everywhere where types are checked.
        self._library: Any = importlib.import_module("libtorrent")
        categories = self._library.alert.category_t
        self._session = self._library.session({
            **_SETTINGS, "listen_interfaces": f"{address}:{_PORT}", "outgoing_interfaces": address,
            "alert_mask": categories.error_notification | categories.status_notification | categories.storage_notification})
        self._torrent: Any = None

    def write_torrent(self, torrent: Path, file: Path) -> None:
        """With SHA-1 of each piece."""
        files = self._library.list_files(str(file))
        made = self._library.create_torrent(files, piece_bytes(file.stat().st_size), self._library.create_torrent.v1_only)
        self._library.set_piece_hashes(made, str(file.parent))
        torrent.write_bytes(self._library.bencode(made.generate()))

    def add(self, torrent: Path, directory: Path, is_complete: bool) -> None:
        """A complete file is not read again."""
        added = self._library.load_torrent_file(str(torrent))
        added.save_path = str(directory)
        flags = self._library.torrent_flags
        added.flags = flags.seed_mode if is_complete else 0
        self._torrent = self._session.add_torrent(added)

    def connect(self, addresses: list[str]) -> None:
        for address in addresses:
            self._torrent.connect_peer((address, _PORT))

    def await_copy(self) -> None:
        """Until the copy is complete, and written."""
        self._await("torrent_finished_alert")
        self._torrent.flush_cache()
        self._await("cache_flushed_alert")

    def _await(self, kind: str) -> None:
        until = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < until:
            self._session.wait_for_alert(1000)
            for alert in self._session.pop_alerts():
                name = type(alert).__name__
                if name == kind:
                    return
                if name in ("file_error_alert", "listen_failed_alert", "torrent_error_alert"):
                    sys.exit(f"{name}: {alert.message()}")
        sys.exit(f"no {kind} after {_TIMEOUT_S} s")


def piece_bytes(length: int) -> int:
    """A power of two."""
    found = _BLOCK_BYTES
    while found * _PIECES < length:
        found *= 2
    return found


def _say(word: str) -> None:
    print(word, flush=True)


def _write_to_disk(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def _seed(address: str, torrent: Path, file: Path) -> None:
    member = Member(address)
    member.write_torrent(torrent, file)
    member.add(torrent, file.parent, True)
    _say("ready")
    time.sleep(_TIMEOUT_S)


def _fetch(address: str, torrent: Path, directory: Path, share_s: float) -> None:
    importlib.import_module("libtorrent")
    _say("ready")
    peers = sys.stdin.readline().split()
    member = Member(address)
    member.add(torrent, directory, False)
    member.connect(peers)
    member.await_copy()
    for file in directory.iterdir():
        _write_to_disk(file)
    _say("complete")
    time.sleep(share_s)


def main() -> None:
    role, address, torrent, place, *share_s = sys.argv[1:]
    if role == "seed":
        _seed(address, Path(torrent), Path(place))
    else:
        _fetch(address, Path(torrent), Path(place), float(share_s[0]))
    # Without what libtorrent does in the end, which takes up to some seconds: nobody waits for it.
    os._exit(0)


if __name__ == "__main__":
    main()
