#pragma once
// /metrics for Prometheus and /healthz for whoever watches the process, over HTTP.

#include <memory>
#include <string>

#include "monitor/sinks.h"

namespace octavo::monitor {

// An address in use is counted and said; training continues. One that is none is wrong use.
std::unique_ptr<Sink> make_prometheus_sink(const std::string& address, const std::string& run_name);

}  // namespace octavo::monitor
