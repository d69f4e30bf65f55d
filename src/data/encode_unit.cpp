#include <openssl/evp.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "data/encode.h"
#include "data/input_file.h"
#include "data/shard.h"

namespace octavo::data {
namespace {

// The part of a unit's `tokens` that is training when the cut falls inside the `bytes` from
// `begin`.
uint64_t tokens_before_cut(uint64_t tokens, uint64_t begin, uint64_t bytes, uint64_t cut) {
  if (cut >= begin + bytes) return tokens;
  if (cut <= begin) return 0;
  return static_cast<uint64_t>(static_cast<unsigned __int128>(tokens) * (cut - begin) / bytes);
}

// Adds where in the input a tokenizer's or parser's complaint arose.
template <typename Action>
void at_place(const std::string& place, Action action) {
  try {
    action();
  } catch (const Error& error) {
    fail(error.code(), "data", place, ": ", error.what());
  }
}

// The first 128 bits of SHA-256, of one text or of its parts.
class TextHash {
 public:
  TextHash() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    check(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  void add(std::string_view text) {
    check(EVP_DigestUpdate(context_.get(), text.data(), text.size()) == 1);
  }
  std::array<uint8_t, 16> finish() {
    std::array<uint8_t, EVP_MAX_MD_SIZE> all{};
    check(EVP_DigestFinal_ex(context_.get(), all.data(), nullptr) == 1);
    std::array<uint8_t, 16> first;
    std::copy_n(all.begin(), first.size(), first.begin());
    return first;
  }

 private:
  static void check(bool good) {
    if (!good)
      fail(ExitCode::kEnvironment, "data", "OpenSSL gives no SHA-256; check its configuration");
  }
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

// Whether the document is not to be encoded: its hash is asked for, or it came before.
bool leave_out(const EncodeContext& context, const DocumentPlace& place, std::string_view text,
               EncodedUnit& result) {
  if (context.only_hash) {
    if (text.empty()) return true;
    TextHash hash;
    hash.add(text);
    result.hashes.push_back({hash.finish(), place});
    return true;
  }
  if (context.duplicates == nullptr || !std::ranges::binary_search(*context.duplicates, place))
    return false;
  ++result.duplicates;
  return true;
}

// A text file is one document, also where it is encoded in parts.
bool leave_out_file(const EncodeContext& context, const Unit& unit, EncodedUnit& result) {
  const Source& source = context.sources[unit.start.file];
  if (unit.start.offset == 0 && (unit.ends_file || !context.only_hash))
    return leave_out(context, {unit.start.file, 0}, unit.text, result);
  if (unit.start.offset > 0) {
    EncodedUnit counted;
    return context.only_hash || leave_out(context, {unit.start.file, 0}, unit.text, counted);
  }
  const auto file = open_input(source);
  TextHash hash;
  for (uint64_t at = 0; at < source.bytes; at += UnitLimits{}.part_bytes)
    hash.add(file->read(at, UnitLimits{}.part_bytes));
  result.hashes.push_back({hash.finish(), {unit.start.file, 0}});
  return true;
}

void append(const std::vector<tokenizer::TokenId>& ids, EncodedUnit& result) {
  result.tokens.insert(result.tokens.end(), ids.begin(), ids.end());
}

void append_text(const EncodeContext& context, std::string_view text, EncodedUnit& result,
                 tokenizer::Place place = tokenizer::Place::kStart) {
  if (context.special_in_text)
    context.tokenizer.encode(text, result.tokens, place);
  else
    result.special_in_text += context.tokenizer.encode_text(text, result.tokens, place);
}

// Unless the tokenizer's post-processor has put it there.
void end_document(const EncodeContext& context, EncodedUnit& result) {
  const tokenizer::TokenId end = context.tokenizer.end_of_document();
  const auto& behind = context.tokenizer.end_ids();
  if (behind.empty() || behind.back() != end) result.tokens.push_back(end);
}

// The document from token `first` on is the last of its data set; the cut may fall inside its
// bytes. Behind the part that is trained on comes an end of document, where other documents follow
// it.
void cut_document(const EncodeContext& context, RowLocation bytes, uint64_t val_begin, size_t first,
                  bool is_last, EncodedUnit& result) {
  const uint64_t before = tokens_before_cut(result.tokens.size() - first, bytes.begin,
                                            bytes.end - bytes.begin, val_begin);
  const bool inside = val_begin > bytes.begin && val_begin < bytes.end;
  uint64_t train = first + before;
  if (inside && before > 0 && !is_last) {
    const auto at = result.tokens.begin() + static_cast<std::ptrdiff_t>(train++);
    result.tokens.insert(at, context.tokenizer.end_of_document());
  }
  if (before > 0) result.train_tokens = train;
}

void encode_text(const EncodeContext& context, const Unit& unit, EncodedUnit& result) {
  if (leave_out_file(context, unit, result)) return;
  const Source& source = context.sources[unit.start.file];
  const ValidationCut& cut = context.cuts[unit.start.file];
  const uint64_t file_begin = context.begins[unit.start.file];
  const uint64_t file_end = context.begins[unit.start.file + 1];
  const bool is_last = file_end == context.last_end;
  const bool begins = unit.start.offset == 0;
  if (begins) append(context.tokenizer.begin_ids(), result);
  at_place(source.path.string(), [&] {
    append_text(context, unit.text, result,
                begins ? tokenizer::Place::kStart : tokenizer::Place::kInsideText);
  });
  if (unit.ends_file) append(context.tokenizer.end_ids(), result);
  if (unit.start.offset == 0 && !result.tokens.empty()) result.documents.push_back(0);
  if (file_end == cut.set_end) {
    const uint64_t begin = file_begin + unit.start.offset, end = begin + unit.text.size();
    cut_document(context, {begin, end}, cut.val_begin, 0, is_last, result);
    if (is_last) return;
    if (unit.ends_file) {
      end_document(context, result);
    } else if (cut.val_begin == end) {
      result.tokens.push_back(context.tokenizer.end_of_document());
      result.train_tokens = result.tokens.size();
    }
    return;
  }
  if (unit.ends_file && !is_last) end_document(context, result);
  result.train_tokens = file_begin < cut.val_begin ? result.tokens.size() : 0;
}

// One row: where it stands in all the inputs laid end to end, and in its file.
struct Row {
  RowLocation bytes;
  DocumentPlace document;
  std::string place;  // for messages
  Json json;
};

void encode_text_row(const EncodeContext& context, const ValidationCut& cut, Row& row,
                     EncodedUnit& result) {
  const size_t first = result.tokens.size();
  const std::string text = text_of_row(context.format, row.json, row.place);
  if (leave_out(context, row.document, text, result)) return;
  append(context.tokenizer.begin_ids(), result);
  const size_t before = result.tokens.size();
  at_place(row.place, [&] { append_text(context, text, result); });
  if (result.tokens.size() == before) {
    result.tokens.resize(first);
    ++result.empty_texts;
    return;
  }
  append(context.tokenizer.end_ids(), result);
  result.documents.push_back(first);
  const bool is_last = row.bytes.end >= context.last_end;
  const bool may_be_cut = cut.set_end > 0 && row.bytes.end >= cut.set_end;
  if (may_be_cut) cut_document(context, row.bytes, cut.val_begin, first, is_last, result);
  const bool all_train =
      may_be_cut ? result.train_tokens == result.tokens.size() : row.bytes.begin < cut.val_begin;
  if (!is_last) end_document(context, result);
  if (all_train) result.train_tokens = result.tokens.size();
}

void note_skipped(const Row& row, EncodedUnit& result) {
  constexpr size_t kMostPlaces = 5;
  if (result.skipped_places.size() < kMostPlaces) result.skipped_places.push_back(row.place);
}

bool has_answer(const std::vector<Message>& messages) {
  for (const Message& message : messages)
    if (message.role == "assistant" && !message.content.empty()) return true;
  return false;
}

// A row with answers becomes one document of at most a sample's length, its tokens with flags.
void encode_chat_row(const EncodeContext& context, const ValidationCut& cut, Row& row,
                     EncodedUnit& result) {
  const std::vector<Message> messages = messages_of_row(context.format, row.json, row.place);
  if (context.only_hash || context.duplicates != nullptr) {
    std::string text;
    for (const Message& message : messages)
      text +=
          str(message.role.size(), ' ', message.role, message.content.size(), ' ', message.content);
    if (leave_out(context, row.document, text, result)) return;
  }
  if (!has_answer(messages)) {
    ++result.empty_answers;
    note_skipped(row, result);
    return;
  }
  EncodedChat chat;
  at_place(row.place, [&] {
    chat = context.own ? context.own->encode(messages, false, !context.loss_on_all)
                       : encode_chat(context.tokenizer,
                                     render_chat(context.chat_template, messages, false));
  });
  const bool too_long = chat.ids.size() > context.sample_length;
  if (too_long) chat.ids.resize(context.sample_length);
  bool has_loss = false;  // the first token follows nothing that could predict it
  for (size_t i = 1; i < chat.ids.size(); ++i) has_loss |= context.loss_on_all || chat.in_loss[i];
  if (!has_loss) {
    ++result.documents_without_loss;
    note_skipped(row, result);
    return;
  }
  result.cut_documents += too_long ? 1 : 0;
  result.documents.push_back(result.tokens.size());
  for (size_t i = 0; i < chat.ids.size(); ++i) {
    auto word = static_cast<uint32_t>(chat.ids[i]);
    if (i == 0)
      word |= kStartFlag;
    else if (context.loss_on_all || chat.in_loss[i])
      word |= kLossFlag;
    result.tokens.push_back(static_cast<int32_t>(word));
  }
  if (row.bytes.begin < cut.val_begin) result.train_tokens = result.tokens.size();
}

void encode_rows(const EncodeContext& context, const Unit& unit, EncodedUnit& result) {
  const Source& source = context.sources[unit.start.file];
  const ValidationCut& cut = context.cuts[unit.start.file];
  const uint64_t file_begin = context.begins[unit.start.file];
  const std::string_view text = unit.text;
  uint64_t number = unit.start.line;
  for (size_t from = 0, row_index = 0; from < text.size(); ++number, ++row_index) {
    const size_t newline = text.find('\n', from);
    const std::string_view line = text.substr(from, newline - from);
    Row row;
    const uint64_t begin = unit.start.offset + from;
    row.bytes =
        unit.places.empty() ? RowLocation{begin, begin + line.size()} : unit.places.at(row_index);
    row.document = {unit.start.file, unit.places.empty() ? begin : number};
    row.bytes.begin += file_begin;
    row.bytes.end += file_begin;
    from = newline == std::string_view::npos ? text.size() : newline + 1;
    if (trim(line).empty()) continue;
    row.place = unit.start.line > 0 ? str(source.path.string(), ":", number)
                                    : str(source.path.string(), " at byte ", begin);
    try {
      row.json = parse_json(line, row.place, {.max_bytes = UnitLimits{}.line_bytes + 1024});
    } catch (const Error& error) {
      fail(ExitCode::kDamaged, "data", "wanted one JSON object per line or row: ", error.what(),
           "; repair or remove it");
    }
    if (context.format.has_answers())
      encode_chat_row(context, cut, row, result);
    else
      encode_text_row(context, cut, row, result);
  }
}

void put_end_before(const EncodeContext& context, EncodedUnit& result) {
  result.tokens.insert(result.tokens.begin(), context.tokenizer.end_of_document());
  for (uint64_t& document : result.documents) ++document;
  ++result.train_tokens;
}

}  // namespace

EncodedUnit encode_unit(const EncodeContext& context, const Unit& unit) {
  EncodedUnit result;
  result.start = unit.start;
  result.source_bytes = unit.source_bytes;
  if (context.sources[unit.start.file].format == SourceFormat::kText)
    encode_text(context, unit, result);
  else
    encode_rows(context, unit, result);
  if (context.after_end && !context.only_hash && unit.start.file == 0 && unit.start.offset == 0)
    put_end_before(context, result);
  return result;
}

}  // namespace octavo::data
