// Chrome's trace format, event by event. Kineto: ts and dur in microseconds; kernels, copies and
// sets are events of the categories kernel, gpu_memcpy and gpu_memset (Kernel, Memcpy, Memset in
// old traces); calls of CUDA carry the kernel's correlation.

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <unordered_map>

#include "audit/json_stream.h"
#include "audit/readers.h"
#include "base/error.h"

namespace octavo::audit {
namespace {

enum class Category : unsigned char {
  kNone,
  kKernel,
  kMemcpy,
  kMemset,
  kOp,
  kRuntime,
  kPython,
  kRange,
  kSpan
};
constexpr std::pair<std::string_view, Category> kCategories[] = {
    {"kernel", Category::kKernel},
    {"gpu_memcpy", Category::kMemcpy},
    {"memcpy", Category::kMemcpy},
    {"gpu_memset", Category::kMemset},
    {"memset", Category::kMemset},
    {"cpu_op", Category::kOp},
    {"operator", Category::kOp},
    {"cuda_runtime", Category::kRuntime},
    {"runtime", Category::kRuntime},
    {"cuda_driver", Category::kRuntime},
    {"python_function", Category::kPython},
    {"range", Category::kRange},
    {"gather", Category::kSpan},
    {"reduce", Category::kSpan},
    {"other", Category::kSpan},
};
constexpr std::string_view kModule = "nn.Module: ";
constexpr size_t kMostShapes = 4096;  // of an operation's input sizes, as text
constexpr size_t kCheckEvery = 1 << 16;

// Bytes of an element, by the names that c10d gives types.
int64_t bytes_of_type(std::string_view type) {
  constexpr std::pair<std::string_view, int64_t> kTypes[] = {
      {"Float8", 1}, {"Byte", 1},   {"Char", 1}, {"Bool", 1},  {"BFloat16", 2},
      {"Half", 2},   {"Double", 8}, {"Long", 8}, {"Float", 4}, {"Int", 4}};
  for (const auto& [name, bytes] : kTypes)
    if (type.starts_with(name)) return bytes;
  return 0;
}

bool is_time(const std::optional<int64_t>& time) {
  return time && *time >= 0 && *time <= kMostTime;
}

struct Event {
  char phase = 0;
  Category category = Category::kNone;
  std::string name, thread, process, span, dims, types, dtype;
  std::optional<int64_t> begin, length;
  int64_t external = kNoId, correlation = kNoId, stream = 0, device = 0, bytes = 0, elements = 0;

  void clear() {
    phase = 0;
    category = Category::kNone;
    for (std::string* text : {&name, &thread, &process, &span, &dims, &types, &dtype})
      text->clear();
    begin.reset();
    length.reset();
    external = correlation = kNoId;
    stream = device = bytes = elements = 0;
  }
};

class ChromeReader {
 public:
  explicit ChromeReader(const fs::path& path) : source_(path), json_(source_) {
    trace_.path = path;
  }

  Trace read() {
    try {
      read_top();
    } catch (const CutShort&) {
      trace_.is_cut = true;
    }
    trace_.is_cut = trace_.is_cut || source_.is_cut();
    if (!has_events_ && trace_.events == 0)
      fail(ExitCode::kUsage, "audit", trace_.path.string(), ": wanted traceEvents, found none; ",
           "this is no trace of a profiler");
    if (trace_.work.empty() && !trace_.ranges.empty()) trace_.format = Format::kOctavo;
    trace_.dropped += trace_.names.dropped() + trace_.threads.dropped();
    trace_.check_size();
    return std::move(trace_);
  }

 private:
  void read_top() {
    if (json_.peek() == '[') {
      read_events();
      return;
    }
    std::string key;
    json_.begin_object();
    while (json_.next_key(key)) {
      const char first = json_.peek();
      if (key == "traceEvents" && first == '[')
        read_events();
      else if (key == "deviceProperties" && first == '[')
        read_devices();
      else if (key == "distributedInfo" && first == '{')
        read_distributed();
      else if (key == "otherData" && first == '{')
        read_other_data();
      else
        json_.skip_value();
    }
    if (json_.peek_or_end() != 0) json_.damaged("the end of the file");
  }

  void read_devices() {
    std::string key, name;
    json_.begin_array();
    while (json_.next_element()) {
      if (json_.peek() != '{') {
        json_.skip_value();
        continue;
      }
      json_.begin_object();
      while (json_.next_key(key)) {
        if (key == "name" && json_.peek() == '"') {
          json_.read_string(name);
          if (trace_.gpu.empty()) trace_.gpu = name.substr(0, 100);
        } else {
          json_.skip_value();
        }
      }
    }
  }

  void read_distributed() {
    std::string key;
    json_.begin_object();
    while (json_.next_key(key)) {
      if (key == "rank")
        json_.read_integer(trace_.rank);
      else if (key == "world_size")
        json_.read_integer(trace_.world_size);
      else
        json_.skip_value();
    }
  }

  void read_other_data() {
    std::string key;
    json_.begin_object();
    while (json_.next_key(key)) {
      if (key == "dropped")
        json_.read_integer(trace_.dropped);
      else
        json_.skip_value();
    }
  }

  void read_events() {
    has_events_ = true;
    json_.begin_array();
    while (json_.next_element()) {
      if (json_.peek() != '{') {
        ++trace_.malformed;
        json_.skip_value();
        continue;
      }
      event_.clear();
      read_event();
      if (++trace_.events % kCheckEvery == 0) trace_.check_size();
      take_event();
    }
  }

  void read_event() {
    json_.begin_object();
    while (json_.next_key(key_)) {
      const bool is_text = json_.peek() == '"';
      if (key_ == "ph" && is_text) {
        json_.read_string(text_);
        event_.phase = text_.empty() ? '\0' : text_[0];
      } else if (key_ == "cat" && is_text) {
        json_.read_string(text_);
        event_.category = category_of(text_);
      } else if (key_ == "name" && is_text) {
        json_.read_string(event_.name);
      } else if (key_ == "ts") {
        read_time(event_.begin);
      } else if (key_ == "dur") {
        read_time(event_.length);
      } else if (key_ == "pid") {
        json_.read_raw(event_.process, 64);
      } else if (key_ == "tid") {
        json_.read_raw(event_.thread, 64);
      } else if (key_ == "id") {
        json_.read_raw(event_.span, 64);
      } else if (key_ == "args" && json_.peek() == '{') {
        read_arguments();
      } else {
        json_.skip_value();
      }
    }
  }

  void read_time(std::optional<int64_t>& out) {
    int64_t value = 0;
    if (json_.read_thousandths(value)) out = value;
  }

  void read_arguments() {
    struct Number {
      std::string_view key;
      int64_t Event::*member;
    };
    static constexpr Number kNumbers[] = {
        {"External id", &Event::external},    {"external id", &Event::external},
        {"correlation", &Event::correlation}, {"stream", &Event::stream},
        {"device", &Event::device},           {"bytes", &Event::bytes},
        {"In msg nelems", &Event::elements}};
    json_.begin_object();
    while (json_.next_key(key_)) {
      const auto* number =
          std::ranges::find_if(kNumbers, [&](const Number& n) { return n.key == key_; });
      if (number != std::end(kNumbers)) {
        int64_t value = 0;
        if (json_.read_integer(value)) event_.*number->member = value;
      } else if (key_ == "Input Dims" || key_ == "Input dims") {
        json_.read_raw(event_.dims, kMostShapes);
      } else if (key_ == "Input type") {
        json_.read_raw(event_.types, kMostShapes);
      } else if (key_ == "dtype" && json_.peek() == '"') {
        json_.read_string(event_.dtype);
      } else {
        json_.skip_value();
      }
    }
  }

  static Category category_of(const std::string& text) {
    if (text.size() > 16) return Category::kNone;
    std::string low = text;
    std::ranges::transform(low, low.begin(), [](unsigned char c) { return std::tolower(c); });
    for (const auto& [name, category] : kCategories)
      if (low == name) return category;
    return Category::kNone;
  }

  void take_event() {
    if (event_.category == Category::kSpan && (event_.phase == 'b' || event_.phase == 'e'))
      return take_span();
    if (event_.category == Category::kNone || event_.phase != 'X') return;
    if (!is_time(event_.begin) || !is_time(event_.length)) {
      ++trace_.malformed;
      return;
    }
    switch (event_.category) {
      case Category::kKernel:
        return take_work(Activity::kKernel);
      case Category::kMemcpy:
        return take_work(Activity::kMemcpy);
      case Category::kMemset:
        return take_work(Activity::kMemset);
      case Category::kOp:
        trace_.ops.push_back(host_op());
        return;
      case Category::kRange:
        trace_.ranges.push_back(host_op());
        return;
      case Category::kRuntime:
        return take_launch();
      case Category::kPython:
        if (event_.name.starts_with(kModule)) {
          event_.name.erase(0, kModule.size());
          trace_.ops.push_back(host_op());
          trace_.ops.back().is_module = true;
        }
        return;
      default:
        return;
    }
  }

  uint32_t thread_number() { return trace_.threads.number(event_.process + "/" + event_.thread); }

  HostOp host_op() {
    uint32_t shapes = 0;
    if (!event_.dims.empty() || !event_.types.empty())
      shapes = trace_.names.number(event_.dims + "|" + event_.types);
    return {.begin = *event_.begin,
            .end = *event_.begin + *event_.length,
            .external = event_.external,
            .thread = thread_number(),
            .name = trace_.names.number(event_.name),
            .shapes = shapes};
  }

  void take_work(Activity activity) {
    int64_t bytes = event_.bytes;
    if (event_.elements > 0 && event_.elements < (int64_t{1} << 50))
      bytes = event_.elements * bytes_of_type(event_.dtype);
    trace_.work.push_back({.begin = *event_.begin,
                           .end = *event_.begin + *event_.length,
                           .correlation = event_.correlation,
                           .external = event_.external,
                           .bytes = std::clamp<int64_t>(bytes, 0, kMostTime),
                           .name = trace_.names.number(event_.name),
                           .stream = static_cast<uint32_t>(event_.stream),
                           .device = static_cast<uint32_t>(event_.device),
                           .activity = activity});
  }

  void take_launch() {
    trace_.launches.push_back({.begin = *event_.begin,
                               .end = *event_.begin + *event_.length,
                               .correlation = event_.correlation,
                               .thread = thread_number(),
                               .name = trace_.names.number(event_.name)});
  }

  void take_span() {
    if (!is_time(event_.begin)) {
      ++trace_.malformed;
    } else if (event_.phase == 'b') {
      if (open_spans_.size() < 100'000)
        open_spans_[event_.span] = {.begin = *event_.begin,
                                    .end = *event_.begin,
                                    .bytes = std::max<int64_t>(event_.bytes, 0),
                                    .name = trace_.names.number(event_.name)};
    } else if (const auto found = open_spans_.find(event_.span); found != open_spans_.end()) {
      found->second.end = std::max(found->second.begin, *event_.begin);
      trace_.spans.push_back(found->second);
      open_spans_.erase(found);
    }
  }

  ByteSource source_;
  JsonStream json_;
  Trace trace_;
  Event event_;
  std::string key_, text_;
  std::unordered_map<std::string, HostSpan> open_spans_;
  bool has_events_ = false;
};

}  // namespace

Trace read_chrome(const fs::path& path) {
  return ChromeReader(path).read();
}

}  // namespace octavo::audit
