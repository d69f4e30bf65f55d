# CUDA's wheels, in either layout: one folder for all parts since CUDA 13 (nvidia/cu13), one for each part before
# (nvidia/cuda_runtime, nvidia/cublas, …). Which CUDA is wanted says torch, whose libraries are built for one.
# Sets OCTAVO_CUDA_MAJOR, OCTAVO_CUDA_INCLUDE (all folders with headers, NCCL's among them), OCTAVO_CUDART and
# OCTAVO_CUBLASLT (files), OCTAVO_CUDA_BIN (where nvcc would be).
file(STRINGS ${OCTAVO_SITE_PACKAGES}/torch/version.py octavo_torch_cuda REGEX "^cuda")
if(NOT octavo_torch_cuda MATCHES "'([0-9]+)\\.[0-9]+'")
  message(FATAL_ERROR "wanted a torch that is built for CUDA in ${OCTAVO_SITE_PACKAGES}, found '${octavo_torch_cuda}' in its "
    "version.py; run ./bootstrap build, or install torch without +cpu")
endif()
set(OCTAVO_CUDA_MAJOR ${CMAKE_MATCH_1})

# octavo_find_cuda(VARIABLE FILE PART): FILE of the wheels of PART, in the one folder or in the part's own.
function(octavo_find_cuda variable file part)
  foreach(folder cu${OCTAVO_CUDA_MAJOR} ${part})
    if(EXISTS ${OCTAVO_SITE_PACKAGES}/nvidia/${folder}/${file})
      set(${variable} ${OCTAVO_SITE_PACKAGES}/nvidia/${folder}/${file} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "wanted ${file} for CUDA ${OCTAVO_CUDA_MAJOR}, as torch is, in ${OCTAVO_SITE_PACKAGES}/nvidia, in "
    "cu${OCTAVO_CUDA_MAJOR} or ${part}, found none; run ./bootstrap build")
endfunction()

set(OCTAVO_CUDA_INCLUDE)
foreach(header nccl:nccl.h cuda_runtime:cuda_runtime_api.h cublas:cublasLt.h cusparse:cusparse.h cusolver:cusolverDn.h
    nvtx:nvtx3/nvToolsExt.h)
  string(REPLACE ":" ";" header ${header})
  list(POP_FRONT header octavo_part)
  octavo_find_cuda(octavo_header include/${header} ${octavo_part})
  string(REGEX REPLACE "/${header}$" "" octavo_header ${octavo_header})
  list(APPEND OCTAVO_CUDA_INCLUDE ${octavo_header})
endforeach()
list(REMOVE_DUPLICATES OCTAVO_CUDA_INCLUDE)
octavo_find_cuda(OCTAVO_CUDART lib/libcudart.so.${OCTAVO_CUDA_MAJOR} cuda_runtime)
octavo_find_cuda(OCTAVO_CUBLASLT lib/libcublasLt.so.${OCTAVO_CUDA_MAJOR} cublas)
set(OCTAVO_CUDA_BIN ${OCTAVO_SITE_PACKAGES}/nvidia/cu${OCTAVO_CUDA_MAJOR}/bin ${OCTAVO_SITE_PACKAGES}/nvidia/cuda_nvcc/bin)
