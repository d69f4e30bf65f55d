#include "base/library.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace octavo {
namespace {

class Library : public testing::Test {
 protected:
  Library()
      : packages_(fs::path(testing::TempDir()) / ("octavo_library_" + std::to_string(getpid()))) {
    unsetenv("OCTAVO_SITE_PACKAGES");
    fs::create_directories(packages_ / "octavo/lib");
  }
  ~Library() override { fs::remove_all(packages_); }

  std::string advice(const std::string& said) const {
    return loader_advice(packages_ / "octavo/lib/liboctavo_core.so", said);
  }
  void make_wheel_layout() const { write_file_atomic(packages_ / "octavo/__main__.py", ""); }

  static void expect_part(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "wanted '" << part << "' in: " << text;
  }

  fs::path packages_;
};

constexpr char kNoTorch[] =
    "libtorch_cpu.so: cannot open shared object file: No such file or directory";

TEST_F(Library, AMissingLibraryIsNamedWithItsPackageItsPlaceAndTheRemedy) {
  make_wheel_layout();
  const std::string text = advice(kNoTorch), torch = "torch==" + wanted_version("torch");
  EXPECT_TRUE(text.starts_with("wanted libtorch_cpu.so of " + torch + ", found none; looked in "))
      << text;
  expect_part(text, (packages_ / "torch/lib").string());
  // They are missing too. A build for aarch64 has no oneDNN.
  const std::string onednn = wanted_version("onednn-cpu-gomp");
  expect_part(text, "`pip install " + torch +
                        (onednn.empty() ? "" : " onednn-cpu-gomp==" + onednn) + " pyarrow==");
  expect_part(text, "OCTAVO_SITE_PACKAGES");
  expect_part(text, kNoTorch);
  fs::create_directories(packages_ / "onednn_cpu_gomp-2023.2.0.dist-info");
  fs::create_directories(packages_ / "torch-2.0.dist-info");
  expect_part(advice("libarrow.so.2600: cannot open shared object file: x"),
              "`pip install pyarrow==" + wanted_version("pyarrow") + "`");
  // oneDNN's library lies two folders above site-packages.
  expect_part(advice("libdnnl.so.3: cannot open shared object file: x"),
              "looked in " + packages_.parent_path().parent_path().string());
}

// One folder for all parts since CUDA 13, one for each before.
TEST_F(Library, CudaIsLookedForInBothLayouts) {
  make_wheel_layout();
  const std::vector<fs::path> folders = cuda_wheel_folders(packages_, "cuda_runtime");
  ASSERT_EQ(folders.size(), 2u);
  EXPECT_EQ(folders[0].parent_path(), packages_ / "nvidia");
  EXPECT_TRUE(folders[0].filename().string().starts_with("cu1")) << folders[0];
  EXPECT_EQ(folders[1], packages_ / "nvidia/cuda_runtime");
  const std::string said = "libcudart.so.12: cannot open shared object file: x";
  expect_part(advice(said), "wanted libcudart.so.12 of nvidia-cuda-runtime");
  expect_part(advice(said), "looked in " + (folders[0] / "lib").string() + ",");
  fs::create_directories(folders[1] / "lib");
  expect_part(advice(said), "looked in " + (folders[1] / "lib").string() + ",");
  fs::create_directories(folders[0] / "lib");
  expect_part(advice(said), "looked in " + (folders[0] / "lib").string() + ",");
}

TEST_F(Library, ALibraryOfNoWheelIsTheSystems) {
  expect_part(advice("libfoo.so.1: cannot open shared object file: x"),
              "wanted libfoo.so.1, which neither octavo nor a wheel brings, found none; install");
}

TEST_F(Library, ABuildTreeIsBuiltAgain) {
  write_file_atomic(packages_ / "octavo/CMakeCache.txt", "");
  const std::string text = advice(kNoTorch);
  expect_part(text, "run ./bootstrap build and build again");
  EXPECT_EQ(text.find("pip install"), std::string::npos) << text;
}

TEST_F(Library, AnotherVersionIsNamed) {
  make_wheel_layout();
  const std::string said = "liboctavo_core.so: undefined symbol: _ZN2at3foo";
  fs::create_directories(packages_ / ("torch-" + wanted_version("torch") + "+cpu.dist-info"));
  expect_part(advice(said), "wanted libraries of the versions that it was built with");
  fs::create_directories(packages_ / "pyarrow-1.2.3.dist-info");
  expect_part(advice(said), "found pyarrow 1.2.3 in " + packages_.string());
}

TEST_F(Library, VersionsAreReadFromFolders) {
  EXPECT_EQ(installed_version(packages_, "torch"), "");
  fs::create_directories(packages_ / "torchao-0.18.0.dist-info");
  EXPECT_EQ(installed_version(packages_, "torch"), "");
  fs::create_directories(packages_ / "torch-2.9.1+cpu.dist-info");
  EXPECT_EQ(installed_version(packages_, "torch"), "2.9.1+cpu");
  fs::create_directories(packages_ / "onednn_cpu_gomp-2023.2.0.dist-info");
  EXPECT_EQ(installed_version(packages_, "onednn-cpu-gomp"), "2023.2.0");
  fs::create_directories(packages_ / "transformer_engine_torch-2.1.dist-info");
  EXPECT_EQ(installed_version(packages_, "transformer_engine"), "");
  fs::create_directories(packages_ / "transformer_engine_cu13-2.20.2.dist-info");
  EXPECT_EQ(installed_version(packages_, "transformer_engine"), "2.20.2");
  EXPECT_EQ(installed_version("/nowhere", "torch"), "");
  EXPECT_EQ(wanted_version("unknown"), "");
}

}  // namespace
}  // namespace octavo
