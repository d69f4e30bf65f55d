#include "monitor/metric_file.h"

#include <sys/stat.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "base/json.h"
#include "base/log.h"

namespace octavo::monitor {
namespace {

constexpr size_t kLongestLine = size_t{16} << 20;  // FP8 statistics of a large model are long

}  // namespace

MetricFile::MetricFile(fs::path path, std::string metric)
    : path_(std::move(path)), metric_(std::move(metric)) {}

void MetricFile::update() {
  struct stat info {};
  if (stat(path_.c_str(), &info) != 0) return;  // the run has not begun to write
  if (info.st_ino != file_ || static_cast<uint64_t>(info.st_size) < read_) {
    file_ = info.st_ino;
    read_ = 0;
    values_.clear();
  }
  std::ifstream in(path_);
  in.seekg(static_cast<std::streamoff>(read_));
  for (std::string line; std::getline(in, line) && !in.eof();) {  // the last one may be half
    read_ += line.size() + 1;
    take(line);
  }
}

void MetricFile::take(const std::string& line) {
  // Most lines of most files do not hold the metric, and parsing costs more than looking.
  if (line.size() > kLongestLine || line.find(metric_) == line.npos) return;
  const Json record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object()) {
    log_warn_once("metrics: " + path_.string() + " has a line that is not JSON; it is left out");
    return;
  }
  const auto value = record.find(metric_);
  if (value == record.end() || !(value->is_number() || value->is_null())) return;
  const double number = value->is_null() ? NAN : value->get<double>();
  values_.push_back(std::isfinite(number) ? number : std::numeric_limits<double>::infinity());
}

}  // namespace octavo::monitor
