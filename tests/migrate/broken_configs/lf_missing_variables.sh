#!/bin/bash
export NVTE_FLASH_ATTN=1                     # Flash attention with FP8
export NVTE_FUSED_ATTN=1
export GPU_NUM=8
export WORLD_SIZE=2
llamafactory-cli train lf_missing_variables.yaml
