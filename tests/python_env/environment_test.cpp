// Finding an environment and its packages on disk.

#include "python_env/environment.h"

#include <gtest/gtest.h>

#include <map>

#include "expect_failure.h"
#include "scratch.h"

namespace octavo::python_env {
namespace {

class PythonEnvironment : public ::testing::Test {
 protected:
  void write(const fs::path& name, const std::string& text) const {
    fs::create_directories((scratch_ / name).parent_path());
    write_file_atomic(scratch_ / name, text);
  }
  void package(const fs::path& site, const std::string& folder, const std::string& version) const {
    write(site / folder / "METADATA", "Metadata-Version: 2.1\nName: x\nVersion: " + version + "\n");
  }
  void venv(const std::string& name, const std::string& more = "") const {
    write(fs::path(name) / "pyvenv.cfg", "home = /nowhere/bin\nversion = 3.11.2\n" + more);
    fs::create_directories(scratch_ / name / "lib/python3.11/site-packages");
    write(fs::path(name) / "bin/python", "");
    fs::permissions(scratch_ / name / "bin/python", fs::perms::owner_all);
  }
  Environment find(const std::string& given) const {
    return find_environment(given, [this](const std::string& name) {
      const auto it = variables_.find(name);
      return it == variables_.end() ? std::string() : it->second;
    });
  }

  Scratch scratch_;
  std::map<std::string, std::string> variables_;
  const fs::path site_ = "env/lib/python3.11/site-packages";
};

TEST_F(PythonEnvironment, IsFoundInOrder) {
  venv("env");
  venv("other");
  venv("conda");
  variables_ = {{"VIRTUAL_ENV", (scratch_ / "env").string()},
                {"CONDA_PREFIX", (scratch_ / "conda").string()},
                {"PATH", "/nowhere:" + (scratch_ / "other/bin").string()}};
  EXPECT_EQ(find("").root, scratch_ / "env");
  EXPECT_EQ(find("").python_version, "3.11.2");
  EXPECT_EQ(find((scratch_ / "other/bin/python").string()).root, scratch_ / "other");
  EXPECT_EQ(find((scratch_ / "other").string()).site_packages,
            std::vector<fs::path>{scratch_ / "other/lib/python3.11/site-packages"});
  EXPECT_EQ(find((scratch_ / site_).string() + "/").python_version, "3.11");
  variables_.erase("VIRTUAL_ENV");
  EXPECT_EQ(find("").found_by, "CONDA_PREFIX");
  variables_.erase("CONDA_PREFIX");
  EXPECT_EQ(find("").root, scratch_ / "other");
  EXPECT_NE(find("").found_by.find("on PATH"), std::string::npos);
}

TEST_F(PythonEnvironment, FailuresSayWhatToDo) {
  expect_failure(ExitCode::kUsage, "which python", [&] { find("/no/such/python"); });
  expect_failure(ExitCode::kEnvironment, "--python PATH", [&] { find(""); });
  fs::create_directories(scratch_ / "empty");
  expect_failure(ExitCode::kUsage, "no site-packages folder below",
                 [&] { find((scratch_ / "empty").string()); });
}

TEST_F(PythonEnvironment, SharesTheSystemsPackagesWhenToldTo) {
  venv("env", "include-system-site-packages = true\nhome = " + (scratch_ / "base/bin").string());
  fs::create_directories(scratch_ / "base/lib/python3.11/site-packages");
  EXPECT_EQ(find((scratch_ / "env").string()).site_packages.size(), 2u);
  venv("env", "include-system-site-packages = false\nhome = " + (scratch_ / "base/bin").string());
  EXPECT_EQ(find((scratch_ / "env").string()).site_packages.size(), 1u);
}

TEST_F(PythonEnvironment, GuessesAreNoted) {
  fs::create_directories(scratch_ / "two/lib/python3.9/site-packages");
  fs::create_directories(scratch_ / "two/lib/python3.12/site-packages");
  const Environment found = find((scratch_ / "two").string());
  EXPECT_EQ(found.python_version, "3.12");
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_NE(found.notes[0].find("2 versions"), std::string::npos);
}

TEST_F(PythonEnvironment, PackagesByNormalisedName) {
  venv("env");
  package(site_, "nvidia_cudnn_cu12-9.10.2.21.dist-info", "9.10.2.21");
  package(site_, "Torch-2.9.1.dist-info", "2.9.1+cu128");
  write(site_ / "old-1.0-py3.11.egg-info/PKG-INFO", "Name: old\nVersion: 1.0\n");
  write(site_ / "older-0.9.egg-info", "Name: older\nVersion: 0.9\n");
  const Environment env = find((scratch_ / "env").string());
  const auto found =
      read_packages(env, {"torch", "nvidia-cudnn-cu12", "old", "older", "not-there"});
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].metadata.version, "2.9.1+cu128") << "the file counts, not the folder's name";
  EXPECT_EQ(found[1].metadata.version, "9.10.2.21");
  EXPECT_EQ(found[2].metadata.version, "1.0");
  EXPECT_EQ(found[3].metadata.version, "0.9");
  EXPECT_EQ(package_names(env).size(), 4u);
}

TEST_F(PythonEnvironment, WhatCannotBeReadIsAProblem) {
  venv("env");
  fs::create_directories(scratch_ / site_ / "torch-2.9.1.dist-info");
  package(site_, "numpy-2.dist-info", "two");
  write(site_ / "triton-1.dist-info/METADATA", "Name: triton\n");
  write(site_ / "torchao-1.dist-info/METADATA", std::string(5 << 20, 'x'));
  fs::create_directories(scratch_ / site_ / "flash_attn-1.dist-info/METADATA");
  for (const Package& found : read_packages(find((scratch_ / "env").string()),
                                            {"torch", "numpy", "triton", "torchao", "flash-attn"}))
    EXPECT_FALSE(found.problem.empty()) << found.name;
}

TEST_F(PythonEnvironment, FirstInTheOrderOfTheSearchCounts) {
  venv("env");
  package(site_, "torch-2.8.0.dist-info", "2.8.0");
  package(site_, "torch-2.9.0.dist-info", "2.9.0");
  package("clone", "torch-2.10.0.dist-info", "2.10.0");
  std::vector<fs::path> again;
  auto found = read_packages(find((scratch_ / "env").string()), {"torch"}, &again);
  EXPECT_EQ(again.size(), 1u);
  variables_["PYTHONPATH"] = (scratch_ / "clone").string();
  found = read_packages(find((scratch_ / "env").string()), {"torch"});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].metadata.version, "2.10.0");
}

TEST_F(PythonEnvironment, CondasPackagesByTheirFiles) {
  venv("env");
  write("env/conda-meta/cudnn-9.10.1.4-h7646684_0.json", "{}");
  write("env/conda-meta/history", "");
  const auto found = read_packages(find((scratch_ / "env").string()), {"cudnn"});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].metadata.version, "9.10.1.4");
}

TEST_F(PythonEnvironment, LibrariesThatAreGone) {
  venv("env");
  package(site_, "torch-2.9.1.dist-info", "2.9.1");
  write(site_ / "torch-2.9.1.dist-info/RECORD",
        "torch/lib/libc10.so,,\ntorch/lib/libgone.so,,\n../../../../../../etc/none.so,,\n");
  write(site_ / "torch/lib/libc10.so", "");
  const auto found = read_packages(find((scratch_ / "env").string()), {"torch"});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(missing_libraries(found[0]), std::vector<std::string>{"torch/lib/libgone.so"});
}

}  // namespace
}  // namespace octavo::python_env
