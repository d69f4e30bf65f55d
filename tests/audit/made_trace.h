#pragma once
// Small traces for tests: events as kineto writes them, and files of all kinds.

#include <sqlite3.h>
#include <zlib.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/file.h"
#include "scratch.h"

namespace octavo::audit {

using Json = nlohmann::json;

inline Json event(const std::string& category, const std::string& name, double ts, double dur,
                  Json arguments, int tid = 1) {
  return {{"ph", "X"},  {"cat", category}, {"name", name}, {"pid", 1},
          {"tid", tid}, {"ts", ts},        {"dur", dur},   {"args", std::move(arguments)}};
}

inline Json kernel(const std::string& name, double ts, double dur, int64_t correlation,
                   int64_t external = -1, int stream = 7) {
  Json arguments = {{"correlation", correlation}, {"stream", stream}, {"device", 0}};
  if (external >= 0) arguments["External id"] = external;
  return event("kernel", name, ts, dur, std::move(arguments), stream);
}

inline Json launch(double ts, double dur, int64_t correlation,
                   const std::string& name = "cudaLaunchKernel") {
  return event("cuda_runtime", name, ts, dur, {{"correlation", correlation}});
}

inline Json op(const std::string& name, double ts, double dur, int64_t external, Json dims = {},
               Json types = {}) {
  Json arguments = {{"External id", external}};
  if (!dims.is_null()) arguments["Input Dims"] = std::move(dims);
  if (!types.is_null()) arguments["Input type"] = std::move(types);
  return event("cpu_op", name, ts, dur, std::move(arguments));
}

inline std::string trace_text(const std::vector<Json>& events) {
  return Json{{"schemaVersion", 1},
              {"deviceProperties", {{{"id", 0}, {"name", "NVIDIA H100"}}}},
              {"distributedInfo", {{"rank", 3}, {"world_size", 8}}},
              {"traceEvents", events}}
      .dump();
}

// Traces in a folder of their own.
class TraceFolder : public Scratch {
 public:
  fs::path write(const std::string& name, std::string_view content) const {
    write_file_atomic(*this / name, content);
    return *this / name;
  }
  fs::path write(const std::vector<Json>& events) const {
    return write("trace.json", trace_text(events));
  }
  fs::path write_gzip(const std::string& name, const std::string& content) const {
    const fs::path path = *this / name;
    gzFile file = gzopen(path.c_str(), "wb");
    if (file == nullptr ||
        gzwrite(file, content.data(), static_cast<unsigned>(content.size())) == 0 ||
        gzclose(file) != Z_OK)
      throw std::runtime_error("gzip " + path.string());
    return path;
  }
  fs::path write_sqlite(const std::string& name, const std::string& sql) const {
    const fs::path path = *this / name;
    sqlite3* base = nullptr;
    sqlite3_open(path.c_str(), &base);
    char* error = nullptr;
    sqlite3_exec(base, sql.c_str(), nullptr, nullptr, &error);
    const std::string reason = error == nullptr ? "" : error;
    sqlite3_free(error);
    sqlite3_close(base);
    if (!reason.empty()) throw std::runtime_error(reason);
    return path;
  }
};

}  // namespace octavo::audit
