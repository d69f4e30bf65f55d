// lib/fake_cuda/libcuda.so.1: nothing of its own. Whoever opens it and looks for a driver function
// finds it in liboctavo_fake_cuda.so, which it needs.
extern "C" const char octavo_fake_cuda_driver[] = "fake CUDA device";
