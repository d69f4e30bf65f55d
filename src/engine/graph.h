#pragma once
// Work of a GPU that is recorded once and launched again as a whole, without the host's part of it.

#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace octavo::engine {

class Graph {
 public:
  virtual ~Graph() = default;
  // Calls `work` on a stream of its own; what it puts on the device is recorded and not run. The
  // memory that it allocates belongs to the graph and lies at the same place in every replay; all
  // else that it reads or writes must stay where it is. With `beside`, both graphs share memory:
  // what is still referred to after a capture is kept, and they must be replayed in the order of
  // their captures. Throws what `work` or libtorch throws; nothing is captured then.
  virtual void capture(const std::function<void()>& work, const Graph* beside) = 0;
  virtual void replay() = 0;  // on the current stream
};

// Of a CUDA device that gpus() has found.
std::unique_ptr<Graph> make_graph(at::Device device);

}  // namespace octavo::engine
