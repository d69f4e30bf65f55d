"""The fake CUDA device (src/fake_cuda/fake_cuda.h), for scripts: how to start a process on it, and, inside such a
process, what it recorded."""
import contextlib
import ctypes
import json
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARIES = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release")) / "lib"
DEVICE = LIBRARIES / "fake_cuda" / "liboctavo_fake_cuda.so"


def environment(capability=90, memory=None, devices=1, compute=False, driver=None, record=None, base=None):
    """A copy of `base` (or of this process's variables) with which to start a process on the device."""
    variables = dict(os.environ if base is None else base)
    # One behind the other: whoever else is loaded first stays, and so do the places where libraries are looked for.
    for name, value, separator in (("LD_PRELOAD", DEVICE, " "),
                                   ("LD_LIBRARY_PATH", DEVICE.parent, ":")):
        others = [part for part in variables.get(name, "").split(separator) if part and part != str(value)]
        variables[name] = separator.join([str(value), *others])
    chosen = {"CAPABILITY": capability, "DEVICES": devices, "COMPUTE": int(compute), "MEMORY": memory, "DRIVER": driver,
              "RECORD": record}
    for key, value in chosen.items():
        variables.pop(f"OCTAVO_FAKE_CUDA_{key}", None)
        if value is not None:
            variables[f"OCTAVO_FAKE_CUDA_{key}"] = str(value)
    return variables


def require_libraries():
    missing = [path for path in (DEVICE, DEVICE.parent / "libcuda.so.1") if not path.exists()]
    if missing:
        raise SystemExit(f"wanted {missing[0]}, found none; ninja octavo_fake_cuda octavo_fake_cuda_driver")


def _library():
    library = ctypes.CDLL(None)
    if not hasattr(library, "octavo_fake_cuda_json"):
        raise SystemExit("this process does not run on the fake CUDA device; start it with environment()")
    library.octavo_fake_cuda_json.restype = ctypes.c_void_p
    library.octavo_fake_cuda_json.argtypes = [ctypes.c_char_p]
    return library


def is_active():
    return hasattr(ctypes.CDLL(None), "octavo_fake_cuda_json")


def _part(name):
    library = _library()
    text = library.octavo_fake_cuda_json(name.encode())
    try:
        return json.loads(ctypes.string_at(text))
    finally:
        libc = ctypes.CDLL(None)
        libc.free.argtypes = [ctypes.c_void_p]
        libc.free(text)


def reset():
    _library().octavo_fake_cuda_reset()


def counters():
    """launches, gemms, copies_to_device, …: the names of record_json.cpp; `_bytes` where there were any."""
    return _part("counters")


def events():
    """In order, each with kind, name, stream, device and bytes."""
    return _part("events")


def gemms():
    """Every GEMM as CUDA was told: m, n, k, alpha, beta, epilogue, and a, b, c, d with type, op, ld, scale mode…"""
    return _part("gemms")


def unexpected():
    """Entry points that were called and have no meaning on the device, with how often."""
    return _part("unexpected")


@contextlib.contextmanager
def recording():
    """with recording() as seen: …; afterwards seen has counters, events and gemms of what was done inside."""
    seen = {}
    reset()
    yield seen
    seen.update(counters=counters(), events=events(), gemms=gemms(), unexpected=unexpected())
