// Chat templates as Jinja. What they render is compared with ours in tests/conformance/export.py.

#include "data/chat_jinja.h"

#include <gtest/gtest.h>

#include "helpers.h"
#include "tokenizer/fixtures.h"

namespace octavo::data {
namespace {

using tokenizer::TokenId;

constexpr ChatTemplate kKinds[] = {
    ChatTemplate::kChatml,  ChatTemplate::kQwen2,  ChatTemplate::kSmollm2, ChatTemplate::kLlama3,
    ChatTemplate::kLlama31, ChatTemplate::kAlpaca, ChatTemplate::kNone};

std::unique_ptr<tokenizer::Tokenizer> chat_tokenizer() {
  Json file = tokenizer::small_file();
  TokenId id = 256;
  for (const char* name : {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>",
                           "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"})
    file["added_tokens"].push_back(tokenizer::added_token(id++, name));
  return tokenizer::make_tokenizer(file);
}

TEST(ChatJinja, AnswersEndWithTheTemplatesMarker) {
  const auto tokenizer = chat_tokenizer();
  for (const ChatTemplate kind : kKinds) {
    const bool is_llama = kind == ChatTemplate::kLlama3 || kind == ChatTemplate::kLlama31;
    const bool is_plain = kind == ChatTemplate::kAlpaca || kind == ChatTemplate::kNone;
    EXPECT_EQ(end_of_answer(kind, *tokenizer), is_plain   ? 256
                                               : is_llama ? 262
                                                          : 258)
        << name_of(kind);
  }
  EXPECT_EQ(end_of_answer(ChatTemplate::kAlpaca, *tokenizer::load_tokenizer("bytes")), 256);
}

TEST(ChatJinja, IsOneTextThatNamesTheMarkers) {
  const auto tokenizer = chat_tokenizer();
  EXPECT_EQ(jinja_of(ChatTemplate::kChatml, *tokenizer),
            "{%- for message in messages %}\n"
            "    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
            "'<|im_end|>\\n' }}\n"
            "{%- endfor %}\n"
            "{%- if add_generation_prompt %}\n"
            "    {{- '<|im_start|>assistant\\n' }}\n"
            "{%- endif %}");
  EXPECT_NE(jinja_of(ChatTemplate::kAlpaca, *tokenizer).find("'<|endoftext|>'"), std::string::npos);
  for (const ChatTemplate kind : kKinds) {
    const std::string text = jinja_of(kind, *tokenizer);
    EXPECT_NE(text.back(), '\n') << name_of(kind);  // it would be written
    // No tag leaves white space before it.
    for (const char* open : {"{% ", "{{ "})
      EXPECT_EQ(text.find(open), std::string::npos) << name_of(kind);
  }
  expect_failure([] { jinja_of(ChatTemplate::kQwen2, *tokenizer::load_tokenizer("bytes")); },
                 ExitCode::kUsage, {"<|im_start|>"});
}

TEST(ChatJinja, TemplatesHaveNames) {
  for (const ChatTemplate kind : kKinds)
    EXPECT_EQ(template_named(std::string(name_of(kind)), "test"), kind);
  for (const char* name : {"auto", "", "gemma"})
    expect_failure([&] { template_named(name, "test"); }, ExitCode::kDamaged, {"test", name});
}

}  // namespace
}  // namespace octavo::data
