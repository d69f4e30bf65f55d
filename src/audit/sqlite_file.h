#pragma once
// A SQLite file that comes from anywhere, read and never written: tables alone, row by row.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

struct sqlite3;
struct sqlite3_stmt;

namespace octavo::audit {

class SqliteFile {
 public:
  explicit SqliteFile(const fs::path& path);
  ~SqliteFile();
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;

  // One row of the table that is being read. Columns that the table does not have are 0 and "".
  class Row {
   public:
    int64_t integer(size_t column) const;
    bool is_null(size_t column) const;
    std::string_view text(size_t column) const;

   private:
    friend class SqliteFile;
    sqlite3_stmt* statement_ = nullptr;
    std::vector<int> places_;  // -1: not there
  };

  bool has_table(std::string_view name) const;
  // Calls `take` for every row; does nothing when there is no such table.
  void for_each(std::string_view table, const std::vector<std::string_view>& columns,
                const std::function<void(const Row&)>& take);

 private:
  [[noreturn]] void damaged() const;

  fs::path path_;
  sqlite3* handle_ = nullptr;
  std::vector<std::string> tables_;
  uintmax_t rows_left_ = 0;  // that may still be in the file
};

}  // namespace octavo::audit
