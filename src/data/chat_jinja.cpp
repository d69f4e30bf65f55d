#include "data/chat_jinja.h"

#include "base/error.h"
#include "data/chat_texts.h"
#include "data/own_template.h"

namespace octavo::data {
namespace {

// A string of Jinja.
std::string jinja_text(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

// Tags cut off the white space before them, so that lines here are for readers alone.
std::string chatml(std::string_view system) {
  std::string text;
  if (!system.empty())
    text += "{%- if not messages or messages[0]['role'] != 'system' %}\n    {{- " +
            jinja_text("<|im_start|>system\n" + std::string(system) + "<|im_end|>\n") +
            " }}\n{%- endif %}\n";
  return text +
         "{%- for message in messages %}\n"
         "    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
         "'<|im_end|>\\n' }}\n"
         "{%- endfor %}\n"
         "{%- if add_generation_prompt %}\n"
         "    {{- '<|im_start|>assistant\\n' }}\n"
         "{%- endif %}";
}

std::string llama3(bool with_date) {
  std::string text = "{{- '<|begin_of_text|>' }}\n";
  if (with_date)
    text +=
        "{%- if messages and messages[0]['role'] == 'system' %}\n"
        "    {%- set system = messages[0]['content'] | trim %}\n"
        "    {%- set messages = messages[1:] %}\n"
        "{%- else %}\n"
        "    {%- set system = '' %}\n"
        "{%- endif %}\n"
        "{{- " +
        jinja_text("<|start_header_id|>system<|end_header_id|>\n\n" + std::string(kLlama31System)) +
        " + system + '<|eot_id|>' }}\n";
  return text +
         "{%- for message in messages %}\n"
         "    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + "
         "message['content'] | trim + '<|eot_id|>' }}\n"
         "{%- endfor %}\n"
         "{%- if add_generation_prompt %}\n"
         "    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n"
         "{%- endif %}";
}

// What stands in front of a text and behind an answer where there are no markers.
struct Edges {
  std::string begin, end;
};

Edges edges_of(const tokenizer::Tokenizer& tokenizer) {
  std::vector<tokenizer::TokenId> begin;
  tokenizer.encode_with_special("", begin);
  return {jinja_text(tokenizer.decode(begin)),
          jinja_text(tokenizer.decode({tokenizer.end_of_document()}))};
}

// A message may have an `input`, Alpaca's second part of an instruction.
std::string alpaca(const Edges& edges) {
  return "{{- " + edges.begin +
         " }}\n"
         "{%- set chat = namespace(asked=false) %}\n"
         "{%- for message in messages %}\n"
         "    {%- if loop.first and message['role'] == 'system' %}\n"
         "        {{- message['content'] + '\\n\\n' }}\n"
         "    {%- elif message['role'] == 'assistant' %}\n"
         "        {{- '### Response:\\n' + message['content'] + " +
         edges.end +
         " }}\n"
         "        {%- set chat.asked = false %}\n"
         "    {%- else %}\n"
         "        {%- if loop.first and message['input'] %}\n"
         "            {{- " +
         jinja_text(kAlpacaWithInput) +
         " }}\n"
         "        {%- elif loop.first %}\n"
         "            {{- " +
         jinja_text(kAlpaca) +
         " }}\n"
         "        {%- elif not chat.asked %}\n"
         "            {{- '\\n\\n' }}\n"
         "        {%- endif %}\n"
         "        {{- '### Instruction:\\n' + message['content'] + '\\n\\n' }}\n"
         "        {%- if message['input'] %}\n"
         "            {{- '### Input:\\n' + message['input'] + '\\n\\n' }}\n"
         "        {%- endif %}\n"
         "        {%- set chat.asked = true %}\n"
         "    {%- endif %}\n"
         "{%- endfor %}\n"
         "{%- if add_generation_prompt %}\n"
         "    {{- '### Response:\\n' }}\n"
         "{%- endif %}";
}

std::string plain(const Edges& edges) {
  return "{{- " + edges.begin +
         " }}\n"
         "{%- for message in messages %}\n"
         "    {{- message['content'] }}\n"
         "    {%- if message['role'] == 'assistant' %}\n"
         "        {{- " +
         edges.end +
         " }}\n"
         "    {%- endif %}\n"
         "{%- endfor %}";
}

std::shared_ptr<const OwnTemplate> own_template(const tokenizer::Tokenizer& tokenizer) {
  auto own = OwnTemplate::find(tokenizer);
  if (!own)
    fail(ExitCode::kUsage, "data", "wanted the chat template of the tokenizer's folder (",
         tokenizer.name(),
         "), with which the model was trained, found none; name the folder with --tokenizer, or a "
         "template with --chat_template");
  return own;
}

}  // namespace

std::string jinja_of(ChatTemplate kind, const tokenizer::Tokenizer& tokenizer) {
  if (kind == ChatTemplate::kAuto) return own_template(tokenizer)->text();
  check_template(kind, tokenizer);
  switch (kind) {
    case ChatTemplate::kAuto:
      break;
    case ChatTemplate::kChatml:
      return chatml("");
    case ChatTemplate::kQwen2:
      return chatml(kQwenSystem);
    case ChatTemplate::kSmollm2:
      return chatml(kSmolSystem);
    case ChatTemplate::kLlama3:
    case ChatTemplate::kLlama31:
      return llama3(kind == ChatTemplate::kLlama31);
    case ChatTemplate::kAlpaca:
      return alpaca(edges_of(tokenizer));
    case ChatTemplate::kNone:
      return plain(edges_of(tokenizer));
  }
  OCTAVO_ASSERT(!"template_of() chooses");
  return {};
}

tokenizer::TokenId end_of_answer(ChatTemplate kind, const tokenizer::Tokenizer& tokenizer) {
  if (kind != ChatTemplate::kAuto) check_template(kind, tokenizer);
  // The template itself says it: the last loss token of an answer.
  const std::vector<Message> messages = {{"user", "a", ""}, {"assistant", "b", ""}};
  const auto chat = kind == ChatTemplate::kAuto
                        ? own_template(tokenizer)->encode(messages, false, true)
                        : encode_chat(tokenizer, render_chat(kind, messages, false));
  for (size_t i = chat.ids.size(); i-- > 0;)
    if (chat.in_loss[i] != 0) return chat.ids[i];
  OCTAVO_ASSERT(!"an answer ends with a loss token");
  return 0;
}

}  // namespace octavo::data
