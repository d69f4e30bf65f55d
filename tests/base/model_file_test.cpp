#include "base/model_file.h"

#include "expect_failure.h"
#include "scratch.h"

namespace octavo {
namespace {

TEST(ModelFile, FilesOfTheFolderAndLinksWithinIt) {
  const Scratch scratch;
  fs::create_directories(scratch / "model/blobs");
  write_file_atomic(scratch / "model/blobs/one", "x");
  fs::create_symlink("blobs/one", scratch / "model/a");
  EXPECT_EQ(model_file(scratch / "model", "a"), scratch / "model/a");
  EXPECT_EQ(model_file(scratch / "model", "blobs/one"), scratch / "model/blobs/one");
  EXPECT_EQ(model_file(scratch / "model", "none"), scratch / "model/none");
}

TEST(ModelFile, LinksThatLeaveTheFolderAreRefused) {
  const Scratch scratch;
  fs::create_directories(scratch / "model");
  fs::create_directories(scratch / "model2");  // begins like it, and is another
  write_file_atomic(scratch / "model2/secret", "x");
  fs::create_symlink("../model2/secret", scratch / "model/relative");
  fs::create_symlink(scratch / "model2/secret", scratch / "model/absolute");
  fs::create_symlink("..", scratch / "model/up");
  for (const char* name : {"relative", "absolute", "up/model2/secret"})
    expect_failure(ExitCode::kDamaged, "leaves the folder",
                   [&] { model_file(scratch / "model", name); });
  expect_failure(ExitCode::kDamaged, "leaves the folder",
                 [&] { model_file(scratch / "model", "../model2/secret"); });
}

TEST(ModelFile, SnapshotsOfTheCacheAreLinksToItsBlobs) {
  const Scratch scratch;
  const fs::path snapshot = scratch / "models--a--b/snapshots/c0ffee";
  fs::create_directories(snapshot);
  fs::create_directories(scratch / "models--a--b/blobs");
  write_file_atomic(scratch / "models--a--b/blobs/one", "x");
  write_file_atomic(scratch / "secret", "x");
  fs::create_symlink("../../blobs/one", snapshot / "config.json");
  fs::create_symlink("../../../secret", snapshot / "model.safetensors");
  EXPECT_EQ(model_file(snapshot, "config.json"), snapshot / "config.json");
  expect_failure(ExitCode::kDamaged, "leaves the folder",
                 [&] { model_file(snapshot, "model.safetensors"); });
}

}  // namespace
}  // namespace octavo
