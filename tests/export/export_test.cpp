// Checkpoints as Hugging Face folders.

#include "export/export.h"

#include "base/error.h"
#include "checkpoint/hf.h"
#include "checkpoint/safetensors.h"
#include "tokenizer/fixtures.h"
#include "train/model_factory.h"
#include "train/state/folder_check.h"
#include "train/state/persist.h"
#include "train/step.h"
#include "train/tiny_run.h"

namespace octavo::exporter {
namespace {

class Export : public train::TrainTest {
 protected:
  // What to export: the first step of a run.
  config::Settings saved() {
    auto [s, run] = saved_run();
    run_ = std::move(run);
    s.checkpoint = "latest";
    s.output = (folder / "export").string();
    return s;
  }
  bool nothing_left() const {
    if (fs::exists(folder / "export")) return false;
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().filename().string().starts_with(".tmp-")) return false;
    return true;
  }
  std::unique_ptr<train::Run> run_;
};

template <class F>
ExitCode code_of(const F& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  return ExitCode::kOk;
}

TEST_F(Export, OfACheckpointHasItsMastersRoundedAndReadsBack) {
  const auto s = saved();
  const ExportReport report = export_model(s, 20000);
  EXPECT_LE(report.difference, 0.005);
  EXPECT_GT(report.source_loss, 1);
  const auto files = checkpoint::open_hf_model(s.output);
  EXPECT_GT(files.shards.size(), 1);
  for (const auto& [name, master] : run_->trained.model->to_hugging_face())
    EXPECT_TRUE(at::equal(files.tensor(name), master.to(at::kBFloat16))) << name;
  EXPECT_EQ(files.config.at("dtype"), "bfloat16");
  EXPECT_TRUE(train::check_folder(s.output).problems.empty());
}

// Of a base model that is trained on chats: bytes, an end of documents and ChatML's markers.
class ChatExport : public Export {
 protected:
  static constexpr int kEnd = 256, kImEnd = 258;
  void SetUp() override {
    Export::SetUp();
    fs::create_directory(base);
    Json file = tokenizer::small_file();
    int id = kEnd;
    for (const char* name : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
      file["added_tokens"].push_back(tokenizer::added_token(id++, name));
    write_file_atomic(base / "tokenizer.json", file.dump());
    std::string rows;
    for (int i = 0; i < 40; ++i)
      rows += Json{{"prompt", octavo::str("What is ", i, "?")}, {"response", "A number."}}.dump() +
              "\n";
    write_file_atomic(folder / "rows.jsonl", rows);
  }
  config::Settings chat_run(config::ChatTemplate kind = config::ChatTemplate::kAuto) {
    auto s = settings();
    s.tokenizer = base.string();
    s.dataset = {(folder / "rows.jsonl").string()};
    s.max_seq_length = 256;
    s.chat_template = kind;
    s.checkpoint_dir = (folder / "checkpoints").string();
    run_ = start(s);
    train_step(*run_);
    save(*run_, "chats", false, nullptr);
    s.chat_template = config::ChatTemplate::kAuto;
    s.checkpoint = "latest";
    s.output = (folder / "export").string();
    return s;
  }
  Json exported(const char* name) const { return read_json(folder / "export" / name); }
  const fs::path base = folder / "base";
};

TEST_F(ChatExport, EndsWithTheTemplatesMarker) {
  write_file_atomic(base / "tokenizer_config.json",
                    R"({"eos_token": {"content": "<|endoftext|>"}, "chat_template": "other"})");
  write_file_atomic(base / "special_tokens_map.json", R"({"eos_token": "<|endoftext|>"})");
  write_file_atomic(base / "generation_config.json", R"({"eos_token_id": 256, "top_p": 0.5})");
  write_file_atomic(base / "chat_template.jinja", "other");
  const ExportReport report = export_model(chat_run(config::ChatTemplate::kChatml));
  EXPECT_EQ(report.chat_template, "chatml");
  EXPECT_EQ(report.copied, std::vector<std::string>{"tokenizer.json"});
  const Json ends = {kImEnd, kEnd};
  EXPECT_EQ(exported("config.json").at("eos_token_id"), ends);
  EXPECT_EQ(exported("generation_config.json"), (Json{{"eos_token_id", ends}, {"top_p", 0.5}}));
  EXPECT_EQ(exported("tokenizer_config.json").at("eos_token"), "<|im_end|>");
  EXPECT_EQ(exported("special_tokens_map.json").at("eos_token"), "<|im_end|>");
  const std::string jinja = exported("tokenizer_config.json").at("chat_template");
  EXPECT_NE(jinja.find("<|im_start|>"), std::string::npos);
  EXPECT_EQ(read_file(folder / "export" / "chat_template.jinja", 1 << 16), jinja);
}

TEST_F(ChatExport, KeepsTheTemplateOfItsFolder) {
  const std::string jinja =
      "{% for m in messages %}{{ '<|im_start|>' + m.role + ': ' + m.content + '<|im_end|>' }}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant: ' }}{% endif %}";
  write_file_atomic(
      base / "tokenizer_config.json",
      Json{{"eos_token", "<|endoftext|>"}, {"chat_template", jinja}, {"other", 1}}.dump());
  const ExportReport report = export_model(chat_run());
  EXPECT_EQ(report.chat_template, "own");
  EXPECT_EQ(exported("config.json").at("eos_token_id"), (Json{kImEnd, kEnd}));
  EXPECT_EQ(exported("tokenizer_config.json"),
            (Json{{"eos_token", "<|im_end|>"}, {"chat_template", jinja}, {"other", 1}}));
}

TEST_F(ChatExport, FilesThatTheSourceDoesNotHaveAreWritten) {
  const ExportReport report = export_model(chat_run(config::ChatTemplate::kAlpaca));
  EXPECT_EQ(report.chat_template, "alpaca");
  EXPECT_EQ(exported("config.json").at("eos_token_id"), kEnd);
  EXPECT_EQ(exported("generation_config.json"), (Json{{"eos_token_id", kEnd}}));
  EXPECT_EQ(exported("tokenizer_config.json").at("eos_token"), "<|endoftext|>");
  EXPECT_FALSE(fs::exists(folder / "export" / "chat_template.jinja"));
}

TEST_F(ChatExport, AModelOfTextIsHandedOnAsItsSourceSays) {
  write_file_atomic(base / "tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  auto s = chat_run();
  write_file_atomic(folder / "text.txt", std::string(5000, 'x'));
  s.dataset = {(folder / "text.txt").string()};
  s.checkpoint_dir = (folder / "of_text").string();
  run_ = start(s);
  train_step(*run_);
  save(*run_, "text", false, nullptr);
  EXPECT_EQ(export_model(s).chat_template, "");
  EXPECT_EQ(exported("config.json").at("eos_token_id"), kEnd);
  EXPECT_FALSE(exported("tokenizer_config.json").contains("chat_template"));
  EXPECT_FALSE(fs::exists(folder / "export" / "generation_config.json"));
  // Somebody knows better.
  s.output = (folder / "said").string();
  s.chat_template = config::ChatTemplate::kChatml;
  EXPECT_EQ(export_model(s).chat_template, "chatml");
  EXPECT_EQ(read_json(folder / "said" / "config.json").at("eos_token_id"), (Json{kImEnd, kEnd}));
}

TEST_F(Export, AnOutputWithSomethingInItIsRefused) {
  const auto s = saved();
  fs::create_directory(s.output);
  write_file_atomic(fs::path(s.output) / "mine.txt", "precious");
  EXPECT_EQ(code_of([&] { export_model(s); }), ExitCode::kUsage);
  EXPECT_EQ(read_file(fs::path(s.output) / "mine.txt", 100), "precious");
  fs::remove(fs::path(s.output) / "mine.txt");
  EXPECT_EQ(code_of([&] { export_model(s); }), ExitCode::kOk);  // an empty one is filled
}

TEST_F(Export, GptTwoHasNoFp8Format) {
  auto s = saved();
  for (const auto format : {config::ExportFormat::kFp8Block, config::ExportFormat::kFp8Channel}) {
    s.export_format = format;
    EXPECT_EQ(code_of([&] { export_model(s); }), ExitCode::kUsage);
    EXPECT_TRUE(nothing_left());
  }
}

TEST_F(Export, ABrokenModelIsNotHandedOn) {
  auto s = saved();
  {
    const at::NoGradGuard no_grad;
    // Finite, so that it is saved; infinite in BF16.
    run_->trained.model->params().front()->master[3][3] = std::numeric_limits<float>::max();
  }
  run_->progress.step = 2;
  save(*run_, "broken", false, nullptr);
  EXPECT_NE(code_of([&] { export_model(s); }), ExitCode::kOk);
  EXPECT_TRUE(nothing_left());
}

TEST_F(Export, AFolderIsCheckedWithoutReadingItsWeights) {
  const auto s = saved();
  export_model(s);
  auto tensors = run_->trained.model->to_hugging_face();
  const fs::path weights = fs::path(s.output) / "model.safetensors";
  tensors.pop_back();
  tensors.front().second = at::zeros({3, 3});
  tensors.emplace_back("transformer.h.9.ln_1.weight", at::ones({32}));
  checkpoint::write_safetensors(weights, tensors, {});
  const auto problems = train::check_folder(s.output).problems;
  ASSERT_EQ(problems.size(), 2);  // unknown tensors are not looked for while others are missing
  EXPECT_NE(problems[0].find("ln_f.bias"), std::string::npos) << problems[0];
  EXPECT_NE(problems[1].find("wte.weight"), std::string::npos) << problems[1];
  tensors = run_->trained.model->to_hugging_face();
  tensors.emplace_back("transformer.h.9.ln_1.weight", at::ones({32}));
  checkpoint::write_safetensors(weights, tensors, {});
  ASSERT_EQ(train::check_folder(s.output).problems.size(), 1);
  EXPECT_NE(train::check_folder(s.output).problems[0].find("h.9.ln_1"), std::string::npos);
}

}  // namespace
}  // namespace octavo::exporter
