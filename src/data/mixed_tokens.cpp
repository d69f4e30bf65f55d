#include "data/mixed_tokens.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/file.h"

namespace octavo::data {

class MixedStream final : public TokenStream {
 public:
  MixedStream(const MixedTokens& data, std::vector<std::unique_ptr<TokenStream>> streams)
      : data_(data), streams_(std::move(streams)) {}
  void read(uint64_t begin, std::span<int32_t> out) override {
    const size_t source = source_at(begin);
    if (streams_[source] != nullptr)
      streams_[source]->read(data_.inside(source, begin), out);
    else
      data_.sources_[source].data->read(data_.inside(source, begin), out);
  }
  bool expect(uint64_t begin) override {
    const size_t source = source_at(begin);
    return streams_[source] == nullptr || streams_[source]->expect(data_.inside(source, begin));
  }
  uint64_t bytes_read() const override {
    uint64_t bytes = 0;
    for (const auto& stream : streams_) bytes += stream != nullptr ? stream->bytes_read() : 0;
    return bytes;
  }

 private:
  size_t source_at(uint64_t begin) const {
    return data_.source_of(begin / static_cast<uint64_t>(data_.length_));
  }

  const MixedTokens& data_;
  std::vector<std::unique_ptr<TokenStream>> streams_;
};

namespace {

void check_alike(const MixedTokens::Source& first, const MixedTokens::Source& other) {
  if (other.data->tokenizer_fingerprint() != first.data->tokenizer_fingerprint())
    fail(ExitCode::kUsage, "data", "wanted one tokenizer in a mixture, found ", first.path,
         " made with '", first.data->tokenizer_name(), "' and ", other.path, " made with '",
         other.data->tokenizer_name(), "'; prepare one of them again with --tokenizer");
  if (other.data->sample_length() != first.data->sample_length())
    fail(ExitCode::kUsage, "data",
         "wanted plain text or rows with answers (packed for one max_seq_length) in all sources of "
         "a mixture, found samples of ",
         first.data->sample_length(), " tokens in ", first.path, " and of ",
         other.data->sample_length(), " in ", other.path,
         " (0: plain text); prepare them alike, or train on one after the other");
}

}  // namespace

MixedTokens::MixedTokens(std::vector<Source> sources, int64_t length)
    : sources_(std::move(sources)), length_(length), begins_{0}, seen_(sources_.size(), 0) {
  OCTAVO_ASSERT(!sources_.empty());
  for (const Source& source : sources_) {
    check_alike(sources_.front(), source);
    const uint64_t samples = sample_count(*source.data, length);
    if (samples == 0)
      fail(ExitCode::kUsage, "data", "wanted at least one sample of ", length, " tokens in ",
           source.path, ", found ", source.data->tokens(),
           " tokens; give it more text, lower max_seq_length, or leave it out of the mixture");
    begins_.push_back(begins_.back() + samples);
  }
}

size_t MixedTokens::source_of(uint64_t sample) const {
  OCTAVO_ASSERT(sample < begins_.back());
  return static_cast<size_t>(std::ranges::upper_bound(begins_, sample) - begins_.begin()) - 1;
}

std::shared_ptr<const Mixture> MixedTokens::all_once() const {
  std::call_once(all_once_made_, [this] {
    std::vector<uint64_t> counts;
    std::vector<Mixture::Source> sources;
    for (size_t k = 0; k < sources_.size(); ++k) {
      counts.push_back(samples(k));
      sources.push_back({counts.back(), {}});
    }
    all_once_ = std::make_shared<const Mixture>(std::move(sources), once_each(counts));
  });
  return all_once_;
}

std::unique_ptr<TokenStream> MixedTokens::join(
    std::vector<std::unique_ptr<TokenStream>> streams) const {
  return std::make_unique<MixedStream>(*this, std::move(streams));
}

uint64_t MixedTokens::tokens() const {
  uint64_t sum = 0;
  for (const Source& source : sources_) sum += source.data->tokens();
  return sum;
}

std::string MixedTokens::fingerprint() const {
  std::string text = "octavo-mixture 1";
  for (const Source& source : sources_) text += "\n" + source.data->fingerprint();
  return hash_text(text);
}

std::optional<config::ChatTemplate> MixedTokens::chat_template() const {
  for (const Source& source : sources_)
    if (const auto found = source.data->chat_template()) return found;
  return std::nullopt;
}

void MixedTokens::read(uint64_t begin, std::span<int32_t> out) const {
  const size_t source = source_of(begin / static_cast<uint64_t>(length_));
  sources_[source].data->read(inside(source, begin), out);
}

std::vector<DamagedRange> MixedTokens::damage() const {
  const std::lock_guard lock(mutex_);
  for (size_t k = 0; k < sources_.size(); ++k) {
    const std::vector<DamagedRange> found = sources_[k].data->damage();
    for (; seen_[k] < found.size(); ++seen_[k]) {
      damage_.push_back(found[seen_[k]]);
      damage_.back().shard = sources_[k].name + "/" + damage_.back().shard;
    }
  }
  return damage_;
}

size_t MixedTokens::damage_count() const {
  size_t count = 0;
  for (const Source& source : sources_) count += source.data->damage_count();
  return count;
}

double MixedTokens::check_seconds() const {
  double seconds = 0;
  for (const Source& source : sources_) seconds += source.data->check_seconds();
  return seconds;
}

std::vector<std::string> source_names(const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  for (std::string path : paths) {
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    std::string name = fs::path(path).stem().string();
    for (char& c : name)  // a part of a metric's name
      if (c == '/' || static_cast<unsigned char>(c) <= 0x20) c = '_';
    if (name.empty()) name = "source";
    const std::string first = name;
    for (int number = 2; std::ranges::find(names, name) != names.end(); ++number)
      name = str(first, "_", number);
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace octavo::data
