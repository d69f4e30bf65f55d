#pragma once
// Which sample comes at each position of a run, and how its tokens are read: for the loader.

#include <memory>
#include <vector>

#include "data/mixture.h"
#include "data/token_data.h"

namespace octavo::data {

class SampleOrder {
 public:
  // `data` outlives it.
  SampleOrder(const TokenData& data, const Loader::Options& options, const Position& start);
  // The number of the sample in the data.
  uint64_t at(uint64_t position) const;
  uint64_t samples() const { return whole_.samples(); }  // in the data
  // Null: samples come from anywhere in the data, and are read one by one.
  std::unique_ptr<TokenStream> stream() const;

 private:
  const TokenData& data_;
  const Loader::Options options_;
  Order order_;
  Sampler whole_;  // of one source
  std::shared_ptr<const Mixture> mixture_;
  std::vector<Sampler> parts_;  // of the sources of a mixture
};

}  // namespace octavo::data
