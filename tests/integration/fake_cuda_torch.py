#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate="--short" night=""
"""PyTorch's own host code on the fake CUDA device: what it sees, counts, computes and refuses.

usage: fake_cuda_torch.py [--short]  every group in a process of its own; --short: what a device says of itself for one capability
       fake_cuda_torch.py GROUP      one group, inside a process that runs on the device
The last line is cases=N failed=0.
"""
import os
import subprocess
import sys
import tempfile

import fake_cuda

MIB = 1 << 20
CASES = []


def check(name, passed, found=""):
    CASES.append(bool(passed))
    print(f"{'ok  ' if passed else 'FAIL'} {name}{'' if passed else f': found {found}'}", flush=True)


def raises(kind, action):
    try:
        action()
    except kind as error:
        return str(error)
    return None


def largest_error(found, wanted):
    """Relative to the size of the wanted matrix."""
    import torch
    found, wanted = found.cpu().to(torch.float64), wanted.to(torch.float64)
    return ((found - wanted).abs().max() / wanted.abs().max()).item()


# BF16 keeps 8 bits, so a result that is right is off by at most half a unit of the last: 2^-9; FP32 sums of a few
# hundred products by far less than 1e-5. Wrong layouts are off by tens of percent.
BF16_ERROR, FP32_ERROR, WRONG = 2.0 ** -8, 1e-5, 0.05


def group_query():
    import torch
    p = torch.cuda.get_device_properties(0)
    capability = int(os.environ["OCTAVO_FAKE_CUDA_CAPABILITY"])
    processors = {80: 108, 89: 142, 90: 132, 100: 148, 120: 188}[capability]
    check("two devices", torch.cuda.device_count() == 2, torch.cuda.device_count())
    check("compute capability", (p.major, p.minor) == (capability // 10, capability % 10), (p.major, p.minor))
    check("the name says that it is not there", p.name.startswith("fake GPU"), p.name)
    check("multiprocessors", p.multi_processor_count == processors, p.multi_processor_count)
    check("memory", p.total_memory == 3 * MIB, p.total_memory)
    torch.cuda.set_device(1)
    x = torch.zeros(4, device="cuda")
    check("the current device", x.device.index == 1, x.device)
    check("memory of each device", torch.cuda.mem_get_info(0)[0] == 3 * MIB and torch.cuda.mem_get_info(1)[0] == MIB,
          (torch.cuda.mem_get_info(0), torch.cuda.mem_get_info(1)))
    check("copies of small tensors", torch.arange(5).cuda().cpu().tolist() == [0, 1, 2, 3, 4])
    streams = {torch.cuda.Stream(device=1).cuda_stream for _ in range(4)}
    check("streams are distinct", len(streams) == 4, streams)


def group_memory():
    """64 MiB: two tensors of 32 fill it to the last byte."""
    import torch
    first = torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
    full = os.environ["OCTAVO_FAKE_CUDA_MEMORY"] == str(64 * MIB)
    error = raises(torch.OutOfMemoryError, lambda: torch.empty(32 * MIB, dtype=torch.uint8, device="cuda"))
    if full:
        check("the last byte can be had", error is None, error)
    else:
        check("one byte too many is refused", error is not None and "out of memory" in error, error)
        check("the refusal was counted", fake_cuda.counters()["out_of_memory"] > 0)
        free, total = torch.cuda.mem_get_info()
        check("free memory fits", (free, total) == (32 * MIB - 1, 64 * MIB - 1), (free, total))
    del first
    torch.cuda.empty_cache()
    check("freed memory comes back", torch.cuda.mem_get_info()[0] == torch.cuda.mem_get_info()[1])
    check("it can be had again", torch.empty(60 * MIB, dtype=torch.uint8, device="cuda").numel() == 60 * MIB)


def tiny_gpt():
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    torch.backends.cuda.enable_cudnn_sdp(False)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(256) for _ in range(2)])
            self.qkv, self.out = nn.Linear(256, 768), nn.Linear(256, 256)
            self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)

        def forward(self, x):
            b, t, d = x.shape
            q, k, v = self.qkv(self.norms[0](x)).view(b, t, 3, 4, 64).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
            x = x + self.out(y)
            return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))

    with torch.device("cuda"):
        return nn.Sequential(nn.Embedding(50257, 256), Block(), Block(), nn.LayerNorm(256), nn.Linear(256, 50257))


def group_step():
    import torch
    model = tiny_gpt()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.zeros(4, 256, dtype=torch.long, device="cuda")
    steps = []
    for _ in range(4):
        with fake_cuda.recording() as seen:
            with torch.autocast("cuda", torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(model(tokens).view(-1, 50257).float(), tokens.view(-1))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        steps.append(seen)
    last = steps[-1]
    check("a step launches kernels", 50 < last["counters"]["launches"] < 500, last["counters"]["launches"])
    check("27 GEMMs", last["counters"]["gemms"] == len(last["gemms"]) == 27, last["counters"]["gemms"])
    check("steps are alike", steps[2]["counters"]["launches"] == last["counters"]["launches"])
    check("no cudaMalloc after the second step", last["counters"]["mallocs"] == 0, last["counters"]["mallocs"])
    check("the host never waits", last["counters"]["host_waits"] == 0, last["counters"]["host_waits"])
    check("kernels have names", any("flash_fwd_kernel" in e["name"] for e in last["events"]))
    check("nothing unexpected", last["unexpected"] == {}, last["unexpected"])
    with fake_cuda.recording() as seen:
        loss.item()
    check("reading the loss is one wait", seen["counters"]["host_waits"] == 1, seen["counters"])
    torch.empty(10 << 30, dtype=torch.uint8, device="cuda").fill_(1)
    check("10 GiB cost nothing", resident_bytes() < 4 << 30, resident_bytes())


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def group_gemms():
    import torch
    torch.manual_seed(1)
    a, b, bias = torch.randn(48, 80), torch.randn(80, 72), torch.randn(72)
    wanted = a @ b
    check("FP32", largest_error(a.cuda() @ b.cuda(), wanted) < FP32_ERROR)
    check("FP32, transposed operands",
          largest_error(a.t().contiguous().cuda().t() @ b.t().contiguous().cuda().t(), wanted) < FP32_ERROR)
    h = [x.to(torch.bfloat16) for x in (a, b, bias)]
    exact = h[0].double() @ h[1].double()
    check("BF16", largest_error(h[0].cuda() @ h[1].cuda(), exact) < BF16_ERROR)
    with fake_cuda.recording() as seen:
        y = torch.addmm(h[2].cuda(), h[0].cuda(), h[1].cuda())
    check("BF16 with bias", largest_error(y, exact + h[2].double()) < BF16_ERROR, y)
    check("the bias is an epilogue", [g["epilogue"] for g in seen["gemms"]] == [4], seen["gemms"])
    f = [x.to(torch.float16) for x in (a, b)]
    check("FP16", largest_error(f[0].cuda() @ f[1].cuda(), f[0].double() @ f[1].double()) < 2.0 ** -10)
    batch = torch.randn(5, 16, 24), torch.randn(5, 24, 8)
    check("a batch", largest_error(torch.bmm(*(x.cuda() for x in batch)), torch.bmm(*batch)) < FP32_ERROR)
    out = torch.ones(48, 72).cuda()
    out.addmm_(a.cuda(), b.cuda(), beta=0.5, alpha=2)
    check("alpha and beta", largest_error(out, 0.5 + 2 * wanted) < FP32_ERROR)
    whole = torch.randn(64, 128)
    check("a leading dimension larger than the row",
          largest_error(torch.mm(whole.cuda()[:, 32:96], torch.eye(64).cuda()), whole[:, 32:96]) < FP32_ERROR)


def quantized(rows, columns, dtype):
    import torch
    return torch.randn(rows, columns).to(dtype)


def group_tensorwise():
    import torch
    torch.manual_seed(2)
    a, b = quantized(48, 160, torch.float8_e4m3fn), quantized(96, 160, torch.float8_e5m2)
    scales = torch.tensor([0.5, 3.0])
    sa, sb = scales[0].cuda(), scales[1].cuda()
    wanted = (a.double() @ b.double().t()) * 1.5
    with fake_cuda.recording() as seen:
        y = torch._scaled_mm(a.cuda(), b.cuda().t(), sa, sb, out_dtype=torch.float32)
    check("E4M3 x E5M2, tensor scales", largest_error(y, wanted) < FP32_ERROR)
    cpu = torch._scaled_mm(a, b.t(), scales[0], scales[1], out_dtype=torch.float32)
    check("as on the CPU", largest_error(y, cpu) < FP32_ERROR)
    g = seen["gemms"][0]
    check("recorded as told", (g["m"], g["n"], g["k"], g["a"]["op"], g["b"]["op"], g["a"]["ld"], g["b"]["ld"]) ==
          (96, 48, 160, 1, 0, 160, 160) and g["a"]["scale"] == sb.data_ptr() and g["b"]["scale"] == sa.data_ptr(), g)
    y = torch._scaled_mm(a.cuda(), b.cuda().t(), sa, sb, out_dtype=torch.bfloat16, bias=torch.ones(96).bfloat16().cuda())
    check("with bias", largest_error(y, wanted + 1) < BF16_ERROR)
    check("a wrong scale gives wrong numbers",
          largest_error(torch._scaled_mm(a.cuda(), b.cuda().t(), sa, sa, out_dtype=torch.float32), wanted) > WRONG)


def group_rowwise():
    import torch
    torch.manual_seed(3)
    a, b = (quantized(64, 128, torch.float8_e4m3fn) for _ in range(2))
    sa, sb = torch.rand(64, 1) + 0.1, torch.rand(1, 64) + 0.1
    wanted = (a.double() * sa.double()) @ (b.double().t() * sb.double())
    gemm = lambda x, y: torch._scaled_mm(a.cuda(), b.cuda().t(), x.cuda(), y.cuda(), out_dtype=torch.float32)
    check("row scales", largest_error(gemm(sa, sb), wanted) < FP32_ERROR)
    check("swapped row scales give wrong numbers", largest_error(gemm(sb.t().contiguous(), sa.t().contiguous()), wanted) > WRONG)


def group_blocks():
    """128 elements of a row, and 128 x 128, with K no multiple of 512, so that padding matters."""
    import torch
    torch.manual_seed(4)
    rows, columns, inner = 48, 256, 640
    a, b = quantized(rows, inner, torch.float8_e4m3fn), quantized(columns, inner, torch.float8_e4m3fn)
    sa, sb = torch.rand(rows, 5) + 0.1, torch.rand(2, 5) + 0.1
    wide = lambda scales: scales.double().repeat_interleave(128, 1)
    wanted = (a.double() * wide(sa)) @ (b.double() * wide(sb).repeat_interleave(128, 0)).t()

    def gemm(a_scale, b_scale):
        return torch.ops.aten._scaled_mm_v2(a.cuda(), b.cuda().t(), [a_scale], [4], [], [b_scale], [5], [], None,
                                            torch.float32)
    right_a = sa.t().contiguous().cuda().t()  # rows next to each other
    padded = torch.zeros(2, 8)
    padded[:, :5] = sb
    right_b = padded.cuda().t()
    check("1x128 by 128x128", largest_error(gemm(right_a, right_b), wanted) < FP32_ERROR)
    wrong_a = torch.as_strided(sa.cuda(), (rows, 5), (1, rows))  # the right shape over the wrong order
    check("scales in the wrong order give wrong numbers", largest_error(gemm(wrong_a, right_b), wanted) > WRONG)
    unpadded = torch.zeros(16)
    unpadded[:10] = sb.flatten()
    check("unpadded scales give wrong numbers",
          largest_error(gemm(right_a, unpadded.view(2, 8).cuda().t()), wanted) > WRONG)
    sb1 = torch.rand(columns, 5) + 0.1
    wanted = (a.double() * wide(sa)) @ (b.double() * wide(sb1)).t()
    y = torch.ops.aten._scaled_mm_v2(a.cuda(), b.cuda().t(), [right_a], [4], [], [sb1.t().contiguous().cuda().t()], [4],
                                     [], None, torch.float32)
    check("1x128 by 1x128", largest_error(y, wanted) < FP32_ERROR)


def tiled(scales):
    """E8M0 bytes [rows, blocks] in cuBLASLt's order: padded to 128 x 4, tiles of 32 x 4 x 4. NumPy: an own opinion."""
    import numpy
    rows, blocks = -(-scales.shape[0] // 128) * 128, -(-scales.shape[1] // 4) * 4
    padded = numpy.zeros((rows, blocks), numpy.uint8)
    padded[:scales.shape[0], :scales.shape[1]] = scales
    return padded.reshape(rows // 128, 4, 32, blocks // 4, 4).transpose(0, 3, 2, 1, 4).flatten()


def group_mxfp8():
    import numpy
    import torch
    torch.manual_seed(5)
    random = numpy.random.default_rng(5)
    rows, columns, inner = 144, 272, 224  # nothing here is a multiple of 128
    a, b = quantized(rows, inner, torch.float8_e4m3fn), quantized(columns, inner, torch.float8_e4m3fn)
    sa, sb = (random.integers(124, 131, (n, inner // 32), numpy.uint8) for n in (rows, columns))
    wide = lambda x, scales: x.double().numpy() * numpy.repeat(2.0 ** (scales.astype(float) - 127), 32, 1)
    wanted = torch.from_numpy(wide(a, sa) @ wide(b, sb).T)

    def gemm(x, y, scale_a, scale_b):
        on_device = [torch.from_numpy(s).view(torch.float8_e8m0fnu).cuda() for s in (scale_a, scale_b)]
        return torch.ops.aten._scaled_mm_v2(x, y, [on_device[0]], [3], [1], [on_device[1]], [3], [1], None, torch.float32)
    x, y = a.cuda(), b.cuda().t()
    check("MXFP8", largest_error(gemm(x, y, tiled(sa), tiled(sb)), wanted) < FP32_ERROR)
    row_major = torch.from_numpy(b.view(torch.uint8).numpy().T.copy()).view(torch.float8_e4m3fn).cuda()
    check("MXFP8, the other layout of B", largest_error(gemm(x, row_major, tiled(sa), tiled(sb)), wanted) < FP32_ERROR)
    flat = numpy.zeros_like(tiled(sa))
    flat[:sa.size] = sa.flatten()
    check("untiled scales give wrong numbers", largest_error(gemm(x, y, flat, tiled(sb)), wanted) > WRONG)
    poisoned = tiled(numpy.pad(sa, ((0, 0), (0, 1)), constant_values=255))
    check("NaN in the padding reaches the result", gemm(x, y, poisoned, tiled(sb)).cpu().isnan().any().item())


def group_refusals():
    import torch
    e4 = lambda *shape: torch.empty(*shape, dtype=torch.float8_e4m3fn, device="cuda")
    one, capability = torch.ones(1).cuda(), int(os.environ["OCTAVO_FAKE_CUDA_CAPABILITY"])
    mx = [torch.empty(512, dtype=torch.float8_e8m0fnu, device="cuda") for _ in range(2)]
    fp8 = raises(RuntimeError, lambda: torch._scaled_mm(e4(16, 32), e4(16, 32).t(), one, one, out_dtype=torch.bfloat16))
    nn = raises(RuntimeError, lambda: torch._scaled_mm(e4(16, 32), e4(32, 16), one, one, out_dtype=torch.bfloat16))
    blocks = raises(RuntimeError, lambda: torch._scaled_mm(e4(16, 128), e4(16, 128).t(), *mx, out_dtype=torch.bfloat16))
    check(f"{capability}: FP8", (fp8 is None) == (capability >= 89), fp8)
    check(f"{capability}: FP8 in another layout", (nn is None) == (capability == 100), nn)
    check(f"{capability}: MXFP8", (blocks is None) == (capability >= 100), blocks)


def group_graph():
    import torch
    a, b = torch.randn(32, 32).cuda(), torch.randn(32, 32).cuda()
    out = torch.zeros(32, 32, device="cuda")
    torch.mm(a, b, out=out)
    out.copy_(torch.zeros(32, 32))
    graph = torch.cuda.CUDAGraph()
    with fake_cuda.recording() as seen:
        with torch.cuda.graph(graph):
            torch.mm(a, b, out=out)
            torch.relu_(out)
    check("captured, not run", seen["counters"]["captured_nodes"] >= 2 and seen["counters"]["launches"] == 0, seen["counters"])
    check("nothing was computed", out.cpu().abs().max().item() == 0)
    with fake_cuda.recording() as seen:
        for _ in range(3):
            graph.replay()
    c = seen["counters"]
    check("three launches of the graph", (c["graph_launches"], c["gemms"], c["launches"]) == (3, 3, 3), c)
    check("the GEMM was computed", largest_error(out, a.cpu() @ b.cpu()) < FP32_ERROR)
    error = raises(RuntimeError, lambda: capture_and_wait(out))
    check("waiting inside a capture fails", error is not None and "captur" in error, error)


def capture_and_wait(out):
    import torch
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        out.sum().item()


def group_nccl():
    import torch
    import torch.distributed as dist
    with tempfile.TemporaryDirectory() as folder:
        torch.cuda.set_device(0)
        dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=2)
        x = torch.ones(1000, device="cuda")
        with fake_cuda.recording() as seen:
            dist.all_reduce(x)
            dist.all_gather_into_tensor(torch.empty(2000, device="cuda"), x)
            dist.reduce_scatter_tensor(torch.empty(500, device="cuda"), x)
            dist.broadcast(x, 0)
        calls = [e for e in seen["events"] if e["kind"] == "collectives"]
        names = [e["name"].split()[0] for e in calls]
        check("collectives in order", names == ["ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclBcast"], names)
        check("bytes", [e["bytes"] for e in calls] == [4000, 4000, 2000, 4000], calls)
        check("on the current stream", {e["stream"] for e in calls} == {torch.cuda.current_stream().cuda_stream}, calls)
        with fake_cuda.recording() as seen:
            dist.all_reduce(x, async_op=True).wait()
        calls = [e for e in seen["events"] if e["kind"] == "collectives"]
        check("asynchronous ones on another", calls[0]["stream"] != torch.cuda.current_stream().cuda_stream, calls)
        check("and the current stream waits for them", seen["counters"]["event_waits"] > 0, seen["counters"])
        dist.destroy_process_group()


def group_old_driver():
    import torch
    error = raises(RuntimeError, torch.cuda.init)
    check("an old driver is too old", error is not None and "driver" in error, error)


def group_none():
    import torch
    check("no device", not torch.cuda.is_available() and torch.cuda.device_count() == 0)


def runs(short):
    """(group, options of the device)"""
    for capability in (90,) if short else (80, 89, 90, 100, 120):
        yield "query", dict(capability=capability, devices=2, memory=3 * MIB)
        yield "refusals", dict(capability=capability)
    for memory in (64 * MIB, 64 * MIB - 1):
        yield "memory", dict(memory=memory)
    yield "step", {}
    for group in ("gemms", "tensorwise", "rowwise", "blocks", "graph"):
        yield group, dict(compute=True)
    yield "mxfp8", dict(capability=100, compute=True)
    yield "nccl", dict(devices=2)
    yield "old_driver", dict(driver=12080)
    yield "none", dict(devices=0)


def main():
    short = sys.argv[1:] == ["--short"]
    if len(sys.argv) > 1 and not short:
        globals()[f"group_{sys.argv[1]}"]()
        sys.exit(0 if all(CASES) else 1)
    fake_cuda.require_libraries()
    cases, failed = 0, 0
    for group, options in runs(short):
        print(f"-- {group} {options}", flush=True)
        base = dict(os.environ, OMP_NUM_THREADS="2", OMP_WAIT_POLICY="passive")
        process = subprocess.run([sys.executable, __file__, group], env=fake_cuda.environment(base=base, **options),
                                 capture_output=True, text=True)
        print(process.stdout, end="")
        lines = [line for line in process.stdout.splitlines() if line.startswith(("ok  ", "FAIL"))]
        bad = sum(line.startswith("FAIL") for line in lines)
        if process.returncode != 0 and bad == 0 or not lines:  # it broke down before it could say what is wrong
            bad += 1
        if bad > 0:
            print(process.stderr[-3000:])
        cases, failed = cases + max(len(lines), 1), failed + bad
    print(f"cases={cases} failed={failed}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
