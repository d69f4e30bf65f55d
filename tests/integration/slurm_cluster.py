"""A SLURM cluster of one node on this machine: munged, slurmctld and slurmd with their own ports, key, state and logs in
a temporary folder, listening on loopback. Ended by process id, whatever happens."""
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

from ranks import free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "scancel", "sinfo")
CONFIG = """
ClusterName=octavo
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=bf_interval=1,sched_min_interval=100000
ReturnToService=2
JobRequeue=1
KillWait=10
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def require_programs():
    """Ends the script when SLURM cannot run here: a failure in CI, a remark elsewhere."""
    missing = [name for name in PROGRAMS if program(name) is None]
    if missing or os.geteuid() != 0:
        print(f"wanted SLURM's daemons as root, found {missing or 'another user'}; install slurm-wlm and munge")
        sys.exit(1 if os.environ.get("CI") == "true" else 0)


def program(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


class Cluster:
    """Use with `with`: the node is idle inside it."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        self.environment = os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self.environment["PATH"] += ":/usr/sbin:/sbin"
        self.daemons, self.began = [], 0.0

    def __enter__(self):
        host = socket.gethostname().split(".")[0]
        (self.folder / "slurm.conf").write_text(CONFIG.format(
            host=host, folder=self.folder, cpus=os.cpu_count(), controller_port=free_port(), node_port=free_port()))
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        try:
            self.start("munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket", f"--key-file={key}",
                       f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/munged.log",
                       f"--seed-file={self.folder}/munge.seed", "--num-threads=2")
            self.wait("munged's socket", lambda: (self.folder / "munge.socket").exists())
            self.start("slurmctld", "-D", "-i")
            self.began = time.monotonic()
            self.start("slurmd", "-D")
            self.wait("an idle node", lambda: "idle" in self.call("sinfo", "--noheader", "--format=%t"))
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self, name, *flags):
        log = open(self.folder / f"{name}.out", "w")
        self.daemons.append((name, subprocess.Popen([program(name), *flags], env=self.environment, stdout=log,
                                                    stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)))
        log.close()

    def stop(self):
        if len(self.daemons) == 3:
            self.call("scancel", "--full", "--signal=KILL", f"--user={os.environ.get('USER', 'root')}")
        for _, daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.daemons = []

    def age(self):
        """Seconds since the controller was started."""
        return time.monotonic() - self.began

    def call(self, *command, cwd=None, environment=None):
        """A command's output; "" when it fails."""
        done = subprocess.run(command, env=self.environment | (environment or {}), cwd=cwd, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.stdout if done.returncode == 0 else ""

    def wait(self, what, ready, seconds=60):
        deadline = time.monotonic() + seconds
        while not ready():
            dead = [name for name, daemon in self.daemons if daemon.poll() is not None]
            if dead or time.monotonic() > deadline:
                sys.exit(f"waited for {what}; {'ended: ' + dead[0] if dead else 'it did not come'}\n{self.logs()}")
            time.sleep(0.2)

    def job(self, number):
        """What scontrol knows of a job, as a dictionary."""
        text = self.call("scontrol", "--oneliner", "show", "job", str(number))
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def logs(self):
        parts = []
        for path in sorted([*self.folder.glob("*.out"), *self.folder.glob("*.log")]):
            parts.append(f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-15:]))
        return "\n".join(parts)
