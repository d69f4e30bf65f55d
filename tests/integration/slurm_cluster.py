"""A SLURM cluster on this machine, of one node or of several (a slurmd each): munged, slurmctld and slurmd with their own ports,
key, state and logs in a temporary folder, listening on loopback. Ended by process id, whatever happens."""
import os
import pathlib
import shutil
import signal
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
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
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
{nodes}
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


def status_of(pid):
    """Name, state, parent, … of a process, as the kernel has them; empty for one that is gone."""
    try:
        before, after = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)
    except OSError:
        return []
    return [before.split("(", 1)[1], *after.split()]


def parent_of(pid):
    return int((status_of(pid) or [0, 0, 0])[2])


def name_of(pid):
    return (status_of(pid) or [""])[0]


class Cluster:
    """Use with `with`: the nodes are idle inside it. The names of several must mean 127.0.0.1 here."""

    def __init__(self, folder, nodes=()):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        self.host = socket.gethostname().split(".")[0]
        self.nodes = list(nodes) or [self.host]
        for name in ("state", *(f"spool-{node}" for node in self.nodes)):
            (self.folder / name).mkdir()
        self.environment = os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self.environment["PATH"] += ":/usr/sbin:/sbin"
        self.daemons, self.began = [], 0.0

    def __enter__(self):
        nodes = [f"NodeName={node} NodeHostname={self.host} NodeAddr=127.0.0.1 Port={free_port()} "
                 f"CPUs={os.cpu_count() if len(self.nodes) == 1 else 1} State=UNKNOWN" for node in self.nodes]
        (self.folder / "slurm.conf").write_text(CONFIG.format(
            host=self.host, folder=self.folder, controller_port=free_port(), nodes="\n".join(nodes)))
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
            for node in self.nodes:
                self.start("slurmd", "-D", "-N", node)
            self.wait("idle nodes", lambda: set(self.call("sinfo", "--noheader", "--Node", "--format=%t").split()) == {"idle"})
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self, name, *flags):
        log = open(self.folder / f"{name}.out", "a")
        self.daemons.append((name, subprocess.Popen([program(name), *flags], env=self.environment, stdout=log,
                                                    stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)))
        log.close()

    def stop(self):
        if len(self.daemons) >= 3:
            self.call("scancel", "--full", "--signal=KILL", f"--user={os.environ.get('USER', 'root')}")
        for _, daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.daemons = []

    def lose(self, node):
        """The machine is gone, with all that ran on it, and the controller is told."""
        gone = [at for at, daemon in enumerate(self.daemons) if daemon[1].args[-1] == node]
        tasks = []
        for environ in pathlib.Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"SLURMD_NODENAME={node}".encode() in environ.read_bytes().split(b"\0"):
                    tasks.append(int(environ.parent.name))
            except OSError:
                continue  # it ended meanwhile
        parents = {parent for parent in map(parent_of, tasks) if parent not in tasks and name_of(parent) == "slurmstepd"}
        for pid in [self.daemons[at][1].pid for at in gone] + sorted(parents) + tasks:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for at in gone:
            self.daemons.pop(at)[1].wait()
        self.call("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=lost")

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
