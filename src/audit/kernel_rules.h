#pragma once
// The rules of kernel names, as data: the first whose pattern matches a name says what the kernel
// is. A row has its source; tests/conformance/audit.py has names for the rows.

#include <span>
#include <string_view>

#include "audit/kernel_class.h"

namespace octavo::audit {

// Where a rule's precision comes from.
enum class TypesFrom : unsigned char {
  kRule,  // the row says it
  kNvjet,
  kXmma,
  kCutlass2,
  kCutlass3,
  kTemplate,
  kFirstType,
  kTrtllm,
  kCudnn,
  kShortType,
};

struct KernelRule {
  std::string_view pattern;  // a glob over the normalized name
  Kind kind;
  TypesFrom types;
  Precision precision;  // when types is kRule
  std::string_view library;
  std::string_view source;
  bool is_sure = true;  // false: inferred, or a report that nobody reproduced
  bool is_fused = false;
  std::string_view detail = "";
};

std::span<const KernelRule> kernel_rules();

}  // namespace octavo::audit
