#pragma once
// Which compiler this is. OCTAVO_ON_BOTH: a function that host and device call. OCTAVO_KERNEL_BODY:
// one that nvcc compiles for the device alone, and a host compiler for the host. OCTAVO_UNROLL:
// before a loop over an array that must stay in registers.

#if defined(__CUDACC__)
#define OCTAVO_ON_BOTH __host__ __device__
#define OCTAVO_KERNEL_BODY __device__
#define OCTAVO_UNROLL _Pragma("unroll")
#else
#define OCTAVO_ON_BOTH
#define OCTAVO_KERNEL_BODY
#define OCTAVO_UNROLL
#endif
