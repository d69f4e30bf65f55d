#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate="" alone
"""octavo verify from outside: the real program with a real environment, right and wrong; then start-up.

Every case is a claim about one finding (its status, words of what was found, words of the fix), an exit code or a time.
Libraries of other versions and an NVML with two cards are compiled here from a few lines of C, because this machine has
neither. The last line has the results; the exit code is 1 when a case failed.
"""
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import fake_cuda
from common import OCTAVO, ROOT

ENVIRONMENT = 3  # the exit code
SECONDS_ALLOWED, HELP_ALLOWED, CHECK_ALLOWED = 60, 0.3, 0.5
CUDA_LIBRARIES = re.compile(r"libtorch_cuda|libcublas|libcudnn|libnccl|libc10_cuda|liboctavo_cuda")
FAMILIES = ("NVTE_", "NCCL_", "TORCH_", "PYTORCH_", "CUDA_", "GLOO_", "OMP_", "OCTAVO_", "LD_", "MASTER_", "HF_")

OLD_NCCL = "int ncclGetVersion(int* v) { *v = 21805; return 0; }"
TWO_CARDS = """
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char* out, unsigned n) { strncpy(out, "580.65.06", n); return 0; }
int nvmlDeviceGetCount_v2(unsigned* n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** d) { *d = (void*)(long)(i + 1); return 0; }
int nvmlDeviceGetName(void* d, char* out, unsigned n) { strncpy(out, "a card", n); return 0; }
int nvmlDeviceGetMemoryInfo(void* d, unsigned long long* m) { m[0] = 80ull << 30; m[2] = 9ull << 30; m[1] = m[0] - m[2]; return 0; }
int nvmlDeviceGetCurrPcieLinkWidth(void* d, unsigned* w) { *w = d == (void*)1 ? 16 : 8; return 0; }
int nvmlDeviceGetMaxPcieLinkWidth(void* d, unsigned* w) { *w = 16; return 0; }
int nvmlDeviceGetNvLinkState(void* d, unsigned link, int* on) { *on = 0; return 0; }
int nvmlDeviceGetP2PStatus(void* a, void* b, int what, int* status) { *status = 1; return 0; }
int nvmlDeviceGetTopologyCommonAncestor(void* a, void* b, int* level) { *level = 50; return 0; }
"""


class Cases:
    def __init__(self):
        self.count, self.failed = 0, []

    def claim(self, name, good, said=""):
        self.count += 1
        if not good:
            self.failed.append(name)
            print(f"FAILED {name}: {said}")

    def finding(self, run, identity, status, found="", fix=""):
        match = next((f for f in run.findings if f["id"] == identity), None)
        good = match and match["status"] == status and found in match["found"] and fix in match["fix"]
        self.claim(f"{run.name}: {identity}", good, f"wanted {status}, '{found}', fix '{fix}'; found {match}")


class Run:
    """One call of octavo verify --output; the text and the JSON."""

    def __init__(self, name, work, *flags, variables=None, base=None):
        self.name = name
        clean = {k: v for k, v in (base or os.environ).items() if base or not k.startswith(FAMILIES)}
        file = work / "verify.json"
        file.unlink(missing_ok=True)
        start = time.monotonic()
        result = subprocess.run([OCTAVO, "verify", "--output", file, *flags], cwd=work, text=True, timeout=600,
                                capture_output=True, env=clean | {"OMP_WAIT_POLICY": "passive"} | (variables or {}))
        self.seconds = time.monotonic() - start
        self.code, self.text, self.log = result.returncode, result.stdout, result.stderr
        self.report = json.loads(file.read_text()) if file.exists() else {"findings": [], "summary": {}}
        self.findings = self.report["findings"]
        print(f"{name}: exit code {self.code}, {self.seconds:.1f} s, {self.report['summary']}")


def library(work, name, source):
    """A folder with a library compiled from a few lines of C."""
    folder = work / name.replace(".", "_")
    folder.mkdir(exist_ok=True)
    (folder / "source.c").write_text(source)
    subprocess.run(["clang", "-shared", "-fPIC", "-w", "-o", folder / name, f"-Wl,-soname,{name}", folder / "source.c"],
                   check=True)
    return folder


def on_this_machine(cases, work):
    run = Run("this machine", work)
    print(run.text, end="")
    cases.claim("exit code 0", run.code == 0, run.log)
    cases.claim(f"under {SECONDS_ALLOWED} s", run.seconds < SECONDS_ALLOWED, run.seconds)
    cases.claim("the summary comes last", run.text.splitlines()[-1].startswith("verify: nothing failed"), run.text[-200:])
    cases.finding(run, "devices", "note", "no GPU")
    cases.finding(run, "NVTE_FP8_ALLREDUCE", "ok", "nothing at all")
    cases.finding(run, "CUDA runtime", "ok", "13.")
    cases.finding(run, "not checked here", "not checked", "--require_gpu")
    kernels = [f for f in run.findings if f["section"].startswith("kernels")]
    operations = {f["id"].split()[0] for f in kernels if f["status"] == "ok"}
    wanted = {"matmul", "fp8_linear", "layer_norm", "rms_norm", "gelu", "swiglu", "geglu", "rope", "column_sum", "cross_entropy",
              "attention", "embedding", "adamw"}
    cases.claim("every operation was compared", operations == wanted, wanted ^ operations)
    recipes = {f["id"].split()[-1] for f in kernels if f["id"].startswith("fp8_linear") and f["status"] == "ok"}
    cases.claim("every recipe was compared", len(recipes) == 5, recipes)
    gaps = [f for f in run.findings if f["section"] == "training"]
    cases.claim("BF16 and five recipes were trained", len(gaps) == 6 and all(f["status"] == "ok" for f in gaps), gaps)
    cases.claim("the speed check says rehearsal", any("rehearsal" in f["found"] for f in run.findings if f["section"] == "speed"))
    return len(kernels)


def wrong_variables(cases, work):
    wrong = {"NVTE_FP8_ALLREDUCE": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "64", "NVTE_FLASH_ATN": "1", "NVTE_DEBUG": "1",
             "NVTE_FUSED_ATTN_BACKEND": "1", "NCCL_SOCKET_IFNAME": "enp50s0", "GLOO_SOCKET_IFNAME": "enp50s0",
             "PYTORCH_CUDA_ALLOC_CONF": "expandable_segment:True", "CUDA_LAUNCH_BLOCKING": "1", "NCCL_DEBUG": "LOUD",
             "WORLD_SIZE": "2", "GPU_NUM": "8", "MASTER_PORT": "99999", "OMP_NUM_THREADS": "none",
             "HF_TOKEN": "hf_this_is_secret", "LD_PRELOAD": "/nowhere/libx.so", "OCTAVO_TE_LIBRARY": "/nowhere/te.so",
             "NVTE_DISABLE_NVRTC": "1", "TORCH_NCCL_BLOCKING_WAIT": "1"}
    # device cuda: without a GPU nothing is computed, and the run is short.
    run = Run("wrong variables", work, "--device", "cuda", "--fp8_backend", "te", variables=wrong)
    cases.claim("exit code 3", run.code == ENVIRONMENT, run.code)
    for identity, status, found, fix in (
            ("NVTE_FP8_ALLREDUCE", "warn", "nothing at all", "unset"),
            ("CUDA_DEVICE_MAX_CONNECTIONS", "warn", "1 to 32", "unset"),
            ("NVTE_FLASH_ATN", "warn", "no such variable", "NVTE_FLASH_ATTN?"),
            ("NVTE_DEBUG", "note", "no effect in octavo", ""),
            ("NVTE_FUSED_ATTN_BACKEND", "warn", "does not read it", "unset"),
            ("NCCL_SOCKET_IFNAME", "fail", "no interface enp50s0", "unset it"),
            ("GLOO_SOCKET_IFNAME", "fail", "no interface enp50s0", "unset it"),
            ("PYTORCH_CUDA_ALLOC_CONF", "fail", "refuses", "expandable_segments?"),
            ("CUDA_LAUNCH_BLOCKING", "warn", "slower", "unset"),
            ("NCCL_DEBUG", "warn", "no such level", "WARN"),
            ("WORLD_SIZE", "fail", "RANK is not set", "torchrun"),
            ("GPU_NUM", "warn", "nodes", "2 nodes x 8 GPUs = 16"),
            ("MASTER_PORT", "fail", "not a port", "29500"),
            ("OMP_NUM_THREADS", "warn", "not a number", "unset"),
            ("LD_PRELOAD", "warn", "does not exist", "take it out"),
            ("HF_TOKEN", "note", "not shown", ""),
            ("OCTAVO_TE_LIBRARY", "fail", "no such file", "unset"),
            ("NVTE_DISABLE_NVRTC", "fail", "throw", "unset"),
            ("TORCH_NCCL_BLOCKING_WAIT", "warn", "slower", "unset"),
            ("Transformer Engine", "fail", "no such file", "OCTAVO_TE_LIBRARY"),
            ("devices", "fail", "no GPU", "driver")):
        cases.finding(run, identity, status, found, fix)
    cases.claim("no secret is shown", "hf_this_is_secret" not in run.text + run.log + json.dumps(run.report))


def other_libraries(cases, work):
    run = Run("two NCCLs", work, "--device", "cuda",
              variables={"LD_LIBRARY_PATH": str(library(work, "libnccl.so.2", OLD_NCCL))})
    cases.finding(run, "NCCL, twice", "note", "2.18.5", "off LD_LIBRARY_PATH")  # without a GPU nobody calls it
    run = Run("required", work, "--require-gpu", "--device", "cuda", "--before-long-run")
    cases.claim("a list that was not gone through is said to be", any(
        "before a long run was not gone through" in f["found"] for f in run.findings), run.text)
    cases.claim("--require-gpu: exit code 3", run.code == ENVIRONMENT, run.code)
    cases.finding(run, "devices", "fail", "no GPU", "install the NVIDIA driver")
    result = subprocess.run([OCTAVO, "verify", "--json", "--device", "cuda"], cwd=work, capture_output=True, text=True)
    cases.claim("--json is all of standard output", json.loads(result.stdout)["exit_code"] == ENVIRONMENT, result.stdout[:99])


def on_fake_devices(cases, work):
    for capability, status, found in ((80, "fail", "no FP8 matrix units"), (90, "ok", "blockwise"), (100, "ok", "mxfp8")):
        run = Run(f"fake {capability}", work, base=fake_cuda.environment(capability))
        cases.finding(run, "gpu 0", status, found, "fp8_execution: rehearse" if status == "fail" else "")
        kernels = [f for f in run.findings if f["section"].startswith("kernels") and f["id"] != "others"]
        cases.claim("kernels are not checked, and their calls accepted",
                    len(kernels) > 20 and all("fake CUDA device: kernels do not run" in f["found"] for f in kernels),
                    [f for f in kernels if f["status"] != "not checked"])
        cases.claim("the exit code follows", run.code == (ENVIRONMENT if status == "fail" else 0), run.code)
        lines = run.text.splitlines()
        cases.claim("every line says so", lines and all(line.startswith("fake CUDA device | ") for line in lines), run.text)
        cases.claim("so does the JSON", run.findings and all(f["absent_device"] for f in run.findings))
    run = Run("fake A100 for BF16", work, "--mixed_precision", "bf16", base=fake_cuda.environment(80))
    cases.finding(run, "gpu 0", "note", "compute capability 8.0")
    run = Run("fake, mxfp8 on 9.0", work, "--fp8_recipe", "mxfp8", "--before-long-run", base=fake_cuda.environment(90))
    cases.finding(run, "resume", "not checked", "kernels do not run")
    cases.finding(run, "gpu 0", "fail", "9.0", "blockwise")
    run = Run("fake, old driver", work, base=fake_cuda.environment(90, driver=12040))
    cases.finding(run, "driver", "fail", "12.4", "update the driver to 580")
    cases.claim("an old driver is exit code 3", run.code == ENVIRONMENT, run.code)
    base = fake_cuda.environment(90, devices=2)
    base["LD_LIBRARY_PATH"] += f":{library(work, 'libnvidia-ml.so.1', TWO_CARDS)}:{library(work, 'libnccl.so.2', OLD_NCCL)}"
    run = Run("fake, two cards", work, base=base)
    cases.finding(run, "links", "warn", "0 of 1 pairs by NVLink; GPUs 0 and 1 across processors", "accumulation")
    cases.finding(run, "PCIe, gpu 1", "warn", "8 lanes", "seat")
    cases.finding(run, "memory in use, gpu 0", "warn", "taken", "nvidia-smi")
    cases.finding(run, "NCCL, twice", "warn", "2.18.5", "off LD_LIBRARY_PATH")


def loaded_libraries(work, *command):
    log = work / "loader"
    for old in work.glob("loader*"):
        old.unlink()
    subprocess.run([OCTAVO, *command], cwd=work, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   env=os.environ | {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(log)})
    return "".join(path.read_text(errors="replace") for path in work.glob("loader*"))


def start_up(cases, work):
    medians = {}
    for name, command, allowed in (("help", ("--help",), HELP_ALLOWED),
                                   ("check", ("config", "check", ROOT / "configs" / "quickstart.yaml"), CHECK_ALLOWED)):
        times = []
        for _ in range(5):
            start = time.monotonic()
            subprocess.run([OCTAVO, *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            times.append(time.monotonic() - start)
        medians[name] = statistics.median(times)
        cases.claim(f"{name}: {medians[name]:.3f} s, at most {allowed} s", medians[name] <= allowed, times)
        libraries = loaded_libraries(work, *command)
        good = "liboctavo_light" in libraries and not re.search("libtorch|libcudart", libraries)
        cases.claim(f"{name} loads neither torch nor CUDA", good, libraries[:500])
    libraries = loaded_libraries(work, "checkpoints", "list")
    # libtorch_cpu of the wheel asks for libcudart itself.
    cases.claim("a verb with torch loads no other CUDA library", "libtorch_cpu" in libraries and not CUDA_LIBRARIES.search(libraries),
                CUDA_LIBRARIES.search(libraries))
    return medians


def main():
    fake_cuda.require_libraries()
    cases = Cases()
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        kernels = on_this_machine(cases, work)
        wrong_variables(cases, work)
        other_libraries(cases, work)
        on_fake_devices(cases, work)
        medians = start_up(cases, work)
    print(f"cases={cases.count} failed={len(cases.failed)} kernels={kernels} help_s={medians['help']:.3f} "
          f"config_check_s={medians['check']:.3f}")
    sys.exit(1 if cases.failed else 0)


if __name__ == "__main__":
    main()
