#include "train/state/data_order.h"

#include "base/error.h"
#include "base/progress.h"
#include "train/run_schedule.h"

namespace octavo::train {
namespace {

constexpr int64_t kBlockOrderVersion =
    2;  // the version of an order in two levels; uniform ones have none

uint64_t order_number(const Json& order, const char* name, const std::string& source) {
  const int64_t number = json_int(order, name, source);
  if (number < 1)
    fail(ExitCode::kDamaged, "train", source, ": data_order: ", name, ": wanted at least 1, found ",
         number, "; resume from another checkpoint");
  return static_cast<uint64_t>(number);
}

}  // namespace

data::Order new_order(const config::Settings& settings, int ranks, const data::TokenData& train) {
  if (!settings.shuffle || data::sample_count(train, settings.max_seq_length) == 0) return {};
  return data::order_for(train, settings.max_seq_length, samples_per_step(settings, ranks));
}

std::string describe_order(const data::Order& order, int64_t length, const data::TokenData& train) {
  if (order.is_uniform()) return "";
  const double bytes = static_cast<double>(order.block * static_cast<uint64_t>(length)) *
                       static_cast<double>(train.token_bytes());
  return str("blocks of ", order.block, " samples (", format_count(bytes), " bytes) from ",
             order.lanes(), " places of the data at a time, mixed over ", order.window,
             " blocks at each");
}

Json order_json(const data::Order& order) {
  if (order.is_uniform()) return nullptr;
  return {{"version", kBlockOrderVersion},
          {"block", order.block},
          {"window", order.window},
          {"step", order.step},
          {"run", order.run}};
}

data::Order saved_order(const Json& extra, const std::string& source) {
  const auto found = extra.find("data_order");
  if (found == extra.end() || found->is_null()) return {};
  const Json& saved = json_field(extra, "data_order", Json::value_t::object, source);
  if (const int64_t version = json_int(saved, "version", source); version != kBlockOrderVersion)
    fail(ExitCode::kUsage, "train", source, ": data_order: wanted version ", kBlockOrderVersion,
         ", found ", version, "; resume with the version of octavo that wrote the checkpoint");
  const data::Order order{.block = order_number(saved, "block", source),
                          .window = order_number(saved, "window", source),
                          .step = order_number(saved, "step", source),
                          .run = order_number(saved, "run", source)};
  if (const std::string problem = data::problem_of(order); !problem.empty())
    fail(ExitCode::kDamaged, "train", source, ": data_order: ", problem,
         "; resume from another checkpoint");
  return order;
}

}  // namespace octavo::train
