// The C++ side of fp8_recipes.py. Everything is raw bytes: int64, float32 and codes.
//   quantize           stdin: matrices, each rows, columns (int64), the factor of delayed, values.
//                      stdout, for each: every recipe x format x role x direction, in the order of
//                      the enums: 10 int64 (format, block and grid sizes, incidents, has_nan), the
//                      amax, codes, scales (encode and decode of each block)
//   history            stdin: runs, each length, slots, steps, algorithm, margin (int64), a format
//                      (int64) and a factor per slot, the history; per step: recompute (int64) and
//                      row 0. stdout: after every step the factors and the history

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/error.h"
#include "fp8/quantize.h"
#include "fp8/scaling.h"
#include "tool_main.h"

namespace octavo::fp8 {
namespace {

constexpr FormatChoice kChoices[] = {FormatChoice::kHybrid, FormatChoice::kE4m3,
                                     FormatChoice::kE5m2};
constexpr Role kRoles[] = {Role::kInput, Role::kWeight, Role::kGradient};
constexpr Direction kDirections[] = {Direction::kRow, Direction::kColumn};
constexpr Format kFormats[] = {Format::kE4M3, Format::kE5M2};

template <typename T>
void write(const std::vector<T>& data) {
  if (std::fwrite(data.data(), sizeof(T), data.size(), stdout) != data.size())
    fail(ExitCode::kEnvironment, "fp8_recipes_tool", "wanted to write to stdout, found it closed");
}

template <typename T>
std::vector<T> read(size_t count) {
  std::vector<T> data(count);
  if (std::fread(data.data(), sizeof(T), count, stdin) != count)
    fail(ExitCode::kUsage, "fp8_recipes_tool", "wanted ", count, " numbers more, found the end");
  return data;
}

bool at_end() {
  const int next = std::getc(stdin);
  if (next != EOF) std::ungetc(next, stdin);
  return next == EOF;
}

void flush() {
  if (std::fflush(stdout) != 0)
    fail(ExitCode::kEnvironment, "fp8_recipes_tool", "wanted to write to stdout, found it closed");
}

void write_scales(const std::vector<Scale>& scales) {
  std::vector<float> flat;
  for (const Scale& scale : scales) flat.insert(flat.end(), {scale.encode, scale.decode});
  write(flat);
}

void write_quantization(const Quantization& q) {
  write<int64_t>({static_cast<int64_t>(q.side.format), q.grid.block_rows, q.grid.block_columns,
                  q.grid.grid_rows, q.grid.grid_columns, q.incidents.nan, q.incidents.inf,
                  q.incidents.saturated, q.incidents.underflowed, q.amax.has_nan ? 1 : 0});
  write<float>({q.amax.value});
  write(q.codes);
  write_scales(q.scales);
}

void quantize_stdin() {
  while (!at_end()) {
    const auto shape = read<int64_t>(2);
    const float given = read<float>(1)[0];
    const auto values = read<float>(static_cast<size_t>(shape[0] * shape[1]));
    const Matrix matrix{values, shape[0], shape[1]};
    for (const Recipe recipe : kRecipes)
      for (const FormatChoice choice : kChoices)
        for (const Role role : kRoles)
          for (const Direction direction : kDirections)
            write_quantization(quantize(recipe, side_of(recipe, choice, role, direction), direction,
                                        matrix, given));
    flush();
  }
}

void run_history() {
  const auto head = read<int64_t>(5);
  const auto slots = static_cast<size_t>(head[1]);
  std::vector<Format> formats;
  for (const int64_t index : read<int64_t>(slots))
    formats.push_back(kFormats[static_cast<size_t>(index)]);
  auto factors = read<float>(slots);
  auto amax = read<float>(static_cast<size_t>(head[0]) * slots);
  for (int64_t step = 0; step < head[2]; ++step) {
    const bool recompute = read<int64_t>(1)[0] != 0;
    const auto newest = read<float>(slots);
    std::copy(newest.begin(), newest.end(), amax.begin());
    update_factors({amax, factors, formats, head[0]}, static_cast<AmaxAlgo>(head[3]), head[4],
                   recompute);
    write(factors);
    write(amax);
  }
  flush();
}

void run(const std::vector<std::string>& arguments) {
  const std::string verb = arguments.size() == 1 ? arguments[0] : "";
  if (verb == "quantize")
    quantize_stdin();
  else if (verb == "history")
    while (!at_end()) run_history();
  else
    fail(ExitCode::kUsage, "fp8_recipes_tool", "wanted quantize | history, found '", verb, "'");
}

}  // namespace
}  // namespace octavo::fp8

int main(int argc, char** argv) {
  return octavo::tool_main([&] { octavo::fp8::run({argv + 1, argv + argc}); });
}
