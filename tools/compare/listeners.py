"""What listens on the hosts of a lab, and the programs that copy to them."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lab import Host, Site
from programs import Built, Failed, Launch, Program, Programs, run_all

_RDMC_PORT, _RSYNC_PORT, _SSH_PORT, _CHAIN_PORT = 7000, 8730, 2222, 7001
_START_TIMEOUT_S = 20
# For one copy.
_COPY_TIMEOUT_S = 3600
_INTERVAL_S = 0.005
SSHD = "/usr/sbin/sshd"
# 64 KiB at once instead of 8 and 10.
_RECEIVE = "socat -u -b 65536 TCP-LISTEN:$port,bind=$own,reuseaddr STDOUT"
_SEND = "socat -u -b 65536 STDIN TCP:$next:$port"
_PACK = 'tar --create --blocking-factor=128 --directory="$parent" "$name"'
_UNPACK = 'tar --extract --blocking-factor=128 --directory="$directory"'


def start(programs: Programs, launch: Launch, log: Path, is_ready: Callable[[Program], bool], what: str) -> Program:
    """Starts a program whose messages go into a file, and waits until it is ready."""
    with log.open("wb") as errors:
        program = programs.start(launch, stderr=errors)
    until = time.monotonic() + _START_TIMEOUT_S
    while not is_ready(program):
        if program.process.poll() is not None or time.monotonic() > until:
            raise Failed(f"{what} does not listen: {log.read_text(encoding='utf-8', errors='replace').strip() or 'no reason given'}")
        time.sleep(_INTERVAL_S)
    return program


def listens(port: int) -> Callable[[Program], bool]:
    """Whether there is a listener for this port in the network namespace of a program: state 0A in /proc/net/tcp."""
    def is_ready(program: Program) -> bool:
        for name in ("tcp", "tcp6"):
            try:
                lines = Path(f"/proc/{program.pid}/net/{name}").read_text(encoding="utf-8").splitlines()[1:]
            except OSError:
                continue
            if any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for line in lines):
                return True
        return False
    return is_ready


def has_printed(log: Path, words: str) -> Callable[[Program], bool]:
    """Whether its messages have these words."""
    return lambda _: words in log.read_text(encoding="utf-8", errors="replace")


class Listeners:
    """Receivers of a lab, whose copies go into directories of their own. What listens ends with the `with` statement of `programs`."""

    def __init__(self, built: Built, site: Site, directory: Path, programs: Programs) -> None:
        self.built, self.site, self.directory, self.programs = built, site, directory, programs
        self.secret = directory / "secret"
        self.numbers = range(1, len(site.hosts))
        for number in self.numbers:
            self.directory_of(number).mkdir()

    def directory_of(self, host: int) -> Path:
        """Of a receiver's copy."""
        return self.directory / f"host-{host}"

    def log_of(self, name: str, host: int) -> Path:
        """Where the messages of a program on a host go."""
        return self.directory / f"log-{name}-{host}"

    def clear(self) -> None:
        """Removes all copies."""
        for number in self.numbers:
            shutil.rmtree(self.directory_of(number))
            self.directory_of(number).mkdir()

    def start_rdmc(self, options: Sequence[str] = ()) -> None:
        """`rdmc receive`, by a common secret unless other options are given."""
        if not options:
            self.make_secret()
        for number in self.numbers:
            host, log = self.site.hosts[number], self.log_of("rdmc", number)
            command = [self.built.rdmc, "receive", "--listen", f"{host.address}:{_RDMC_PORT}", "--dir", str(self.directory_of(number))]
            launch = Launch([*command, *(options or self.secret_options())], host.enter)
            start(self.programs, launch, log, has_printed(log, "listening on"), "rdmc receive")

    def make_secret(self) -> None:
        """Unless it is there."""
        if self.secret.exists():
            return
        with open(self.secret, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(run_all([Launch([self.built.rdmc, "secret"])], _START_TIMEOUT_S)[0])

    def secret_options(self) -> list[str]:
        """Of commands of rdmc that use it."""
        return ["--secret-file", str(self.secret)]

    def push_launch(self, source: Path, hosts: Sequence[Host], options: Sequence[str] = (), environment: dict[str, str] | None = None) -> Launch:
        """`rdmc push`, by the common secret unless other options are given."""
        to = ",".join(f"{host.address}:{_RDMC_PORT}" for host in hosts)
        command = [self.built.rdmc, "push", str(source), "--json", "--to", to, *(options or self.secret_options())]
        return Launch(command, self.site.root.enter, {"RDMC_PROGRESS": "none", **(environment or {})})

    def push(self, source: Path, hosts: Sequence[Host]) -> Any:
        """The summary of a push."""
        return json.loads(run_all([self.push_launch(source, hosts)], _COPY_TIMEOUT_S)[0])

    def start_rsync(self) -> None:
        """rsync's daemons."""
        for number in self.numbers:
            host, config = self.site.hosts[number], self.directory / f"rsync-{number}.conf"
            path = self.directory_of(number)
            config.write_text(f"use chroot = no\nuid = 0\ngid = 0\n[copy]\npath = {path}\nread only = no\n", encoding="utf-8")
            command = ["rsync", "--daemon", "--no-detach", f"--address={host.address}", f"--port={_RSYNC_PORT}", "--config", str(config)]
            start(self.programs, Launch(command, host.enter), self.log_of("rsync", number), listens(_RSYNC_PORT), "rsync's daemon")

    def rsync(self, source: Path, hosts: Sequence[Host]) -> None:
        """A process for each host, all at the same time."""
        run_all([Launch(["rsync", "--archive", "--whole-file", str(source), f"rsync://{host.address}:{_RSYNC_PORT}/copy/"], self.site.root.enter)
                 for host in hosts], _COPY_TIMEOUT_S)

    def start_sshd(self, numbers: Sequence[int] | None = None) -> None:
        """Servers of ssh with keys of their own, in the way that `scp` finds them; on all receivers unless hosts are given."""
        for name in ("host", "user"):
            run_all([Launch(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", str(self.directory / f"key-{name}")])], _START_TIMEOUT_S)
        # Where the server drops its privileges; systems make it at boot.
        Path("/run/sshd").mkdir(exist_ok=True)
        for number in self.numbers if numbers is None else numbers:
            host, config = self.site.hosts[number], self.directory / f"sshd-{number}.conf"
            config.write_text(
                f"ListenAddress {host.address}:{_SSH_PORT}\nHostKey {self.directory}/key-host\nAuthorizedKeysFile {self.directory}/key-user.pub\n"
                "PidFile none\nUsePAM no\nStrictModes no\nPermitRootLogin yes\nMaxStartups 100\nSubsystem sftp internal-sftp\n", encoding="utf-8")
            start(self.programs, Launch([SSHD, "-D", "-e", "-f", str(config)], host.enter), self.log_of("sshd", number), listens(_SSH_PORT), "sshd")

    def scp_words(self) -> list[str]:
        """scp and its options, for a server of these."""
        options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "BatchMode=yes", "IdentitiesOnly=yes", "LogLevel=ERROR"]
        return ["scp", "-rq", "-F", "none", "-P", str(_SSH_PORT), "-i", str(self.directory / "key-user"), *(word for option in options for word in ("-o", option))]

    def scp(self, source: Path) -> None:
        """One host after another."""
        for number in self.numbers:
            target = f"root@{self.site.hosts[number].address}:{self.directory_of(number)}/"
            run_all([Launch([*self.scp_words(), str(source), target], self.site.root.enter)], _COPY_TIMEOUT_S)

    def start_chain(self) -> None:
        """A socat on each receiver that unpacks what it receives, and gives it to the next host. It serves one copy."""
        # From the last one on: each connects to the next when it starts.
        self._chain = []
        for number in reversed(self.numbers):
            script = f"{_RECEIVE} | {_UNPACK}"
            if number < len(self.numbers):
                # What passes it on has to end well too, which `tee >(...)` would not wait for.
                script = f'mkfifo "$fifo"; {_SEND} <"$fifo" & {_RECEIVE} | tee "$fifo" | {_UNPACK}; rm "$fifo"; wait $!'
            log = self.log_of("chain", number)
            launch = self._shell(number, script, {"own": self.site.hosts[number].address, "fifo": str(log.with_suffix(".fifo")),
                                                  "directory": str(self.directory_of(number))})
            self._chain.append(start(self.programs, launch, log, listens(_CHAIN_PORT), "socat"))

    def chain(self, source: Path) -> None:
        """Sends an archive, and waits for all hosts."""
        with Programs() as programs:
            launch = self._shell(0, f"{_PACK} | {_SEND}", {"parent": str(source.parent), "name": source.name})
            for program in (programs.start(launch, stderr=sys.stderr), *self._chain):
                if status := program.wait(_COPY_TIMEOUT_S):
                    raise Failed(f"a host of the chain of socat ended with status {status}; messages: {self.directory}/log-chain-*")

    def _shell(self, host: int, script: str, environment: dict[str, str]) -> Launch:
        """A script on a host that fails with any part of it."""
        following = self.site.hosts[host + 1].address if host + 1 < len(self.site.hosts) else ""
        variables = {**environment, "port": str(_CHAIN_PORT), "next": following}
        return Launch(["bash", "-c", f"set -e -o pipefail; {script}"], self.site.hosts[host].enter, variables, has_children=True)
