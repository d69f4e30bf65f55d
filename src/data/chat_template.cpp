#include "data/chat_template.h"

#include <array>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "data/chat_texts.h"

namespace octavo::data {
namespace {

class Renderer {
 public:
  void text(std::string_view text, bool in_loss = false) {
    segments_.push_back({Segment::Kind::kText, std::string(text), in_loss});
  }
  void marker(std::string_view name, bool in_loss = false) {
    segments_.push_back({Segment::Kind::kMarker, std::string(name), in_loss});
  }
  void begin() { segments_.push_back({Segment::Kind::kBegin, "", false}); }
  void end_of_document() { segments_.push_back({Segment::Kind::kEndOfDocument, "", true}); }
  std::vector<Segment> take() { return std::move(segments_); }

 private:
  std::vector<Segment> segments_;
};

bool is_answer(const Message& message) {
  return message.role == "assistant";
}

// What a template without a place of its own for Alpaca's input shows.
std::string whole_content(const Message& message) {
  return message.input.empty() ? message.content : message.content + "\n\n" + message.input;
}

void chatml_turn(Renderer& out, const Message& message) {
  out.marker("<|im_start|>");
  out.text(message.role + "\n");
  out.text(whole_content(message), is_answer(message));
  out.marker("<|im_end|>", is_answer(message));
  out.text("\n");
}

void chatml(Renderer& out, const std::vector<Message>& messages, std::string_view system,
            bool open_turn) {
  if (!system.empty() && (messages.empty() || messages.front().role != "system"))
    chatml_turn(out, {.role = "system", .content = std::string(system), .input = {}});
  for (const Message& message : messages) chatml_turn(out, message);
  if (!open_turn) return;
  out.marker("<|im_start|>");
  out.text("assistant\n");
}

void llama_turn(Renderer& out, std::string_view role, std::string_view before,
                std::string_view content, bool answer) {
  out.marker("<|start_header_id|>");
  out.text(role);
  out.marker("<|end_header_id|>");
  out.text("\n\n");
  out.text(before);
  out.text(trim(content), answer);
  out.marker("<|eot_id|>", answer);
}

void llama3(Renderer& out, const std::vector<Message>& messages, bool with_date, bool open_turn) {
  out.marker("<|begin_of_text|>");
  size_t first = 0;
  if (with_date) {
    first = !messages.empty() && messages.front().role == "system" ? 1 : 0;
    llama_turn(out, "system", kLlama31System, first == 1 ? messages.front().content : "", false);
  }
  for (size_t i = first; i < messages.size(); ++i)
    llama_turn(out, messages[i].role, "", whole_content(messages[i]), is_answer(messages[i]));
  if (!open_turn) return;
  out.marker("<|start_header_id|>");
  out.text("assistant");
  out.marker("<|end_header_id|>");
  out.text("\n\n");
}

void alpaca(Renderer& out, const std::vector<Message>& messages, bool open_turn) {
  out.begin();
  bool first = true, asked = false;
  for (const Message& message : messages) {
    if (first && message.role == "system") {
      out.text(message.content + "\n\n");
    } else if (is_answer(message)) {
      out.text("### Response:\n");
      out.text(message.content, true);
      out.end_of_document();
      asked = false;
    } else {
      if (first) out.text(message.input.empty() ? kAlpaca : kAlpacaWithInput);
      out.text((asked || first ? "" : "\n\n") + ("### Instruction:\n" + message.content + "\n\n"));
      if (!message.input.empty()) out.text("### Input:\n" + message.input + "\n\n");
      asked = true;
    }
    first = false;
  }
  if (open_turn) out.text("### Response:\n");
}

void plain(Renderer& out, const std::vector<Message>& messages) {
  out.begin();
  for (const Message& message : messages) {
    out.text(whole_content(message), is_answer(message));
    if (is_answer(message)) out.end_of_document();
  }
}

std::vector<std::string_view> markers_of(ChatTemplate kind) {
  switch (kind) {
    case ChatTemplate::kChatml:
    case ChatTemplate::kQwen2:
    case ChatTemplate::kSmollm2:
      return {"<|im_start|>", "<|im_end|>"};
    case ChatTemplate::kLlama3:
    case ChatTemplate::kLlama31:
      return {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
    default:
      return {};
  }
}

}  // namespace

ChatTemplate template_of(const tokenizer::Tokenizer& tokenizer) {
  const auto has = [&](const char* name) { return tokenizer.added_token(name).has_value(); };
  if (has("<|start_header_id|>"))
    return has("<|eom_id|>") ? ChatTemplate::kLlama31 : ChatTemplate::kLlama3;
  if (!has("<|im_start|>")) return ChatTemplate::kAlpaca;
  constexpr tokenizer::TokenId kQwenEnd = 151643;
  if (tokenizer.added_token("<|endoftext|>") == kQwenEnd) return ChatTemplate::kQwen2;
  return has("<jupyter_start>") ? ChatTemplate::kSmollm2 : ChatTemplate::kChatml;
}

std::string_view stored_name(ChatTemplate kind) {
  return kind == ChatTemplate::kAuto ? "own" : name_of(kind);
}

ChatTemplate template_named(const std::string& name, const std::string& source) {
  if (name == stored_name(ChatTemplate::kAuto)) return ChatTemplate::kAuto;
  for (const ChatTemplate kind :
       {ChatTemplate::kChatml, ChatTemplate::kQwen2, ChatTemplate::kSmollm2, ChatTemplate::kLlama3,
        ChatTemplate::kLlama31, ChatTemplate::kAlpaca, ChatTemplate::kNone})
    if (name == name_of(kind)) return kind;
  fail(ExitCode::kDamaged, "data", source, ": wanted the name of a chat_template, found '",
       printable(name), "'; was it written by a newer version?");
}

void check_template(ChatTemplate kind, const tokenizer::Tokenizer& tokenizer) {
  for (const std::string_view name : markers_of(kind))
    if (!tokenizer.added_token(name))
      fail(ExitCode::kUsage, "data", "chat_template ", name_of(kind), " wants the added token ",
           name, ", found none in the tokenizer ", tokenizer.name(),
           "; choose alpaca or none, or another tokenizer");
}

std::vector<Segment> render_chat(ChatTemplate kind, const std::vector<Message>& messages,
                                 bool open_turn) {
  Renderer out;
  switch (kind) {
    case ChatTemplate::kAuto:
      OCTAVO_ASSERT(!"template_of() chooses");
      break;
    case ChatTemplate::kChatml:
      chatml(out, messages, "", open_turn);
      break;
    case ChatTemplate::kQwen2:
      chatml(out, messages, kQwenSystem, open_turn);
      break;
    case ChatTemplate::kSmollm2:
      chatml(out, messages, kSmolSystem, open_turn);
      break;
    case ChatTemplate::kLlama3:
    case ChatTemplate::kLlama31:
      llama3(out, messages, kind == ChatTemplate::kLlama31, open_turn);
      break;
    case ChatTemplate::kAlpaca:
      alpaca(out, messages, open_turn);
      break;
    case ChatTemplate::kNone:
      plain(out, messages);
      break;
  }
  return out.take();
}

EncodedChat encode_chat(const tokenizer::Tokenizer& tokenizer,
                        const std::vector<Segment>& segments) {
  EncodedChat chat;
  const auto mark = [&](bool in_loss) { chat.in_loss.resize(chat.ids.size(), in_loss ? 1 : 0); };
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    switch (segment.kind) {
      case Segment::Kind::kMarker: {
        const auto id = tokenizer.added_token(segment.text);
        OCTAVO_ASSERT(id.has_value());
        chat.ids.push_back(*id);
        break;
      }
      case Segment::Kind::kBegin:
        chat.ids.insert(chat.ids.end(), tokenizer.begin_ids().begin(), tokenizer.begin_ids().end());
        break;
      case Segment::Kind::kEndOfDocument:
        chat.ids.push_back(tokenizer.end_of_document());
        break;
      case Segment::Kind::kText: {
        const bool after_text = i > 0 && segments[i - 1].kind == Segment::Kind::kText;
        const auto place = after_text         ? tokenizer::Place::kInsideText
                           : chat.ids.empty() ? tokenizer::Place::kStart
                                              : tokenizer::Place::kAfterToken;
        std::string text = segment.text;
        for (; i + 1 < segments.size() && segments[i + 1].kind == Segment::Kind::kText &&
               segments[i + 1].in_loss == segment.in_loss;
             ++i)
          text += segments[i + 1].text;
        tokenizer.encode_plain(text, chat.ids, place);
        break;
      }
    }
    mark(segment.in_loss);
  }
  return chat;
}

}  // namespace octavo::data
