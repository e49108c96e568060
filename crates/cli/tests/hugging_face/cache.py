"""Makes a cache by huggingface_hub's own functions from a server on this machine, or opens one without a network.

    cache.py make HUB_DIRECTORY     prints the snapshot's path
    cache.py open HUB_DIRECTORY     prints the digest of every file that the library finds there
"""

import hashlib
import http.server
import os
import sys
import threading

REPO, COMMIT = "org/name", "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": b'{"layers": 2}\n',
    "model-00001-of-00002.safetensors": bytes(range(256)) * 3000,
    "model-00002-of-00002.safetensors": bytes(reversed(range(256))) * 5000,
    "nested/tokenizer.json": b"{}\n",
}


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers what the library asks for one file."""

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.wfile.write(self.answer())

    def answer(self):
        contents = FILES.get(self.path.partition(f"/{REPO}/resolve/")[2].partition("/")[2])
        self.send_response(404 if contents is None else 200)
        contents = contents or b""
        self.send_header("Content-Length", str(len(contents)))
        self.send_header("ETag", f'"{hashlib.sha256(contents).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        return contents

    def log_message(self, *_):
        pass


def make(directory):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["HF_ENDPOINT"] = f"http://127.0.0.1:{server.server_port}"
    from huggingface_hub import hf_hub_download

    for name in FILES:
        path = hf_hub_download(REPO, name, cache_dir=directory)
    print(path.partition("/nested")[0])


def open_offline(directory):
    os.environ["HF_HUB_OFFLINE"] = "1"
    from huggingface_hub import hf_hub_download, scan_cache_dir, snapshot_download

    for name, contents in FILES.items():
        with open(hf_hub_download(REPO, name, cache_dir=directory), "rb") as file:
            found = file.read()
        assert found == contents, name
        print(hashlib.sha256(found).hexdigest(), name)
    assert os.path.isdir(snapshot_download(REPO, cache_dir=directory))
    report = scan_cache_dir(directory)
    assert not report.warnings, report.warnings
    print(report.size_on_disk, "bytes in", len(report.repos), "repository")


if __name__ == "__main__":
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    {"make": make, "open": open_offline}[sys.argv[1]](sys.argv[2])
