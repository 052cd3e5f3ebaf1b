"""Debian's Slurm on a machine of its own: one node, its daemons and files in a folder of the test."""

import secrets
import shutil
import subprocess
from pathlib import Path

import pytest
from namespace_node import Machine, skip_without_namespaces

from waiting import wait_for

HOST = "slurm-node"
CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SlurmdParameters=config_overrides
KillWait=20
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def skip_without_slurm() -> None:
    """Skip a test where Slurm is not installed."""
    if missing := [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]:
        pytest.skip(f"needs {', '.join(missing)}: apt-get install slurm-wlm munge")
    skip_without_namespaces()


class Slurm:
    """Slurm, as long as its machine lives."""

    def __init__(self, folder: Path, machine: Machine, *, cores: int) -> None:
        folder.mkdir()
        folder.chmod(0o755)  # munged talks to nobody through a folder that others may write to
        for name in ("state", "spool"):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        config = folder / "slurm.conf"
        config.write_text(CONFIG.format(host=machine.host, folder=folder, cores=cores), encoding="utf-8")
        self._folder = folder
        self._machine = machine
        self._variables = {"SLURM_CONF": str(config)}
        # Slurm's daemons listen on all addresses, and on none if there is only loopback
        machine.do("ip", "link", "add", "lan", "type", "veth", "peer", "name", "wall")
        machine.do("ip", "address", "add", "10.77.0.1/24", "dev", "lan")
        machine.do("ip", "link", "set", "lan", "up")
        self._start_munge(key)
        self._start("slurmctld", "-D", "-f", config)
        self._start("slurmd", "-D", "-f", config, "-N", machine.host)
        wait_for(lambda: "idle" in self.say("sinfo", "--noheader", "--format=%T"), "Slurm's node is idle", timeout_s=40)

    def _start_munge(self, key: Path) -> None:
        folder = self._folder
        names = {"socket": "munge.socket", "pid-file": "munge.pid", "log-file": "munge.log", "seed-file": "munge.seed"}
        files = [f"--{name}={folder / file}" for name, file in names.items()]
        self._start("munged", "--foreground", "--force", f"--key-file={key}", *files)
        wait_for((folder / "munge.socket").exists, "munged listens")

    def _start(self, *args: object) -> None:
        log = self._folder / f"{args[0]}.out"
        self._machine.start(*args, log=log, variables=self._variables)

    def call(self, *args: object, script: str | None = None) -> "subprocess.CompletedProcess[str]":
        """Run one of Slurm's commands."""
        return self._machine.run(*args, variables=self._variables, text=script)

    def say(self, *args: object) -> str:
        """Return what one of Slurm's commands prints."""
        return self.call(*args).stdout

    def submit(self, script: str, *options: object) -> str:
        """Submit a script as a user would, by `… | sbatch`; return the number of the job."""
        done = self.call("sbatch", "--parsable", *options, script=script)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()
