#pragma once
// Units to tokens: what each unit becomes, and the threads that do it in parallel while the results
// come out in input order.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/row_format.h"
#include "data/units.h"
#include "tokenizer/tokenizer.h"

namespace octavo::data {

// All that decides the token stream. Outlives the encoder.
struct EncodeContext {
  const tokenizer::Tokenizer& tokenizer;
  const std::vector<Source>& sources;
  std::vector<uint64_t> begins;  // source_begins
  RowFormat format;
  ChatTemplate chat_template = ChatTemplate::kNone;  // of rows with answers
  bool learn_all = false;
  bool special_in_text = false;  // texts may spell special tokens
  uint64_t sample_length = 0;    // of packed documents; 0: plain tokens
  // A document that starts at or behind this input byte is validation. The last document of all is
  // cut in two when the byte falls inside it; any other document stays whole.
  uint64_t val_begin = UINT64_MAX;
  uint64_t last_end =
      0;  // last_document_end; the document that ends here has no end-of-document token
};

struct EncodedUnit {
  UnitPosition start;
  uint64_t source_bytes = 0;
  std::vector<tokenizer::TokenId> tokens;  // with flags when they are to be packed
  std::vector<uint64_t> documents;         // indices of documents' first tokens
  uint64_t train_tokens = 0;     // tokens before this index are training, the others validation
  uint64_t empty_documents = 0;  // left out
  uint64_t special_in_text = 0;  // places that are spelled like special tokens and stayed text
  // Of packed documents: cut to the length of a sample, and left out because the cut left nothing
  // to learn.
  uint64_t cut_documents = 0, unlearned_documents = 0;
};

EncodedUnit encode_unit(const EncodeContext& context, const Unit& unit);

// One thread reads, `workers` encode; next() gives the results in input order. The text and tokens
// under way are bounded. Errors come out at the unit that caused them, so the first one in input
// order is reported.
class OrderedEncoder {
 public:
  OrderedEncoder(const EncodeContext& context, UnitPosition start, int workers);
  ~OrderedEncoder();
  std::optional<EncodedUnit> next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace octavo::data
