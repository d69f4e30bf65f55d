#include <nlohmann/json.hpp>

#include "audit/audit.h"

namespace octavo::audit {
namespace {

using Json = nlohmann::json;

Json time_json(const Time& time) {
  return {{"calls", time.calls}, {"ms", to_ms(time.ns)}};
}

Json file_json(const FileAudit& file) {
  Json json = {{"path", file.path},
               {"format", name_of(file.format)},
               {"gpu", file.gpu},
               {"devices", file.devices},
               {"events", file.events},
               {"malformed", file.malformed},
               {"dropped", file.dropped},
               {"cut", file.is_cut},
               {"work", time_json(file.work)},
               {"span_ms", to_ms(file.span_ns)},
               {"busy_ms", to_ms(file.busy_ns)},
               {"collective_ms", to_ms(file.collective_ns)},
               {"collective_hidden_ms", to_ms(file.hidden_ns)},
               {"unattributed", time_json(file.unattributed)},
               {"idle_ms",
                {{"host", to_ms(file.gaps.host)},
                 {"after_synchronization", to_ms(file.gaps.sync)},
                 {"other_work", to_ms(file.gaps.queued)},
                 {"unknown", to_ms(file.gaps.unknown)}}},
               {"linked",
                {{"by_id", file.attribution.by_id},
                 {"by_time", file.attribution.by_time},
                 {"in_graphs", file.attribution.in_graphs},
                 {"unknown", file.attribution.unknown},
                 {"ids_are_correlations", file.attribution.ids_are_correlations}}}};
  if (file.rank >= 0) json["rank"] = file.rank;
  if (file.world_size >= 0) json["world_size"] = file.world_size;
  return json;
}

Json class_json(const KernelClass& kernel) {
  return {{"class", name_of(kernel.kind)}, {"precision", name_of(kernel.precision)},
          {"sure", kernel.is_sure},        {"fused", kernel.is_fused},
          {"library", kernel.library},     {"detail", kernel.detail},
          {"source", kernel.source}};
}

Json gemm_json(const GemmRow& row) {
  Json json = class_json(row.kernel_class);
  json["kernel"] = row.kernel;
  json["precision"] = name_of(row.precision);
  json["sure"] = row.is_sure;
  json["disputed"] = row.is_disputed;
  json["op"] = row.op;
  json["calls"] = row.time.calls;
  json["ms"] = to_ms(row.time.ns);
  json["modules"] = row.modules;
  if (row.shape.is_known())
    json["shape"] = {
        {"batch", row.shape.batch}, {"m", row.shape.m}, {"n", row.shape.n}, {"k", row.shape.k}};
  return json;
}

Json host_json(const std::vector<HostRow>& rows) {
  Json list = Json::array();
  for (const HostRow& row : rows)
    list.push_back({{"name", row.name},
                    {"calls", row.time.calls},
                    {"ms", to_ms(row.time.ns)},
                    {"self_ms", to_ms(row.self_ns)},
                    {"bytes", row.bytes}});
  return list;
}

template <size_t n, typename Name>
Json times_json(const std::array<Time, n>& times, Name&& name) {
  Json json = Json::object();
  for (size_t i = 0; i < n; ++i)
    if (times[i].calls > 0) json[std::string(name(i))] = time_json(times[i]);
  return json;
}

}  // namespace

Json json_of(const Audit& audit) {
  Json files = Json::array(), gemms = Json::array(), kernels = Json::array();
  for (const FileAudit& file : audit.files) files.push_back(file_json(file));
  for (const GemmRow& row : audit.gemm_rows) gemms.push_back(gemm_json(row));
  for (const KernelRow& row : audit.kernels) {
    Json json = class_json(row.kernel_class);
    json["kernel"] = row.kernel;
    json["calls"] = row.time.calls;
    json["ms"] = to_ms(row.time.ns);
    json["bytes"] = row.bytes;
    kernels.push_back(std::move(json));
  }
  const auto precision = [](size_t i) { return name_of(static_cast<Precision>(i)); };
  return {
      {"verdict", audit.headline},
      {"reasons", audit.reasons},
      {"files", std::move(files)},
      {"total", file_json(audit.total)},
      {"classes", times_json(audit.kinds, [](size_t i) { return name_of(static_cast<Kind>(i)); })},
      {"gemm_ms", to_ms(audit.gemm_ns())},
      {"gemm_fp8_ms", to_ms(audit.low_gemm_ns())},
      {"gemm_precisions", times_json(audit.gemms, precision)},
      {"attention_precisions", times_json(audit.attention, precision)},
      {"fp8_beside_gemms", time_json(audit.charged)},
      {"fp8_beside_gemms_fused", time_json(audit.charged_fused)},
      {"unrecognized", time_json(audit.unrecognized)},
      {"gemms", std::move(gemms)},
      {"kernels", std::move(kernels)},
      {"host_ranges", host_json(audit.ranges)},
      {"host_collectives", host_json(audit.host_collectives)}};
}

}  // namespace octavo::audit
