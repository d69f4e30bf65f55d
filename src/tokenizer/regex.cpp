#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <time.h>

#include "base/error.h"

namespace octavo::tokenizer {
namespace {

constexpr uint32_t kMatchLimit = 1'000'000;  // steps for one word
constexpr uint32_t kHeapLimitKib = 64 << 10;
constexpr uint32_t kNestLimit = 32;
constexpr size_t kJitStackStart = 32 << 10, kJitStackMax = 8 << 20;

template <auto kFree>
struct FreeWith {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using MatchData = std::unique_ptr<pcre2_match_data, FreeWith<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, FreeWith<pcre2_match_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, FreeWith<pcre2_jit_stack_free>>;

std::string error_text(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

// What one thread needs to match; made for each call because a Regex is shared.
struct Matcher {
  MatchData data;
  MatchContext context{pcre2_match_context_create(nullptr)};
  JitStack stack{pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr)};

  explicit Matcher(const pcre2_code* code)
      : data(pcre2_match_data_create_from_pattern(code, nullptr)) {
    OCTAVO_ASSERT(data && context && stack);
    pcre2_set_match_limit(context.get(), kMatchLimit);
    pcre2_set_heap_limit(context.get(), kHeapLimitKib);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
};

// Each word may stay within kMatchLimit and all of them together take hours: thirty times of what
// sound patterns need is enough. Counted in the thread's own time, so that other work on the
// machine does not use it up.
class Budget {
 public:
  explicit Budget(size_t bytes)
      : nanoseconds_(kLeast + static_cast<int64_t>(bytes) * kPerByte), begin_(now()) {}
  // Asks the clock only at every 16th word: that costs more than a word.
  bool is_used_up() const { return (++asked_ & 15) == 0 && now() - begin_ > nanoseconds_; }
  std::string text() const { return str(nanoseconds_ / 1'000'000, " ms"); }

 private:
  static constexpr int64_t kLeast = 50'000'000, kPerByte = 1'000;
  static int64_t now() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
  }
  int64_t nanoseconds_, begin_;
  mutable uint32_t asked_ = 0;
};

}  // namespace

struct Regex::Compiled {
  pcre2_code* code = nullptr;
  std::string pattern;
  ~Compiled() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view pattern, std::string_view source)
    : compiled_(std::make_unique<Compiled>()) {
  const std::string translated = translate_pattern(pattern, source);
  compiled_->pattern = pattern;
  std::unique_ptr<pcre2_compile_context, FreeWith<pcre2_compile_context_free>> context(
      pcre2_compile_context_create(nullptr));
  OCTAVO_ASSERT(context);
  pcre2_set_parens_nest_limit(context.get(), kNestLimit);
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled_->code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context.get());
  if (compiled_->code == nullptr)
    fail(ExitCode::kDamaged, "tokenizer", source, ": wanted a valid regular expression, found '",
         pattern, "': ", error_text(error), " (at ", offset, " of '", translated, "')");
  uint32_t can_be_empty = 0;
  pcre2_pattern_info(compiled_->code, PCRE2_INFO_MATCHEMPTY, &can_be_empty);
  if (can_be_empty != 0)
    fail(ExitCode::kUsage, "tokenizer", source,
         ": wanted a pattern that matches at least one character, found '", pattern,
         "' which can match nothing; this tokenizer is not supported");
  // Without the JIT (a build of PCRE2 without it) the interpreter gives the same result, slower.
  pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE);
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;

void Regex::split(std::string_view text, CutMode mode, uint32_t base,
                  std::vector<uint32_t>& ends) const {
  const Matcher matcher(compiled_->code);
  const Budget budget(text.size());
  Cutter cutter(mode, base, ends);
  size_t at = 0;
  while (at < text.size()) {
    const int found =
        pcre2_match(compiled_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                    PCRE2_NO_UTF_CHECK, matcher.data.get(), matcher.context.get());
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0 || budget.is_used_up())
      fail(ExitCode::kUsage, "tokenizer", "the pre-tokenizer pattern '", compiled_->pattern,
           "' could not be matched within its limits: ",
           found < 0 ? error_text(found)
                     : str("it took more than ", budget.text(), " for ", text.size(), " bytes"),
           "; use a tokenizer with a simpler pattern");
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(matcher.data.get());
    OCTAVO_ASSERT(range[0] >= at && range[1] > range[0]);
    cutter.match(range[0], range[1]);
    at = range[1];
  }
  cutter.finish(text.size());
}

bool Regex::matches_whole(std::string_view text) const {
  const Matcher matcher(compiled_->code);
  return pcre2_match(compiled_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                     PCRE2_NO_UTF_CHECK | PCRE2_ANCHORED | PCRE2_ENDANCHORED, matcher.data.get(),
                     matcher.context.get()) > 0;
}

}  // namespace octavo::tokenizer
