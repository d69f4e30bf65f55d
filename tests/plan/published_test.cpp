// Published config.json files, as they are, through the planner's reader.

#include "published.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "expect_failure.h"
#include "plan/shape.h"
#include "scratch.h"

namespace octavo::plan {
namespace {

Shape read(const Scratch& folder, const std::string& text) {
  write_file_atomic(folder / "config.json", text);
  config::Settings settings;
  settings.model_name = folder.path().string();
  return shape_of(settings);
}

TEST(PublishedShapes, AreThoseOfTheModels) {
  const Scratch folder;
  for (const Published& known : kPublished) {
    const Shape shape = read(folder, read_file(known.path(), 1 << 20));
    EXPECT_EQ(shape.layers, known.layers) << known.file;
    EXPECT_EQ(shape.hidden, known.width) << known.file;
    EXPECT_EQ(shape.ffn, known.mlp) << known.file;
    EXPECT_EQ(shape.heads, known.heads) << known.file;
    EXPECT_EQ(shape.kv_heads, known.kv_heads) << known.file;
    EXPECT_EQ(shape.head_dim, known.head_dim) << known.file;
    EXPECT_EQ(shape.tied, known.tied) << known.file;
    // The rows that pad the vocabulary, of the embedding and of a head of its own.
    const int64_t padding = (shape.vocab - known.vocab) * known.width * (known.tied ? 1 : 2);
    EXPECT_EQ(parameters(shape) - padding, known.parameters) << known.file;
  }
}

TEST(PublishedShapes, Gpt2MayHaveAnotherInnerWidth) {
  const Scratch folder;
  Json config = parse_json(read_file(kPublished[0].path(), 1 << 20), "gpt2");
  config["n_inner"] = 1000;
  EXPECT_EQ(read(folder, config.dump()).ffn, 1000);
  config["n_inner"] = -1;
  expect_failure(ExitCode::kDamaged, "n_inner", [&] { read(folder, config.dump()); });
}

}  // namespace
}  // namespace octavo::plan
