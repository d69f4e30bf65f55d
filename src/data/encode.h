#pragma once
// Units to tokens: what each unit becomes, and the threads that do it in parallel while the results
// come out in input order.

#include <array>
#include <compare>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/own_template.h"
#include "data/row_format.h"
#include "data/units.h"
#include "tokenizer/tokenizer.h"

namespace octavo::data {

// Where the validation part of a source begins.
struct ValidationCut {
  // A document that starts at or behind this input byte is validation. The last document of a data
  // set is cut in two when the byte falls inside it; any other document stays whole.
  uint64_t val_begin = UINT64_MAX;
  uint64_t set_end = 0;  // where the last document of its data set ends; 0: none is cut
};

// Which document it is: its first byte in the file, or its row where rows have no bytes.
struct DocumentPlace {
  uint64_t file = 0, at = 0;
  auto operator<=>(const DocumentPlace&) const = default;
};

struct DocumentHash {
  std::array<uint8_t, 16> hash{};  // of the text
  DocumentPlace place;
  auto operator<=>(const DocumentHash&) const = default;
};

// All that decides the token stream. Outlives the encoder.
struct EncodeContext {
  const tokenizer::Tokenizer& tokenizer;
  const std::vector<Source>& sources;
  std::vector<uint64_t> begins;  // source_begins
  RowFormat format;
  ChatTemplate chat_template = ChatTemplate::kNone;  // of rows with answers
  std::shared_ptr<const OwnTemplate> own;            // goes before it: the model's own
  bool loss_on_all = false;
  bool special_in_text = false;     // texts may spell special tokens
  uint64_t sample_length = 0;       // of packed documents; 0: plain tokens
  std::vector<ValidationCut> cuts;  // of the sources
  // Where the last document of all ends: it has no end-of-document token.
  uint64_t last_end = 0;
  bool after_end = false;  // the first unit begins with an end of document
  // In order: documents that came before, and are left out.
  const std::vector<DocumentPlace>* duplicates = nullptr;
  bool only_hash = false;  // units become hashes of their documents instead of tokens
};

struct EncodedUnit {
  UnitPosition start;
  uint64_t source_bytes = 0;
  std::vector<tokenizer::TokenId> tokens;  // with flags when they are to be packed
  std::vector<uint64_t> documents;         // indices of documents' first tokens
  uint64_t train_tokens = 0;  // tokens before this index are training, the others validation
  uint64_t empty_texts = 0, empty_answers = 0;  // rows that were left out
  uint64_t duplicates = 0;                      // documents that were
  uint64_t special_in_text = 0;  // places that are spelled like special tokens and stayed text
  // Of packed documents: cut to the length of a sample; left out for want of a loss token.
  uint64_t cut_documents = 0, documents_without_loss = 0;
  std::vector<DocumentHash> hashes;         // of documents with a text, when they are asked for
  std::vector<std::string> skipped_places;  // of the first rows with answers that were left out
};

EncodedUnit encode_unit(const EncodeContext& context, const Unit& unit);

// One thread reads, `workers` encode; next() gives the results in input order. The text and tokens
// under way are bounded. Errors come out at the unit that caused them, so the first one in input
// order is reported.
class OrderedEncoder {
 public:
  OrderedEncoder(const EncodeContext& context, UnitPosition start, int workers,
                 UnitPosition end = {.file = UINT64_MAX});
  ~OrderedEncoder();
  std::optional<EncodedUnit> next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace octavo::data
