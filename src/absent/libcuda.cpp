// lib/absent/libcuda.so.1: nothing of its own. Whoever opens it and looks for a driver function
// finds it in liboctavo_absent.so, which it needs.
extern "C" const char octavo_absent_driver[] = "absent device";
