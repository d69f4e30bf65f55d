#pragma once
// What ranks print: whole lines, each with its rank before it, to the terminal or a file.

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

// One stream (stdout or stderr) of one rank.
class Relay {
 public:
  // `terminal`: the descriptor that gets the text, -1 for none. An empty prefix passes bytes as
  // they come; any other keeps lines whole.
  Relay(int terminal, std::string prefix, std::shared_ptr<LogFile> log);
  void feed(std::string_view bytes);
  void finish();  // an unfinished line is written with an end
  const std::string& last_line() const { return last_line_; }  // that was not empty

 private:
  void take_line(std::string_view line);

  int terminal_;
  std::string prefix_;
  std::shared_ptr<LogFile> log_;
  std::string rest_, last_line_;
};

}  // namespace octavo
