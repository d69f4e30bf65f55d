// Names of models and data sets that people know, in files and flags.

#include "config/names.h"

#include <set>

#include "base/file.h"
#include "base/text.h"
#include "config/expect_refused.h"
#include "scratch.h"

namespace octavo::config {
namespace {

Parsed of(const Words& words, const Arguments& arguments = kTrainArguments) {
  return parse(words, arguments);
}

TEST(Names, OfDataSetsInAnySpelling) {
  for (const char* name : {"fineweb-edu", "FineWeb-Edu", "fineweb_edu", "FINEWEBEDU"}) {
    const Parsed parsed = of({"--dataset", name});
    EXPECT_EQ(parsed.settings.dataset, Words{"HuggingFaceFW/fineweb-edu"}) << name;
    EXPECT_EQ(parsed.settings.dataset_config, "sample-10BT") << name;
    EXPECT_NE(join(parsed.notes, "\n").find(name), std::string::npos) << join(parsed.notes, "\n");
    EXPECT_NE(parsed.source_of("dataset").find(name), std::string::npos);
  }
  EXPECT_EQ(of({"--dataset", "tiny_shakespeare"}).settings.dataset,
            Words{"karpathy/tiny_shakespeare"});
  EXPECT_EQ(of({"--dataset", "OpenMathInstruct-2"}).settings.split_name, "train_1M");
  EXPECT_EQ(of({"--dataset", "gsm8k"}).settings.dataset_config, "main");
}

TEST(Names, WhatIsGivenIsKept) {
  EXPECT_EQ(
      of({"--dataset", "fineweb", "--dataset_config", "sample-100BT"}).settings.dataset_config,
      "sample-100BT");
  EXPECT_EQ(of({"--dataset", "openmathinstruct-2", "--split_name", "train_2M"}).settings.split_name,
            "train_2M");
  for (const char* name : {"HuggingFaceFW/fineweb-edu", "./fineweb-edu", "fineweb-edu.txt",
                           "s3://bucket/fineweb-edu", "fineweb-edu@main"}) {
    const Parsed parsed = of({"--dataset", name});
    EXPECT_EQ(parsed.settings.dataset, Words{name});
    EXPECT_EQ(parsed.settings.dataset_config, "") << name;
  }
}

// A file or folder of the name comes first, as it did before names were known.
TEST(Names, WhatIsHereComesFirst) {
  Scratch scratch;
  const fs::path before = fs::current_path();
  fs::current_path(scratch.path());
  fs::create_directory("gsm8k");
  fs::create_directory("llama-3.2-1b");
  EXPECT_EQ(of({"--dataset", "gsm8k"}).settings.dataset, Words{"gsm8k"});
  EXPECT_EQ(of({"--model_name", "llama-3.2-1b"}).settings.model_name, "llama-3.2-1b");
  fs::current_path(before);
}

TEST(Names, OneSubsetForSeveralDataSetsIsRefused) {
  expect_refused(
      [] {
        of({"--dataset", "fineweb-edu,openwebtext"});
      },
      {"fineweb-edu", "wanted it alone", "sample-10BT", "data prepare"});
  EXPECT_EQ(of({"--dataset", "alpaca,openwebtext"}).settings.dataset,
            (Words{"tatsu-lab/alpaca", "Skylion007/openwebtext"}));
}

TEST(Names, OfModels) {
  const Parsed parsed = of({"--model_name", "Meta-Llama-3.1-8B"});
  EXPECT_EQ(parsed.settings.model_name, "meta-llama/Llama-3.1-8B");
  EXPECT_NE(join(parsed.notes, "\n").find("Meta-Llama-3.1-8B"), std::string::npos);
  // Weights of a name on the hub are published ones: the task is fine-tuning.
  EXPECT_EQ(parsed.settings.learning_rate, 1e-5);
  for (const char* name : {"gpt2", "meta-llama/Meta-Llama-3.1-8B", "someones-model"})
    EXPECT_EQ(parse_text(str("model_name: ", name, "\n"), "c").settings.model_name, name);
  EXPECT_EQ(of({"--model_name", "gpt2"}).settings.model_name, "gpt2");
  EXPECT_EQ(of({"--model_name", "meta-llama/Meta-Llama-3.1-8B"}).settings.model_name,
            "meta-llama/Meta-Llama-3.1-8B");
}

TEST(Names, AKnownShapeSaysThatSamplesAreTooLong) {
  expect_refused(
      [] {
        of({"--model_name", "meta-llama/Meta-Llama-3-8B", "--max_seq_length", "16384"});
      },
      {"max_seq_length 16384", "8192", "lower it"});
  EXPECT_EQ(
      of({"--model_name", "llama-3.1-8b", "--max_seq_length", "16384"}).settings.max_seq_length,
      16384);
}

TEST(Names, ACheckIsToldOfNamesThatNobodyKnows) {
  const Parsed parsed =
      of({"--dataset", "finewebb-edu", "--model_name", "lama-3.2-1b"}, {"config check"});
  const std::string notes = join(parsed.notes, "\n");
  EXPECT_NE(notes.find("did you mean fineweb-edu?"), std::string::npos) << notes;
  EXPECT_NE(notes.find("did you mean llama-3.2-1b?"), std::string::npos) << notes;
  const Parsed fine = of({"--dataset", "corpus.txt,someone/data", "--model_name", "someone/model"},
                         {"config check"});
  EXPECT_EQ(join(fine.notes, "\n").find("no known name"), std::string::npos);
}

TEST(Names, TableIsWellFormed) {
  std::set<std::string_view> seen;
  for (const DatasetName& known : dataset_names()) {
    EXPECT_TRUE(seen.insert(known.name).second) << known.name;
    EXPECT_EQ(find_dataset(known.name), &known);
    EXPECT_NE(known.hub.find('/'), known.hub.npos) << known.name;
    EXPECT_FALSE(known.about.empty()) << known.name;
  }
  for (const char* name : {"fineweb-edu", "fineweb", "openwebtext", "tinyshakespeare",
                           "openmathinstruct-2", "gsm8k", "alpaca", "hellaswag"})
    EXPECT_TRUE(seen.contains(name)) << name;
  EXPECT_EQ(find_dataset(""), nullptr);
}

}  // namespace
}  // namespace octavo::config
