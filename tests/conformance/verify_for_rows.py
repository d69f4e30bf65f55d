"""An example for and against every row of the known-bad table, written from the public threads and not from the table.

ROWS: id -> (trainer, what makes it appear, [what makes it go away, …], a part of its source). What makes it appear and go
away is laid over ENVIRONMENT of the trainer: NAME=VERSION of packages (None: not installed), $NAME of variables (None: not
set), capability as "9.0".
"""
COMMON = {"torch": "2.14.1+cu130", "triton": "3.9.0", "nvidia-cuda-runtime": "13.0.96", "nvidia-cudnn-cu13": "9.24.0.43",
          "nvidia-cublas": "13.2.1.1", "nvidia-nccl-cu13": "2.31.2", "numpy": "1.26.4", "capability": "9.0"}
TE = {"transformer-engine": "2.18.0", "transformer-engine-torch": "2.18.0", "transformer-engine-cu13": "2.18.0"}
ENVIRONMENT = {"te": COMMON | TE, "torchao": COMMON | {"torchao": "0.18.0"},
               "megatron": COMMON | TE | {"megatron-core": "0.18.0", "$CUDA_DEVICE_MAX_CONNECTIONS": "1",
                                          "$NVTE_CPU_OFFLOAD_V1": "1"}}


def te(version):
    return {name: version for name in TE}


def flash(engine, wrong, right, source, other_engine):
    return ("te", te(engine) | {"flash-attn": wrong}, [{"flash-attn": right}, {"flash-attn": None}, te(other_engine)], source)


def ao(version, torch, right_torch, source="2919"):
    return ("torchao", {"torchao": version, "torch": torch}, [{"torch": right_torch}, {"torchao": version + "+git1234567"}], source)


ROWS = {
    "flash-attn above 2.5.8": flash("1.9.0", "2.6.3", "2.5.8", "1123", "1.12.0"),
    "flash-attn above 2.6.3, asserted": flash("1.11.0", "2.7.0", "2.6.3", "1019", "1.12.0"),
    "flash-attn above 2.6.3": flash("1.13.0", "2.7.4", "2.6.3", "1019", "2.18.0"),
    "flash-attn above 2.7.3": flash("2.0.0", "2.7.4", "2.7.3", "1503", "2.1.0"),
    "flash-attn above 2.7.4.post1": flash("2.5.0", "2.8.3", "2.7.4.post1", "3984", "2.10.0"),
    "flash-attn above 2.8.1": flash("2.8.0", "2.8.3", "2.8.1", "1949", "2.10.0"),
    "flash-attn above 2.8.3": flash("2.14.1", "2.8.4", "2.8.3", "2282", "2.20.0"),
    "flash-attn on Blackwell": ("te", {"flash-attn": "2.7.2", "capability": "10.0"},
                                [{"flash-attn": "2.7.3"}, {"capability": "9.0"}], "v2.0"),
    "cuDNN before 9.3": ("te", {"nvidia-cudnn-cu13": "9.1.0.70"}, [{"nvidia-cudnn-cu13": "9.3.0.75"}, te("1.13.0")], "README"),
    "cuDNN 9.23.0 and MXFP8 attention": ("te", te("2.16.1") | {"nvidia-cudnn-cu13": "9.23.1.3", "capability": "10.0"},
                                         [{"nvidia-cudnn-cu13": "9.23.2.1"}, {"nvidia-cudnn-cu13": "9.22.0.5"}, te("2.17.0"),
                                          {"capability": "9.0"}], "3173"),
    "FP8 attention with current scaling": ("te", te("2.8.0") | {"nvidia-cudnn-cu13": "9.13.1.26", "capability": "10.0"},
                                           [{"nvidia-cudnn-cu13": "9.14.0.64"}, te("2.9.0"), {"capability": "9.0"}], "2236"),
    "cuDNN attention in CUDA graphs": ("te", te("2.9.0") | {"nvidia-cudnn-cu13": "9.15.0.57"},
                                       [{"nvidia-cudnn-cu13": "9.15.1.9"}, te("2.10.0")], "2344"),
    "packed sequences with context parallelism": ("te", {"nvidia-cudnn-cu13": "9.17.1.4"},
                                                  [{"nvidia-cudnn-cu13": "9.18.0.77"}, {"capability": "10.0"}], "2186"),
    "fused attention on sm_120": ("te", {"nvidia-cudnn-cu13": "9.18.0.77", "capability": "12.0"},
                                  [{"nvidia-cudnn-cu13": "9.18.1.3"}, {"capability": "10.0"}], "2693"),
    "SDPA backward with a mask": ("torchao", {"torch": "2.13.0"}, [{"torch": "2.10.0"}, {"torch": "2.14.0"}, {"capability": "10.0"}],
                                  "196678"),
    "cuDNN attention by default": ("te", {"torch": "2.5.0+cu124"}, [{"torch": "2.5.1+cu124"}], "139298"),
    "CUDA before 12.8 on Blackwell": ("torchao", {"nvidia-cuda-runtime": "12.6.77", "capability": "10.0"},
                                      [{"nvidia-cuda-runtime": "12.8.90"}, {"capability": "9.0"}], "README"),
    "cuBLASLt on Ada": ("te", {"nvidia-cublas": "12.1.0.26", "capability": "8.9"},
                        [{"nvidia-cublas": "12.1.3.1"}, {"capability": "9.0"}], "955"),
    "block scaling before CUDA 12.9": ("te", {"nvidia-cuda-runtime": "12.8.90"},
                                       [{"nvidia-cuda-runtime": "12.9.79"}, te("2.2.0"), {"capability": "8.9"}], "1509"),
    "MXFP8 on sm_120": ("te", {"capability": "12.0"}, [{"capability": "10.3"}, {"capability": "9.0"}], "2046"),
    "grouped GEMM of a newer cuBLAS": ("te", {"nvidia-cublas": "13.1.1.3"}, [{"nvidia-cublas": "13.2.0.9"}, te("2.12.0")], "2504"),
    "torch before 2.1": ("te", {"torch": "2.0.1"}, [{"torch": "2.1.0"}, te("2.1.0")], "1516"),
    "torchao before 0.13 with torch 2.9": ao("0.12.0", "2.9.0", "2.8.0", "2908"),
    "torchao 0.13 with another torch": ao("0.13.0", "2.9.0.dev20250901", "2.8.0"),
    "torchao 0.13 with an old torch": ao("0.13.0", "2.5.1", "2.6.0"),
    "torchao 0.14.0 with another torch": ao("0.14.0", "2.9.0", "2.8.0"),
    "torchao 0.14.1 with another torch": ao("0.14.1", "2.9.1", "2.9.0"),
    "torchao 0.15 with another torch": ao("0.15.0", "2.7.1+cu128", "2.9.1", "361"),
    "torchao 0.16 with another torch": ao("0.16.0", "2.9.1+cu130", "2.10.0", "3432"),
    "torchao 0.17 with an old torch": ao("0.17.0", "2.10.0", "2.11.0"),
    "Triton 3.8 and compiled float8": ("torchao", {"torchao": "0.17.0", "triton": "3.8.0"},
                                       [{"torchao": "0.18.0"}, {"triton": "3.7.1"}], "188841"),
    "layer norms under sequence parallelism": ("megatron", te("1.13.0"), [te("2.1.0"), te("1.12.0")], "1528"),
    "Transformer Engine for Megatron Core 0.14": ("megatron", {"megatron-core": "0.14.0"} | te("2.5.0"), [te("2.6.0")], "core_v0.14.0"),
    "Transformer Engine for Megatron Core 0.15": ("megatron", {"megatron-core": "0.15.2"} | te("2.8.0"), [te("2.9.0")], "core_v0.15.0"),
    "Transformer Engine for Megatron Core 0.16": ("megatron", {"megatron-core": "0.16.1"} | te("2.8.0"), [te("2.9.0")],
                                                  "core_v0.16.0"),
    "NumPy 2": ("megatron", {"megatron-core": "0.13.1", "numpy": "2.2.5"}, [{"numpy": "1.26.4"}, {"megatron-core": "0.16.0"}], "1563"),
    "NCCL 2.29.2": ("torchao", {"nvidia-nccl-cu13": "2.29.2"}, [{"nvidia-nccl-cu13": "2.29.3"}], "174338"),
    "NCCL on ARM": None,  # another machine: tests/verify/known_bad_test.cpp has the condition
    "NCCL's symmetric windows": ("te", {"nvidia-nccl-cu13": "2.28.9"}, [{"nvidia-nccl-cu13": "2.31.2"}, {"nvidia-nccl-cu13": "2.26.2"}],
                                 "2198"),
    "NCCL's RAS": ("te", {"nvidia-nccl-cu13": "2.27.3"}, [{"nvidia-nccl-cu13": "2.27.5"}], "1762"),
    "CUDA_DEVICE_MAX_CONNECTIONS": ("megatron", {"$CUDA_DEVICE_MAX_CONNECTIONS": None},
                                    [{"$CUDA_DEVICE_MAX_CONNECTIONS": "1"}, {"capability": "10.0"}], "5105"),
    "CUDA_DEVICE_MAX_CONNECTIONS on Blackwell": ("megatron", {"capability": "10.0"},
                                                 [{"$CUDA_DEVICE_MAX_CONNECTIONS": None}, {"capability": "9.0"}], "5105"),
    "CUDA_DEVICE_MAX_CONNECTIONS=1": ("torchao", {"$CUDA_DEVICE_MAX_CONNECTIONS": "1"}, [{"$CUDA_DEVICE_MAX_CONNECTIONS": "32"},
                                                                                         {"$CUDA_DEVICE_MAX_CONNECTIONS": None}], "1147"),
    "NVTE_CPU_OFFLOAD_V1": ("megatron", {"$NVTE_CPU_OFFLOAD_V1": None}, [{"$NVTE_CPU_OFFLOAD_V1": "1"}, te("2.9.0")], "1913"),
    "expandable segments with CUDA graphs": ("megatron", {"$PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64,expandable_segments:True"},
                                             [{"$NCCL_GRAPH_REGISTER": "0"}, {"$PYTORCH_CUDA_ALLOC_CONF": None}], "1920"),
    "PYTORCH_ALLOC_CONF is ignored": ("torchao", {"torch": "2.9.1", "$PYTORCH_ALLOC_CONF": "expandable_segments:True"},
                                      [{"torch": "2.10.0"}, {"$PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}], "183387"),
    "TORCH_NCCL_AVOID_RECORD_STREAMS": ("megatron", {"$TORCH_NCCL_AVOID_RECORD_STREAMS": "1"},
                                        [{"$TORCH_NCCL_AVOID_RECORD_STREAMS": "0"}], "1586"),
    "no attention left": ("te", {"$NVTE_FLASH_ATTN": "0", "$NVTE_FUSED_ATTN": "0", "$NVTE_UNFUSED_ATTN": "0"},
                          [{"$NVTE_UNFUSED_ATTN": "1"}, {"$NVTE_FUSED_ATTN": None}], "envvars"),
    "unfused attention": ("te", {"$NVTE_FLASH_ATTN": "0", "$NVTE_FUSED_ATTN": "0"},
                          [{"$NVTE_FLASH_ATTN": "1"}, {"$NVTE_UNFUSED_ATTN": "0"}], "envvars"),
    "NVTE_DISABLE_NVRTC": ("te", {"$NVTE_DISABLE_NVRTC": "1"}, [{"$NVTE_DISABLE_NVRTC": "0"}], "envvars"),
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO": ("te", {"$NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0"},
                                         [{"$NVTE_ALLOW_NONDETERMINISTIC_ALGO": "1"}], "envvars"),
    "CUDA_LAUNCH_BLOCKING": ("torchao", {"$CUDA_LAUNCH_BLOCKING": "1"}, [{"$CUDA_LAUNCH_BLOCKING": "0"}], "CUDA"),
}
