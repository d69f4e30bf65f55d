#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=120 gate="" night=""
"""`octavo launch` of a run on two nodes, of which one never comes, as the guides' variables ask for it: the launcher makes the secret,
says what it waits for, and ends within seconds with 75 when it is told to stop."""
import pathlib
import signal
import socket
import stat
import sys
import tempfile
import time

import common
from rank_runs import Launched, make_folder

LIMIT = 10  # seconds from the signal to the end
STOPPED = 75  # exit code
GUIDE = {"GPU_NUM": "1", "WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1"}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def waiting(run, patience=30):
    """Whether the rank says that it waits for the others."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and run.process.poll() is None:
        if "1 of 2 ranks are here" in run.log(0) + run.said():
            return True
        time.sleep(0.1)
    return False


def main():
    common.require_files()
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        common.prepare_data(work)
        home = work / "home"
        home.mkdir()
        folder = make_folder(work / "run", 5, 0, "")
        run = Launched(folder, ["--master_port", free_port()], environment=GUIDE | {"HOME": str(home)})
        waits = waiting(run)
        start = time.monotonic()
        run.process.send_signal(signal.SIGTERM)
        code = run.wait(LIMIT)
        seconds = time.monotonic() - start
        said = run.said() + run.log(0)
        run.end()
        secret = home / ".octavo-rendezvous-secret"
        private = secret.exists() and stat.S_IMODE(secret.stat().st_mode) == 0o600
        kept = secret.exists() and secret.read_text().strip() not in said
    good = waits and code == STOPPED and private and kept
    if not good:
        print(said[-4000:])
    print(f"waited={int(waits)} exit_code={code} seconds={seconds:.1f} secret_private={int(private)} secret_unsaid={int(kept)}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
