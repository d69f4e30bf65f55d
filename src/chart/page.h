#pragma once
// A page to read: one HTML file that needs no network, no script and no other file.

#include <string>
#include <utility>
#include <vector>

namespace octavo::chart {

// Everything is escaped, except pictures, which come from svg() of this module.
class Page {
 public:
  explicit Page(std::string title);
  void heading(const std::string& text);
  void text(const std::string& paragraph);
  // Columns whose cells are all numbers are set flush right. A cell that is exactly PASS, FAIL or
  // NOT ENOUGH DATA is coloured.
  void table(const std::vector<std::string>& head,
             const std::vector<std::vector<std::string>>& rows);
  void picture(const std::string& svg);
  void pre(const std::string& text);
  // Several texts beside each other, each under its name.
  void beside(const std::vector<std::pair<std::string, std::string>>& texts);
  // A banner with one word to remember and a line under it; `kind` is good, bad or unclear.
  void banner(const std::string& kind, const std::string& word, const std::string& line);
  std::string html() const;

 private:
  std::string title_, body_;
};

}  // namespace octavo::chart
