#include <algorithm>
#include <cctype>
#include <iomanip>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/progress.h"
#include "base/text.h"
#include "data/dataset_index.h"
#include "data/input_sets.h"
#include "data/prepare.h"
#include "data/token_data.h"
#include "object_store/address.h"
#include "tokenizer/tokenizer.h"

namespace octavo::data {
namespace {

constexpr size_t kPreviewTokens = 48;

// One printable line, whatever bytes the text has.
std::string printable(const std::string& text) {
  std::string line;
  for (const char c : text) {
    if (c == '\n')
      line += "\\n";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      line += '.';
    else
      line += c;
  }
  return line;
}

std::string preview(const fs::path& folder, const DatasetIndex& index, const std::string& split) {
  try {
    const auto tokenizer = tokenizer::load_tokenizer(index.tokenizer_name);
    if (tokenizer->fingerprint() != index.kind.tokenizer_fingerprint)
      return "(not shown: the tokenizer of this name is now another one)";
    const auto data = TokenData::open(folder, split);
    std::vector<int32_t> tokens(std::min<uint64_t>(kPreviewTokens, data->tokens()));
    data->read(0, tokens);
    if (index.kind.packed())
      for (int32_t& token : tokens) token &= static_cast<int32_t>(kIdMask);
    return printable(tokenizer->decode(tokens));
  } catch (const Error& error) {
    return str("(not shown: ", error.what(), ")");
  }
}

// Without reading it: of a local file that is not there, or has been cut; "" when it may be whole.
std::string size_problem(const fs::path& folder, const ShardInfo& shard) {
  if (object_store::is_s3_address(folder.string())) return "";
  std::error_code missing;
  const uint64_t size = fs::file_size(join_inside(folder, shard.name), missing);
  if (missing == std::errc::no_such_file_or_directory)
    return str(shard.name, " is named by the index but missing");
  if (missing) return str(shard.name, " cannot be examined: ", missing.message());
  if (size == shard.bytes) return "";
  return str(shard.name, ": wanted ", shard.bytes, " bytes, found ", size);
}

// "ok", or what is wrong.
std::string verify(const fs::path& folder, const ShardInfo& info, const ShardKind& kind) {
  try {
    Shard(folder, info, kind, nullptr).verify_all();
    return "ok";
  } catch (const Error& error) {
    return error.what();
  }
}

void describe_split(std::ostream& out, const fs::path& folder, const DatasetIndex& index,
                    const std::string& name, bool verify_hashes, std::string& damage) {
  const SplitIndex& split = index.splits.at(name);
  uint64_t bytes = 0;
  for (const ShardInfo& shard : split.shards) bytes += shard.bytes;
  out << "\n"
      << name << ": " << split.tokens() << " tokens (" << format_count(double(split.tokens()))
      << "), " << counted(split.documents(), "document")
      << (split.documents() == 1 ? " starts here, " : " start here, ")
      << counted(split.shards.size(), "shard") << ", " << format_bytes(double(bytes)) << "\n";
  if (index.kind.packed()) {
    uint64_t loss_tokens = 0, padding = 0;
    for (const ShardInfo& shard : split.shards) {
      loss_tokens += shard.loss_tokens;
      padding += shard.padding;
    }
    const auto share = [&](uint64_t part) {
      return 100 * double(part) / double(std::max<uint64_t>(split.tokens(), 1));
    };
    out << "  packed: " << counted(split.tokens() / index.kind.sample_length, "sample") << " of "
        << index.kind.sample_length << " tokens, " << std::fixed << std::setprecision(1)
        << share(loss_tokens) << "% loss tokens, " << share(padding) << "% padding\n";
  }
  out << "  begins: " << preview(folder, index, name) << "\n";
  out << "  " << std::left << std::setw(18) << "shard" << std::right << std::setw(14) << "tokens"
      << std::setw(12) << "documents" << std::setw(14) << "bytes"
      << "  hash" << (verify_hashes ? std::string(30, ' ') + "check" : "") << "\n";
  for (const ShardInfo& shard : split.shards) {
    out << "  " << std::left << std::setw(18) << shard.name << std::right << std::setw(14)
        << shard.tokens << std::setw(12) << shard.documents << std::setw(14) << shard.bytes << "  "
        << shard.hash_text();
    if (verify_hashes) {
      const std::string verdict = verify(folder, shard, index.kind);
      out << "  " << (verdict == "ok" ? "ok" : "DAMAGED");
      if (verdict != "ok") damage += "\n" + verdict;
    } else if (const std::string problem = size_problem(folder, shard); !problem.empty()) {
      out << "  DAMAGED";
      damage += "\n" + problem;
    }
    out << "\n";
  }
}

}  // namespace

std::string inspect(const fs::path& folder, bool verify_hashes) {
  const DatasetIndex index = read_index(folder);
  std::ostringstream out;
  out << "data set     " << folder.string() << "\n"
      << "fingerprint  " << index.fingerprint() << "\n"
      << "tokenizer    " << index.tokenizer_name << " (" << index.kind.vocab_size << " ids, "
      << (index.kind.token_bytes() == 2 ? "u16" : "u32") << ", fingerprint "
      << index.kind.tokenizer_fingerprint << ")\n"
      << "sources      " << counted(index.source_files, "file") << ", "
      << format_bytes(double(index.source_bytes)) << " (listed in " << kSourcesName << ")\n"
      << "options      " << index.options.dump() << "\n";
  if (index.duplicates > 0)
    out << "duplicates   " << counted(index.duplicates, "document") << " left out\n";
  for (const std::string& line : describe_sets(index.sets, (folder / kIndexName).string()))
    out << "data set     " << line << "\n";
  std::string damage;
  for (const char* name : {"train", "val"})
    if (index.splits.contains(name))
      describe_split(out, folder, index, name, verify_hashes, damage);
  if (!damage.empty())
    fail(ExitCode::kDamaged, "data", "wanted whole shards, found damage:", damage, "\n", out.str());
  return out.str();
}

}  // namespace octavo::data
