"""The `octavo` command: becomes the native program, which needs no Python from there on."""
import os
import pathlib
import sys

from octavo import FOLDER, PROGRAM

TORCH = pathlib.Path("torch", "lib", "libtorch_cpu.so")


def site_packages_elsewhere():
    """Where torch is when it is not installed beside us (--system-site-packages, PYTHONPATH, .pth files), or None."""
    if (FOLDER.parent / TORCH).exists():
        return None  # the program's libraries know this place
    return next((folder for folder in sys.path if (pathlib.Path(folder) / TORCH).exists()), None)


def main():
    if "OCTAVO_SITE_PACKAGES" not in os.environ and (folder := site_packages_elsewhere()):
        os.environ["OCTAVO_SITE_PACKAGES"] = str(pathlib.Path(folder).resolve())
    os.execv(PROGRAM, [str(PROGRAM), *sys.argv[1:]])


if __name__ == "__main__":
    main()
