#include "monitor/tensorboard.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "base/error.h"
#include "monitor/log_format.h"
#include "monitor/metrics.h"
#include "monitor/record_file.h"
#include "monitor/wire.h"

namespace octavo::monitor {
namespace {

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// u64 length, its checksum, the bytes, their checksum.
std::string framed(const Message& message) {
  const std::string& bytes = message.bytes();
  std::string out;
  append_little_endian(out, static_cast<uint64_t>(bytes.size()));
  append_little_endian(out, masked_crc32c(out));
  out += bytes;
  append_little_endian(out, masked_crc32c(bytes));
  return out;
}

Message event_at(int64_t step) {
  Message made;
  made.real(event::kWallTime, wall_time()).number(event::kStep, step);
  return made;
}

Message scalar(const Metric& metric) {
  return Message()
      .text(value::kTag, metric.name)
      .short_real(value::kSimpleValue, static_cast<float>(metric.value));
}

Message histogram(const Histogram& h) {
  // TensorBoard keeps right edges alone; the first bin begins at the least value.
  const std::vector<double> limits(h.edges.begin() + 1, h.edges.end());
  const std::vector<double> counts(h.counts.begin(), h.counts.end());
  const Message body = Message()
                           .real(1, h.least)
                           .real(2, h.most)
                           .real(3, static_cast<double>(h.count))
                           .real(4, h.sum)
                           .real(5, h.sum_of_squares)
                           .reals(6, limits)
                           .reals(7, counts);
  return Message().text(value::kTag, h.name).message(value::kHistogram, body);
}

// The text plugin reads Markdown; indented text is shown as it is.
std::string as_code_block(const std::string& text) {
  std::string out = "    ";
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "    ";
  }
  return out;
}

Message text_value(std::string_view tag, const std::string& text) {
  const Message plugin = Message().text(1, "text");
  const Message content = Message()
                              .number(tensor::kType, tensor::kStringType)
                              .message(tensor::kShape, Message())
                              .text(tensor::kStrings, as_code_block(text));
  return Message()
      .text(value::kTag, tag)
      .message(value::kMetadata, Message().message(1, plugin))
      .message(value::kTensor, content);
}

fs::path new_event_file(const fs::path& folder) {
  char name[96];
  std::snprintf(name, sizeof name, "events.out.tfevents.%010lld.octavo.%d",
                static_cast<long long>(wall_time()), static_cast<int>(::getpid()));
  return folder / name;
}

class TensorBoardSink final : public Sink {
 public:
  TensorBoardSink(const fs::path& folder, int64_t last_step)
      : last_step_(last_step), file_("TensorBoard events", new_event_file(folder)) {}

  void on_step(const StepRecord& r) override {
    Message summary;
    for (const Metric& metric : metrics_of(r)) summary.message(1, scalar(metric));
    for (const Histogram& h : histograms_of(r)) summary.message(1, histogram(h));
    write(r.step, summary);
  }

  void on_eval(const EvalRecord& r) override {
    Message summary;
    for (const Metric& metric : metrics_of(r)) summary.message(1, scalar(metric));
    write(r.step, summary);
  }

  void on_task(const TaskRecord& r) override {
    Message summary;
    for (const Metric& metric : metrics_of(r)) summary.message(1, scalar(metric));
    write(r.step, summary);
  }

  void on_sample(const SampleRecord& r) override {
    write(r.step, Message().message(1, text_value("samples", valid_utf8(r.text))));
  }

  int64_t failures() const override { return file_.failures(); }
  std::string_view name() const override { return "tensorboard"; }

 private:
  void write(int64_t step, const Message& summary) {
    Message made = event_at(step);
    made.message(event::kSummary, summary);
    file_.append((file_.size() == 0 ? beginning() : "") + framed(made));
  }

  std::string beginning() const {
    Message version;
    version.real(event::kWallTime, wall_time()).text(event::kFileVersion, "brain.Event:2");
    std::string out = framed(version);
    if (last_step_ > 0) {
      Message start = event_at(last_step_ + 1);
      start.message(event::kSessionLog, Message().number(session::kStatus, session::kStart));
      out += framed(start);
    }
    return out;
  }

  int64_t last_step_;
  RecordFile file_;
};

}  // namespace

std::unique_ptr<Sink> make_tensorboard_sink(const fs::path& folder, int64_t last_step) {
  return std::make_unique<TensorBoardSink>(folder, last_step);
}

}  // namespace octavo::monitor
