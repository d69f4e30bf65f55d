// Mixtures in files and flags: what they become, and what is refused.

#include "config/mixture_keys.h"

#include "config/expect_refused.h"
#include "config/print.h"

namespace octavo::config {
namespace {

constexpr const char* kMixture =
    "dataset:\n"
    "  - {path: web, weight: 0.7}\n"
    "  - path: code\n"
    "    weight: 0.3\n"
    "    max_epochs: 4\n"
    "max_steps: 10\n";

TEST(MixtureKeys, EntriesBecomeFlatKeysAndReadBack) {
  const Settings s = parse_text(kMixture, "a.yaml").settings;
  EXPECT_EQ(s.dataset, (Words{"web", "code"}));
  EXPECT_EQ(s.dataset_weights, (std::vector<double>{0.7, 0.3}));
  EXPECT_EQ(s.dataset_max_epochs, (std::vector<int64_t>{0, 4}));
  const std::string printed = to_yaml(s);
  EXPECT_NE(printed.find("dataset_weights: [0.7, 0.3]\n"), std::string::npos);
  EXPECT_EQ(parse_text(printed, "b.yaml").settings, s);
  EXPECT_EQ(parse(Words{"--dataset", "web,code", "--dataset_weights", "0.7, 0.3",
                        "--dataset_max_epochs", "0,4", "--max_steps", "10"})
                .settings,
            s);
}

TEST(MixtureKeys, PlainEntriesAreNoMixture) {
  const Settings list = parse_text("dataset: [a, b]\n", "a.yaml").settings;
  EXPECT_FALSE(is_mixture(list));
  const Settings mappings = parse_text("dataset: [{path: a}, b]\n", "a.yaml").settings;
  EXPECT_EQ(mappings, list);
  const Settings bounded =
      parse_text("dataset: [{path: a, max_epochs: 2}, b]\nmax_steps: 5\n", "a.yaml").settings;
  EXPECT_TRUE(is_mixture(bounded));
  EXPECT_TRUE(bounded.dataset_weights.empty());
  EXPECT_EQ(bounded.dataset_max_epochs, (std::vector<int64_t>{2, 0}));
}

TEST(MixtureKeys, HostileEntriesAreRefusedWithWhatToType) {
  const auto refused = [](const std::string& text, std::initializer_list<std::string> parts) {
    expect_refused([&] { parse_text(text + "\nmax_steps: 5\n", "a.yaml"); }, parts);
  };
  refused("dataset: [{path: a, weight: 1}, {path: b, weight: 0}]",
          {"above 0", "leave the entry out"});
  for (const char* weight : {"-1", "nan", ".nan", "inf", "-.inf", "1e999", "x", "1 2", "0x10"})
    refused(str("dataset: [{path: a, weight: ", weight, "}]"),
            {"a.yaml:1", "entry 1", "weight: 0.7"});
  for (const char* most : {"-1", "1.5", "nan", "99999999999999999999", "x"})
    refused(str("dataset: [{path: a, weight: 1, max_epochs: ", most, "}]"), {"max_epochs: 4"});
  refused("dataset: [{path: a, wieght: 1}]", {"wieght", "path, weight and max_epochs"});
  refused("dataset: [{weight: 1}]", {"wanted a path"});
  refused("dataset: [{path: a, weight: 1}, b]", {"entry 2", "{path: b, weight: 0.3}"});
  refused("dataset: [{path: a, weight: 1}, {path: ./a/, weight: 1}]", {"twice"});
  refused("dataset: [{path: a, weight: 1, weight: 2}]", {"weight twice"});
  refused("dataset: [{path: {a: b}}]", {"mapping"});
  refused("dataset: [{path: [a]}]", {"list"});
  refused("dataset: [{path: }]", {"without a value"});
  refused("dataset: {path: a}", {"nested mapping"});
  refused("lora_target_modules: [{path: a}]", {"mapping in the list"});
  refused("dataset: a\ndataset_weights: [1, 2]", {"1 entries", "found 2"});
  refused("dataset: [a, b]\ndataset_weights: [0, 0]", {"above 0"});
  refused("dataset: [a, b]\ndataset_weights: [1, 1e-8]", {"millionth"});
  refused("dataset: [a, b]\ndataset_weights: [1, 1]\nmixture_schedule: [0.5 1]", {"2 weights"});
  for (const char* text : {"0 1 1", "1 1 1", "nan 1 1", "0.5 1 -1", "0.5", "x 1 1"})
    refused(str("dataset: [a, b]\ndataset_weights: [1, 1]\nmixture_schedule: [", text, "]"),
            {"0.9 0.2 0.8"});
  // A source that comes later only is meant.
  const Settings later =
      parse_text(
          "dataset: [a, b]\ndataset_weights: [1, 0]\nmixture_schedule: [0.5 1 1]\n"
          "max_steps: 5\n",
          "a.yaml")
          .settings;
  EXPECT_EQ(scheduled_weights(later.mixture_schedule)->front().at, 0.5);
}

TEST(MixtureKeys, TheLengthOfAMixtureIsAsked) {
  const std::string two = "dataset: [a, b]\ndataset_weights: [1, 2]\n";
  expect_refused([&] { parse_text(two, "a.yaml"); }, {"give max_steps"});
  expect_refused([&] { parse_text(two + "num_epochs: 2\n", "a.yaml"); }, {"num_epochs 2"});
  EXPECT_NO_THROW(parse_text(two + "dataset_max_epochs: [1, 2]\n", "a.yaml"));
  expect_refused([&] { parse_text(two + "dataset_max_epochs: [1, 0]\n", "a.yaml"); },
                 {"max_epochs"});
}

}  // namespace
}  // namespace octavo::config
