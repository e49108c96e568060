#!/usr/bin/env python3
"""Serves one file at every path, in ranges, to each client address at most at a rate: as a store that limits each host.

usage: tools/lab/limited_web.py FILE PORT BYTES_PER_SECOND
"""

import sys
import threading
import time
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PART_BYTES = 64 << 10


class Limit:
    """Lets one client take bytes at a rate, over all of its connections."""

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self.lock = threading.Lock()
        self.free_at = 0.0

    def take(self, count: int) -> None:
        """Waits until the client may have this many more bytes."""
        with self.lock:
            now = time.monotonic()
            self.free_at = max(self.free_at, now) + count / self.bytes_per_second
            wait_s = self.free_at - now
        time.sleep(wait_s)


def main() -> None:
    """Serves until it is killed."""
    contents = Path(sys.argv[1]).read_bytes()
    rate = float(sys.argv[3])
    limits: dict[str, Limit] = defaultdict(lambda: Limit(rate))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            """Answers with the range that is asked for."""
            first, last = 0, len(contents) - 1
            wanted = self.headers.get("Range", "")
            if wanted.startswith("bytes="):
                start, end = wanted.removeprefix("bytes=").split("-")
                first, last = int(start), min(int(end or last), last)
            self.send_response(206)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(contents)}")
            self.send_header("Content-Length", str(last + 1 - first))
            self.end_headers()
            for start in range(first, last + 1, PART_BYTES):
                part = contents[start : min(start + PART_BYTES, last + 1)]
                limits[self.client_address[0]].take(len(part))
                self.wfile.write(part)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    ThreadingHTTPServer(("", int(sys.argv[2])), Handler).serve_forever()


main()
