// A libnvidia-ml.so.1 with two GPUs, of which the second tells its memory alone.

extern "C" {

int nvmlInit_v2() {
  return 0;
}
int nvmlShutdown() {
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  static char gpus[2];
  *device = &gpus[index];
  gpus[index] = static_cast<char>(index);
  return 0;
}
int nvmlDeviceGetUtilizationRates(const char* device, unsigned* rates) {
  rates[0] = 87;
  rates[1] = 12;
  return *device == 0 ? 0 : 3;
}
int nvmlDeviceGetPowerUsage(const char* device, unsigned* milliwatts) {
  *milliwatts = 412'500;
  return *device == 0 ? 0 : 3;
}
int nvmlDeviceGetMemoryInfo(const char*, unsigned long long* memory) {
  memory[0] = 80'000'000'000ull;
  memory[1] = 19'000'000'000ull;
  memory[2] = 61'000'000'000ull;
  return 0;
}
}
