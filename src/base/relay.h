#pragma once
// What ranks print: whole lines, each with its rank before it, to the terminal or a file.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"

namespace octavo {

// A file that is appended to, a line at a time.
class LogFile {
 public:
  explicit LogFile(const fs::path& path);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
  void write(std::string_view text);

 private:
  fs::path path_;
  int descriptor_ = -1;
  bool failed_ = false;
};

// What goes to a terminal or pipe, without ever waiting for its reader. Of this process's threads
// only one may use it.
class PatientWriter {
 public:
  void write(int descriptor, std::string_view text);
  // As much as the reader takes within `patience`; says how much was dropped.
  void finish(int descriptor, std::chrono::milliseconds patience);
  size_t pending() const { return pending_.size(); }
  uint64_t dropped() const { return dropped_; }

 private:
  bool flush(int descriptor);  // false: the reader takes no more now

  std::string pending_;
  uint64_t dropped_ = 0;
  bool gone_ = false;
};

// One stream (stdout or stderr) of one rank.
class Relay {
 public:
  // `terminal`: the descriptor that gets the text, -1 for none. An empty prefix passes bytes as
  // they come; any other keeps lines whole. A reader that is slow or gone holds up nobody: what it
  // does not take is kept up to a bound, then dropped and counted.
  Relay(int terminal, std::string prefix, std::shared_ptr<LogFile> log);
  void feed(std::string_view bytes);
  void finish();  // an unfinished line is written with an end
  void flush();   // what the reader did not take before
  // From here on what looks like a process's last words ("octavo: [module] wanted …") is not shown
  // before the next line, show_last_words() or finish(), so that it can be left out.
  void keep_last_words() { keeps_last_words_ = true; }
  void show_last_words();
  bool leave_out_last_words();  // were there any?
  bool has_pending() const { return writer_.pending() > 0; }
  const std::string& last_line() const { return last_line_; }  // that was not empty

 private:
  void take_line(std::string_view line);

  int terminal_;
  PatientWriter writer_;
  std::string prefix_;
  std::shared_ptr<LogFile> log_;
  std::string rest_, last_line_;
  bool keeps_last_words_ = false;
  std::string last_words_;  // that were not shown yet
};

}  // namespace octavo
