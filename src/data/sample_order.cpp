#include "data/sample_order.h"

#include <algorithm>
#include <optional>

#include "base/checked.h"
#include "base/error.h"
#include "base/random.h"
#include "data/mixed_tokens.h"

namespace octavo::data {
namespace {

constexpr uint64_t kMostCachedBlocks = 1024;
// Of a mixture, in a rank's memory: of one source, and of all of them.
constexpr uint64_t kSourceBytes = uint64_t{1} << 30, kSourcesBytes = uint64_t{4} << 30;
constexpr uint64_t kSourceSalt = 0x6f637461766f2f33;  // "octavo/3": changing it changes mixtures

// Room for the windows that the samples of a step come from, for what follows them, and for blocks
// at the borders of lanes.
StreamOptions stream_options(const TokenData& data, const Loader::Options& options,
                             const Order& order) {
  const auto rows = static_cast<uint64_t>(options.rows);
  const uint64_t batches = ceil_div(order.step, rows * static_cast<uint64_t>(options.world));
  // Of a batch: rows in a row, which may begin inside a lane's run.
  const bool aligned = rows % order.run == 0 || order.run % rows == 0;
  const uint64_t lanes = batches * (ceil_div(rows, order.run) + (aligned ? 0 : 1));
  const uint64_t windows =
      std::min(std::min(order.lanes(), lanes) * order.window, kMostCachedBlocks);
  const uint64_t expected = std::clamp<uint64_t>(windows / 4, 16, 32);
  return {.block_tokens = order.block * static_cast<uint64_t>(options.length),
          .overlap = data.sample_length() == 0 ? uint64_t{1} : 0,
          .cached_blocks = windows + expected + 16,
          .expected_blocks = expected};
}

// Samples from anywhere, each with its neighbourhood: what is remote is asked for ahead of time,
// and the rest of a block comes from the cache of parts.
StreamOptions scattered_options(const TokenData& data, const Loader::Options& options) {
  constexpr uint64_t kBytes = uint64_t{1} << 18, kBlocks = 256;
  const auto length = static_cast<uint64_t>(options.length);
  return {.block_tokens = std::max(kBytes / data.token_bytes() / length, uint64_t{1}) * length,
          .overlap = data.sample_length() == 0 ? uint64_t{1} : 0,
          .cached_blocks = kBlocks,
          .expected_blocks = kBlocks / 2};
}

bool is_scattered(const Loader::Options& options, const Order& order) {
  return !options.shuffle || order.is_uniform();
}

// Nothing: samples are read one by one.
std::optional<StreamOptions> options_for(const TokenData& data, const Loader::Options& options,
                                         const Order& order) {
  if (!is_scattered(options, order)) return stream_options(data, options, order);
  if (data.is_remote()) return scattered_options(data, options);
  return std::nullopt;
}

// A source's share of a step is no whole number of samples, so that they move from rank to rank: a
// rank may come to all places of the data that a step draws from, not to its share of them alone.
void let_grow(StreamOptions& options, uint64_t token_bytes, uint64_t streams) {
  const uint64_t bytes = std::min(kSourceBytes, kSourcesBytes / streams);
  options.most_blocks =
      std::max(options.cached_blocks, bytes / (options.block_tokens * token_bytes));
}

// Many sources take about as much memory as one.
void share_blocks(StreamOptions& options, uint64_t streams) {
  options.cached_blocks = std::max<uint64_t>(4, options.cached_blocks / streams);
  options.expected_blocks = options.cached_blocks / 2;
}

}  // namespace

SampleOrder::SampleOrder(const TokenData& data, const Loader::Options& options,
                         const Position& start)
    : data_(data),
      options_(options),
      order_(start.order),
      whole_(sample_count(data, options.length), options.seed, options.shuffle, start.order),
      mixture_(start.mixture) {
  const MixedTokens* mixed = data.mixed();
  OCTAVO_ASSERT(mixed != nullptr || mixture_ == nullptr);
  if (mixed == nullptr) return;
  if (mixture_ == nullptr) mixture_ = mixed->all_once();  // validation has no weights
  OCTAVO_ASSERT(mixture_->sources().size() == mixed->sources().size());
  for (size_t k = 0; k < mixed->sources().size(); ++k) {
    const Mixture::Source& source = mixture_->sources()[k];
    OCTAVO_ASSERT(source.samples == mixed->samples(k));
    parts_.emplace_back(source.samples, mix64(options.seed ^ mix64(kSourceSalt + k)),
                        options.shuffle, source.order);
  }
}

uint64_t SampleOrder::at(uint64_t position) const {
  if (mixture_ == nullptr) return whole_.at(position);
  const Mixture::Place place = mixture_->at(position);
  return data_.mixed()->first_sample(place.source) + parts_[place.source].at(place.index);
}

std::unique_ptr<TokenStream> SampleOrder::stream() const {
  if (mixture_ == nullptr) {
    const auto wanted = options_for(data_, options_, order_);
    return wanted ? data_.stream(*wanted) : nullptr;
  }
  const auto& sources = data_.mixed()->sources();
  std::vector<std::optional<StreamOptions>> wanted;
  for (size_t k = 0; k < sources.size(); ++k)
    wanted.push_back(options_for(*sources[k].data, options_, mixture_->sources()[k].order));
  const auto count = std::ranges::count_if(wanted, [](const auto& one) { return one.has_value(); });
  if (count == 0) return nullptr;
  std::vector<std::unique_ptr<TokenStream>> streams(sources.size());
  for (size_t k = 0; k < sources.size(); ++k) {
    if (!wanted[k]) continue;
    wanted[k]->sharers = static_cast<int>(count);
    if (is_scattered(options_, mixture_->sources()[k].order))
      share_blocks(*wanted[k], static_cast<uint64_t>(count));
    else
      let_grow(*wanted[k], sources[k].data->token_bytes(), static_cast<uint64_t>(count));
    streams[k] = sources[k].data->stream(*wanted[k]);
  }
  return data_.mixed()->join(std::move(streams));
}

}  // namespace octavo::data
