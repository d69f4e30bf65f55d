// NVIDIA's libraries: which files, which versions. Each is loaded in a child process, so that a
// library that does not load, crashes or hangs is a finding and not the end, and so that none of
// them stays in a process that is to run kernels with torch's own.

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <sys/wait.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "base/library.h"
#include "base/text.h"
#include "verify/elf.h"
#include "verify/gather.h"

namespace octavo::verify {
namespace {

constexpr int kPatienceMs = 20'000;

struct LibraryProbe {
  char file[4096], problem[1024];
  Version version, built_for;
};

Version from_cuda_number(int number) {
  return {number / 1000, number % 1000 / 10, 0};
}
// 130401 is 13.4.1; so do cuBLASLt, cuDNN from 9 and NCCL count.
Version from_decimal(size_t number) {
  const int n = static_cast<int>(number);
  return {n / 10'000, n % 10'000 / 100, n % 100};
}

template <class Function>
Function* look_up(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

// One of the libraries: its name without the version, and how it is asked.
struct Kind {
  std::string_view prefix;
  void (*ask)(void* library, LibraryProbe& answer);
};

void ask_cudart(void* library, LibraryProbe& answer) {
  int number = 0;
  const auto version = look_up<int(int*)>(library, "cudaRuntimeGetVersion");
  if (version != nullptr && version(&number) == 0) answer.version = from_cuda_number(number);
}
void ask_cublaslt(void* library, LibraryProbe& answer) {
  if (const auto f = look_up<size_t()>(library, "cublasLtGetVersion"))
    answer.version = from_decimal(f());
  if (const auto f = look_up<size_t()>(library, "cublasLtGetCudartVersion"))
    answer.built_for = from_cuda_number(static_cast<int>(f()));
}
void ask_cudnn(void* library, LibraryProbe& answer) {
  if (const auto f = look_up<size_t()>(library, "cudnnGetVersion"))
    answer.version = f() >= 90'000 ? from_decimal(f()) : from_cuda_number(static_cast<int>(f()));
  if (const auto f = look_up<size_t()>(library, "cudnnGetCudartVersion"))
    answer.built_for = from_cuda_number(static_cast<int>(f()));
}
void ask_nccl(void* library, LibraryProbe& answer) {
  int number = 0;
  const auto version = look_up<int(int*)>(library, "ncclGetVersion");
  if (version != nullptr && version(&number) == 0)
    answer.version = from_decimal(static_cast<size_t>(number));
}
void ask_nvrtc(void* library, LibraryProbe& answer) {
  const auto version = look_up<int(int*, int*)>(library, "nvrtcVersion");
  if (version != nullptr) version(&answer.version.major, &answer.version.minor);
}
void ask_nothing(void*, LibraryProbe&) {}

void say(char* out, size_t size, const char* text) {
  std::strncpy(out, text != nullptr ? text : "", size - 1);
}

// In the child: loads the file, or what the loader gives under that name.
LibraryProbe load_and_ask(const Kind& kind, const std::string& name) {
  LibraryProbe answer{};
  void* library = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    say(answer.problem, sizeof answer.problem, dlerror());
    return answer;
  }
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0)
    say(answer.file, sizeof answer.file, map->l_name);
  kind.ask(library, answer);
  return answer;
}

void write_and_exit(int pipe, const LibraryProbe& answer) {
  const auto written = write(pipe, &answer, sizeof answer);
  _exit(written == static_cast<ssize_t>(sizeof answer) ? 0 : 1);
}

// Reads a whole answer, or says why there is none.
bool read_answer(int pipe, LibraryProbe& answer) {
  auto* bytes = reinterpret_cast<char*>(&answer);
  for (size_t done = 0; done < sizeof answer;) {
    pollfd waiting{.fd = pipe, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, kPatienceMs) <= 0) return false;
    const ssize_t count = read(pipe, bytes + done, sizeof answer - done);
    if (count <= 0) return false;
    done += static_cast<size_t>(count);
  }
  return true;
}

LibraryProbe in_child(const Kind& kind, const std::string& name) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    fail(ExitCode::kEnvironment, "verify", "wanted a pipe, found: ", std::strerror(errno));
  const pid_t child = fork();
  if (child == 0) {
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    write_and_exit(ends[1], load_and_ask(kind, name));
  }
  close(ends[1]);
  LibraryProbe answer{};
  const bool whole = child > 0 && read_answer(ends[0], answer);
  close(ends[0]);
  if (child > 0 && !whole) kill(child, SIGKILL);
  int status = 0;
  if (child > 0) waitpid(child, &status, 0);
  if (!whole) {
    answer = {};
    say(answer.file, sizeof answer.file, name.c_str());
    say(answer.problem, sizeof answer.problem, "the process that loads it crashes or hangs");
  }
  return answer;
}

// Of torch's own wheels: <site>/nvidia/*/lib/<prefix>N, of the usual version where several are.
std::string own_file(const fs::path& site, std::string_view prefix, std::string_view version) {
  std::error_code error;
  std::string found;
  for (const auto& package : fs::directory_iterator(site / "nvidia", error))
    for (const auto& file : fs::directory_iterator(package.path() / "lib", error)) {
      const std::string name = file.path().filename();
      if (name == str(prefix, version)) return file.path().string();
      if (found.empty() && name.starts_with(prefix)) found = file.path().string();
    }
  return found;
}

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  return fs::equivalent(a, b, error);
}

Library find_library(const fs::path& site, const Kind& kind, std::string_view usual_version) {
  Library library;
  library.file = own_file(site, kind.prefix, usual_version);
  const std::string soname = library.file.empty() ? str(kind.prefix, usual_version)
                                                  : fs::path(library.file).filename().string();
  const LibraryProbe by_name = in_child(kind, soname);
  if (library.file.empty()) {
    library.file = by_name.file;
    library.version = by_name.version;
    library.built_for = by_name.built_for;
    if (!library.file.empty()) library.problem = by_name.problem;
    return library;
  }
  const LibraryProbe own = in_child(kind, library.file);
  library.version = own.version;
  library.built_for = own.built_for;
  library.problem = own.problem;
  if (*by_name.file != '\0' && *by_name.problem == '\0' &&
      !is_same_file(library.file, by_name.file)) {
    library.other_file = by_name.file;
    library.other_version = by_name.version;
  }
  return library;
}

// "2.15.0" in "2.15.0+cu132".
Version parse_version(std::string_view text) {
  Version v;
  int* const parts[] = {&v.major, &v.minor, &v.patch};
  size_t i = 0;
  for (const std::string& part : split(text.substr(0, text.find_first_not_of("0123456789.")), '.'))
    if (i < 3) *parts[i++] = std::atoi(part.c_str());
  return v;
}

Library find_te(const fs::path& site) {
  constexpr Kind kKind{"libtransformer_engine.so", ask_nothing};
  Library te;
  std::error_code error;
  const char* given = std::getenv("OCTAVO_TE_LIBRARY");
  if (given != nullptr && *given != '\0') {
    te.file = given;
    if (!fs::is_regular_file(te.file, error)) te.problem = "no such file (OCTAVO_TE_LIBRARY)";
  }
  for (const char* name : {"transformer_engine/wheel_lib/libtransformer_engine.so",
                           "transformer_engine/libtransformer_engine.so"})
    if (te.file.empty() && fs::is_regular_file(site / name, error)) {
      te.file = (site / name).string();
      te.version = parse_version(installed_version(site, "transformer_engine"));
    }
  if (te.file.empty()) te.file = in_child(kKind, std::string(kKind.prefix)).file;
  if (!te.file.empty() && te.problem.empty()) {
    te.needed = needed_libraries(te.file);
    if (te.needed.empty()) te.problem = "not a shared library of this machine";
  }
  return te;
}

}  // namespace

Libraries gather_libraries() {
  const fs::path site = torch_site_packages(), torch_cuda = site / "torch/lib/libtorch_cuda.so";
  Libraries l;
  l.torch_built = {TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH};
  l.torch_found = parse_version(installed_version(site, "torch"));
  std::error_code error;
  if (fs::is_regular_file(torch_cuda, error))
    for (const std::string& name : needed_libraries(torch_cuda))
      if (name.starts_with("libcudart.so.")) l.cuda_major = std::atoi(name.c_str() + 13);
  const std::string cuda = std::to_string(l.cuda_major);
  l.cudart = find_library(site, {"libcudart.so.", ask_cudart}, cuda);
  l.cublaslt = find_library(site, {"libcublasLt.so.", ask_cublaslt}, cuda);
  l.cudnn = find_library(site, {"libcudnn.so.", ask_cudnn}, "9");
  l.nccl = find_library(site, {"libnccl.so.", ask_nccl}, "2");
  l.nvrtc = find_library(site, {"libnvrtc.so.", ask_nvrtc}, cuda);
  l.te = find_te(site);
  return l;
}

}  // namespace octavo::verify
