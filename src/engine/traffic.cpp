#include "engine/traffic.h"

namespace octavo::engine {
namespace {

TrafficListener* listener_of_process = nullptr;

int64_t bytes_of_all(std::initializer_list<at::Tensor> tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& t : tensors)
    if (t.defined()) bytes += static_cast<int64_t>(t.nbytes());
  return bytes;
}

}  // namespace

TrafficListener* traffic_listener() {
  return listener_of_process;
}
void set_traffic_listener(TrafficListener* listener) {
  listener_of_process = listener;
}

void note_traffic(const char* name, std::initializer_list<at::Tensor> read,
                  std::initializer_list<at::Tensor> written) {
  note_traffic(name, bytes_of_all(read), bytes_of_all(written));
}
void note_traffic(const char* name, int64_t read, int64_t written) {
  if (listener_of_process != nullptr) listener_of_process->on_operation(name, read, written);
}

}  // namespace octavo::engine
