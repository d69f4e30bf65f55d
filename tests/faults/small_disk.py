"""A file system of a few megabytes that only this process and its children see."""
import contextlib
import ctypes
import os
import subprocess

NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000


def own_mounts():
    """Lets this process mount without anyone noticing. Call once, before threads; an OSError when it may not."""
    libc, uid, gid = ctypes.CDLL(None, use_errno=True), os.getuid(), os.getgid()
    if libc.unshare(NEW_MOUNTS if uid == 0 else NEW_MOUNTS | NEW_USER) != 0:
        raise OSError(ctypes.get_errno(), "no mounts of one's own here: run as root, or allow user namespaces")
    if uid != 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


@contextlib.contextmanager
def small_disk(path, megabytes):
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "octavo-faults", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


class Ballast:
    """Takes all of a disk but some bytes, until freed."""

    def __init__(self, disk, leave):
        self.path = disk / "ballast"
        with open(self.path, "wb") as file:
            while (free := os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize) > leave:
                with contextlib.suppress(OSError):  # a save may have taken it meanwhile
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), free - leave)

    def free(self):
        self.path.unlink()
