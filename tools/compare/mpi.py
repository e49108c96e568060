"""How programs of Open MPI and MPICH are started, one process on each host."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab import Site
from programs import Launch, need
from workspace import Recipe, Workspace

OPEN_MPI = "openmpi-bin libopenmpi-dev"
MPICH = "mpich libmpich-dev"


@dataclass(frozen=True)
class Mpi:
    """An MPI with the options of its starter and the variables that choose an algorithm."""

    is_open: bool
    options: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    over_tcp: bool = True

    @property
    def starter(self) -> str:
        return "mpirun.openmpi" if self.is_open else "mpiexec.hydra"

    @property
    def packages(self) -> str:
        """Debian's."""
        return OPEN_MPI if self.is_open else MPICH

    def launch(self, site: Site, workspace: Workspace, command: Sequence[str]) -> Launch:
        """The one process that starts all members by this command."""
        need(self.starter, self.packages)
        # Members of one turn find each other there.
        environment = {"TMPDIR": str(workspace.meeting()), **self.environment}
        if self.is_open:
            options = [*_open_mpi_options(site, workspace, self.over_tcp), *self.options]
        else:
            options = [*_mpich_options(site, workspace), *self.options]
            # Members share processors: one that waits yields.
            environment["MPIR_CVAR_POLLS_BEFORE_YIELD"] = "1"
            if self.over_tcp:
                # By default MPICH detects that all hosts are one machine, and uses shared memory.
                environment.update(UCX_TLS="tcp", UCX_NET_DEVICES=site.device, MPIR_CVAR_NOLOCAL="1")
        # Namespaces of a network share their host's name, by which both MPIs distinguish hosts.
        script = f'{"hostname host0; " if site.link else ""}exec "$@"'
        return Launch(["sh", "-c", script, "sh", self.starter, *options, *command], site.root.enter, environment, has_children=True)

    def build(self, workspace: Workspace, source: str) -> Path:
        """A program of `peers` for this MPI."""
        need(self.starter, self.packages)
        compiler = "mpicc.openmpi" if self.is_open else "mpicc.mpich"
        return workspace.build(Recipe(source, compiler, self.packages))


def _open_mpi_options(site: Site, workspace: Workspace, over_tcp: bool) -> list[str]:
    # Members share processors: one that waits yields.
    options = "--oversubscribe --bind-to none --mca mpi_yield_when_idle 1".split()
    if os.geteuid() == 0:
        options.append("--allow-run-as-root")
    if over_tcp:
        options += f"--mca btl tcp,self --mca btl_tcp_if_include {site.device}".split()
    if site.link:
        hosts = workspace.script("openmpi-hosts", "".join(f"{host.address} slots=1\n" for host in site.hosts))
        options += ["--mca", "oob_tcp_if_include", site.device, "--mca", "plm_rsh_agent", str(agent(site, workspace)), "--hostfile", str(hosts)]
    return [*options, "-np", str(len(site.hosts))]


def _mpich_options(site: Site, workspace: Workspace) -> list[str]:
    members = ["-n", str(len(site.hosts))]
    if not site.link:
        return ["-launcher", "fork", *members]
    start = ["-launcher", "ssh", "-iface", site.device, "-ppn", "1", "-launcher-exec", str(agent(site, workspace))]
    return [*start, "-hosts", ",".join(host.address for host in site.hosts), *members]


def agent(site: Site, workspace: Workspace) -> Path:
    """A script that starts a command on a host of the lab, as ssh would."""
    cases = "".join(f'{host.address}) exec {" ".join(host.enter)} unshare --uts sh -c "hostname host{index}; $*" ;;\n'
                    for index, host in enumerate(site.hosts))
    return workspace.script("agent", (
        '#!/bin/sh\n# AGENT [OPTIONS] ADDRESS COMMAND...\nwhile [ "${1#-}" != "$1" ]; do shift; done\n'
        f'address=$1; shift\ncase $address in\n{cases}*) echo "no host has the address $address" >&2; exit 1 ;;\nesac\n'))
