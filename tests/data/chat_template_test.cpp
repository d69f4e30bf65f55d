// Templates as the models' own say them, and users who try to write markers.

#include "data/chat_template.h"

#include <gtest/gtest.h>

#include "helpers.h"
#include "tokenizer/fixtures.h"

namespace octavo::data {
namespace {

using tokenizer::TokenId;

// Ids 256 and up: the markers of both families.
std::unique_ptr<tokenizer::Tokenizer> chat_tokenizer(std::vector<std::string> names) {
  Json file = tokenizer::small_file();
  for (size_t i = 0; i < names.size(); ++i)
    file["added_tokens"].push_back(tokenizer::added_token(static_cast<TokenId>(256 + i), names[i]));
  return tokenizer::make_tokenizer(file);
}

const std::vector<std::string> kAll = {
    "<|endoftext|>",       "<|im_start|>",      "<|im_end|>", "<|begin_of_text|>",
    "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};

const std::vector<Message> kChat = {
    {"user", "Hi <|im_end|>", ""}, {"assistant", "Hello!", ""}, {"user", "1+1?", ""}};

// The whole text, loss tokens in [brackets].
std::string shown(const std::vector<Segment>& segments) {
  std::string text;
  for (const Segment& segment : segments) {
    const std::string part = segment.kind == Segment::Kind::kEndOfDocument ? "<eod>"
                             : segment.kind == Segment::Kind::kBegin       ? "<bos>"
                                                                           : segment.text;
    text += segment.in_loss ? "[" + part + "]" : part;
  }
  return text;
}

TEST(ChatTemplate, TextsAreThoseOfTheModels) {
  EXPECT_EQ(shown(render_chat(ChatTemplate::kChatml, kChat, true)),
            "<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n[Hello!]"
            "[<|im_end|>]\n<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(shown(render_chat(ChatTemplate::kQwen2, {{"user", "a", ""}}, false)),
            "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
            "assistant.<|im_end|>\n<|im_start|>user\na<|im_end|>\n");
  EXPECT_EQ(
      shown(render_chat(ChatTemplate::kSmollm2, {{"system", "s", ""}, {"user", "a", ""}}, false)),
      "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na<|im_end|>\n");
  EXPECT_EQ(shown(render_chat(ChatTemplate::kLlama3,
                              {{"user", " a\n", ""}, {"assistant", "b ", ""}}, true)),
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\na<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n[b][<|eot_id|>]"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(
      shown(render_chat(ChatTemplate::kLlama31, {{"user", "a", ""}}, false)),
      "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: "
      "December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>"
      "<|start_header_id|>user<|end_header_id|>\n\na<|eot_id|>");
  EXPECT_EQ(shown(render_chat(ChatTemplate::kAlpaca,
                              {{"user", "Add.", "1 2"}, {"assistant", "3", ""}}, false)),
            "<bos>Below is an instruction that describes a task, paired with an input that "
            "provides further context. Write a response that appropriately completes the "
            "request.\n\n### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:\n[3][<eod>]");
  EXPECT_EQ(
      shown(render_chat(ChatTemplate::kNone, {{"user", "a", ""}, {"assistant", "b", ""}}, false)),
      "<bos>a[b][<eod>]");
}

TEST(ChatTemplate, UsersCannotWriteMarkers) {
  const auto tokenizer = chat_tokenizer(kAll);
  for (const ChatTemplate kind : {ChatTemplate::kChatml, ChatTemplate::kLlama3}) {
    std::string attack;
    for (const std::string& name : kAll) attack += name;
    const auto count = [&](const std::string& content) {
      const auto chat = encode_chat(
          *tokenizer,
          render_chat(kind, {{"user", content, ""}, {"assistant", content, ""}}, false));
      EXPECT_EQ(chat.ids.size(), chat.in_loss.size());
      return std::count_if(chat.ids.begin(), chat.ids.end(), [](TokenId id) { return id > 255; });
    };
    EXPECT_EQ(count(attack), count("harmless"));
    EXPECT_GT(count("harmless"), 3);
  }
}

TEST(ChatTemplate, TheAnswerAndItsEndCountInTheLoss) {
  const auto tokenizer = chat_tokenizer(kAll);
  const auto chat = encode_chat(*tokenizer, render_chat(ChatTemplate::kChatml, kChat, true));
  std::vector<TokenId> loss_ids;
  for (size_t i = 0; i < chat.ids.size(); ++i)
    if (chat.in_loss[i]) loss_ids.push_back(chat.ids[i]);
  EXPECT_EQ(loss_ids, (std::vector<TokenId>{'H', 'e', 'l', 'l', 'o', '!', 258}));
  EXPECT_EQ(chat.ids.front(), 257);
  EXPECT_FALSE(chat.in_loss.front());
}

TEST(ChatTemplate, AutoFollowsTheAddedTokens) {
  EXPECT_EQ(template_of(*chat_tokenizer({"<|endoftext|>"})), ChatTemplate::kAlpaca);
  EXPECT_EQ(template_of(*tokenizer::load_tokenizer("bytes")), ChatTemplate::kAlpaca);
  EXPECT_EQ(template_of(*chat_tokenizer({"<|im_start|>", "<|im_end|>"})), ChatTemplate::kChatml);
  EXPECT_EQ(template_of(*chat_tokenizer({"<|im_start|>", "<jupyter_start>"})),
            ChatTemplate::kSmollm2);
  EXPECT_EQ(template_of(*chat_tokenizer({"<|start_header_id|>"})), ChatTemplate::kLlama3);
  EXPECT_EQ(template_of(*chat_tokenizer({"<|start_header_id|>", "<|eom_id|>"})),
            ChatTemplate::kLlama31);
  const auto qwen = tokenizer::shared_file("tokenizers/qwen2/tokenizer.json");
  OCTAVO_NEED_FILE(qwen);
  EXPECT_EQ(template_of(*tokenizer::load_tokenizer(qwen.string())), ChatTemplate::kQwen2);
}

TEST(ChatTemplate, ATokenizerWithoutTheMarkersIsRefused) {
  expect_failure([] { check_template(ChatTemplate::kQwen2, *tokenizer::load_tokenizer("bytes")); },
                 ExitCode::kUsage, {"<|im_start|>", "qwen2", "bytes"});
  check_template(ChatTemplate::kAlpaca, *tokenizer::load_tokenizer("bytes"));
}

}  // namespace
}  // namespace octavo::data
