// Metadata, requirements with their markers, RECORD and pyvenv.cfg.

#include "python_env/metadata.h"

#include <gtest/gtest.h>

#include "python_env/requirement.h"

namespace octavo::python_env {
namespace {

TEST(Metadata, ReadsTheHeaderAlone) {
  const Metadata found = parse_metadata(
      "Metadata-Version: 2.1\r\nname: Torch\r\nVersion: 2.9.1+cu128\r\nVersion: 3.0\r\n"
      "Requires-Python: >=3.10\r\nRequires-Dist: numpy\r\n"
      "Requires-Dist: triton==3.5.1;\r\n  platform_system == \"Linux\"\r\nbroken line\r\n\r\n"
      "Version: 4.0\r\nRequires-Dist: evil\r\n");
  EXPECT_EQ(found.name, "Torch");
  EXPECT_EQ(found.version, "2.9.1+cu128");
  EXPECT_EQ(found.requires_python, ">=3.10");
  EXPECT_EQ(found.requirements,
            (std::vector<std::string>{"numpy", "triton==3.5.1; platform_system == \"Linux\""}));
  EXPECT_EQ(parse_metadata("").version, "");
}

TEST(Requirement, NamesAndVersions) {
  const auto wanted = parse_requirement("Nvidia_cuDNN.cu12 (==9.10.2.21) ; python_version<'3.9'");
  ASSERT_TRUE(wanted.has_value());
  EXPECT_EQ(wanted->name, "nvidia-cudnn-cu12");
  EXPECT_EQ(wanted->versions, "==9.10.2.21");
  EXPECT_EQ(wanted->marker, "python_version<'3.9'");
  const auto extra = parse_requirement("cuda-toolkit[cublas,nvrtc]==13.2.2");
  ASSERT_TRUE(extra.has_value());
  EXPECT_EQ(extra->name, "cuda-toolkit");
  EXPECT_EQ(extra->specifiers.size(), 1u);
  for (const char* line : {"", "==1", "a @ https://host/a.whl", "a[b", "a ==="})
    EXPECT_FALSE(parse_requirement(line).has_value()) << line;
}

TEST(Requirement, Markers) {
  MarkerValues values = marker_values("3.11.2");
  values["platform_machine"] = "x86_64";
  const std::pair<const char*, std::optional<bool>> kCases[] = {
      {"", true},
      {"platform_system == 'Linux' and platform_machine == \"x86_64\"", true},
      {"extra == 'dev'", false},
      {"python_version < '3.9' or python_full_version >= '3.11.1'", true},
      {"python_version >= '3.9'", true},  // as versions: as texts '3.11' is less
      {"(sys_platform == 'win32' or os_name == 'nt') and python_version > '3'", false},
      {"platform_machine not in 'aarch64 arm64'", true},
      {"'x86' in platform_machine", true},
      {"platform_release >= '6'", std::nullopt},
      {"platform_release >= '6' and extra == 'a'", false},
      {"platform_release >= '6' or os_name == 'posix'", true},
      {"python_version", std::nullopt},
      {"python_version >= '3", std::nullopt},
      {"(os_name == 'nt'", std::nullopt},
      {"os_name == 'posix' garbage", std::nullopt},
      {"not os_name == 'nt'", std::nullopt}};
  for (const auto& [marker, wanted] : kCases) EXPECT_EQ(holds(marker, values), wanted) << marker;
  EXPECT_EQ(holds(std::string(3000, '('), values), std::nullopt) << "deep nesting";
  EXPECT_EQ(holds("python_version > '3'", marker_values("")), std::nullopt);
}

TEST(Record, LibrariesThatStayInside) {
  const auto files = recorded_files(
      "torch/lib/libc10.so,sha256=a,1\n\"odd,\"\"name.so\",,\n../../bin/x.so,,\n/lib/y.so,,\n"
      "a/../../z.so,,\ntorch/a.py,sha256=.so,2\r\nnccl/libnccl.so.2,,\r\n",
      ".so");
  EXPECT_EQ(files, (std::vector<std::string>{"torch/lib/libc10.so", "odd,\"name.so",
                                             "nccl/libnccl.so.2"}));
}

TEST(Pyvenv, KeysInAnyCase) {
  const auto found = parse_pyvenv(
      "Home = /usr/bin\nno equals sign\ninclude-system-site-packages=true\nversion = 3.11.2\n");
  EXPECT_EQ(found.at("home"), "/usr/bin");
  EXPECT_EQ(found.at("include-system-site-packages"), "true");
  EXPECT_EQ(found.size(), 3u);
}

}  // namespace
}  // namespace octavo::python_env
