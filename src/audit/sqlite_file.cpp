#include "audit/sqlite_file.h"

#include <sqlite3.h>

#include <algorithm>

#include "base/error.h"

namespace octavo::audit {
namespace {

// As a URI: immutable says that there is no journal to look for beside it, and no lock to take.
std::string uri_of(const fs::path& path) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string uri = "file:";
  for (const char c : fs::absolute(path).string()) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '/' || c == '.' || c == '-' || c == '_';
    if (is_plain) {
      uri += c;
    } else {
      uri += '%';
      uri += kHex[byte >> 4];
      uri += kHex[byte & 15];
    }
  }
  return uri + "?mode=ro&immutable=1";
}

}  // namespace

SqliteFile::SqliteFile(const fs::path& path) : path_(path) {
  const int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI;
  if (sqlite3_open_v2(uri_of(path).c_str(), &handle_, flags, nullptr) != SQLITE_OK) {
    const std::string reason = handle_ == nullptr ? "no memory" : sqlite3_errmsg(handle_);
    sqlite3_close(handle_);
    fail(ExitCode::kUsage, "audit", "wanted to open ", path.string(), ", found: ", reason);
  }
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  rows_left_ = error ? 0 : bytes / 4;  // a row takes its cell and a pointer to it
  // Nothing in the file is run, and nothing in it is huge.
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_limit(handle_, SQLITE_LIMIT_LENGTH, 1 << 20);
  sqlite3_exec(handle_, "PRAGMA cell_size_check=ON", nullptr, nullptr, nullptr);
  sqlite3_stmt* statement = nullptr;
  // A view, or a virtual table, is a program of whoever wrote the file: real tables alone.
  const char* const sql =
      "SELECT name FROM sqlite_master WHERE type='table' AND rootpage > 0 AND sql NOT LIKE "
      "'%GENERATED%'";
  int code = sqlite3_prepare_v2(handle_, sql, -1, &statement, nullptr);
  while (code == SQLITE_OK || code == SQLITE_ROW) {
    code = sqlite3_step(statement);
    if (code != SQLITE_ROW || tables_.size() > 10'000) break;
    if (const auto* name = reinterpret_cast<const char*>(sqlite3_column_text(statement, 0)))
      tables_.emplace_back(name);
  }
  sqlite3_finalize(statement);
  if (code == SQLITE_DONE || code == SQLITE_ROW) return;
  const std::string reason = sqlite3_errmsg(handle_);
  sqlite3_close(handle_);
  fail(ExitCode::kDamaged, "audit", path.string(),
       ": wanted an Nsight Systems export, found: ", reason);
}

SqliteFile::~SqliteFile() {
  sqlite3_close(handle_);
}

void SqliteFile::damaged() const {
  fail(ExitCode::kDamaged, "audit", path_.string(),
       ": wanted an Nsight Systems export, found: ", sqlite3_errmsg(handle_),
       "; export it again: nsys export --type sqlite FILE.nsys-rep");
}

bool SqliteFile::has_table(std::string_view name) const {
  return std::ranges::find(tables_, name) != tables_.end();
}

void SqliteFile::for_each(std::string_view table, const std::vector<std::string_view>& columns,
                          const std::function<void(const Row&)>& take) {
  if (!has_table(table)) return;
  sqlite3_stmt* statement = nullptr;
  const std::string sql = str("SELECT * FROM \"", table, "\"");  // a name of ours
  if (sqlite3_prepare_v2(handle_, sql.c_str(), -1, &statement, nullptr) != SQLITE_OK) damaged();
  const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> owner(statement, sqlite3_finalize);
  Row row;
  row.statement_ = statement;
  row.places_.assign(columns.size(), -1);
  for (int i = 0; i < sqlite3_column_count(statement); ++i) {
    const auto found =
        std::ranges::find(columns, std::string_view(sqlite3_column_name(statement, i)));
    if (found != columns.end()) row.places_[static_cast<size_t>(found - columns.begin())] = i;
  }
  int code = SQLITE_ROW;
  while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
    if (rows_left_-- == 0)
      fail(ExitCode::kDamaged, "audit", path_.string(), ": wanted rows that fit into the file, ",
           "found pages that lead back to each other");
    take(row);
  }
  if (code != SQLITE_DONE) damaged();
}

int64_t SqliteFile::Row::integer(size_t column) const {
  const int place = places_.at(column);
  return place < 0 ? 0 : sqlite3_column_int64(statement_, place);
}

bool SqliteFile::Row::is_null(size_t column) const {
  const int place = places_.at(column);
  return place < 0 || sqlite3_column_type(statement_, place) == SQLITE_NULL;
}

std::string_view SqliteFile::Row::text(size_t column) const {
  const int place = places_.at(column);
  if (place < 0) return {};
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, place));
  const int size = sqlite3_column_bytes(statement_, place);
  return bytes == nullptr ? std::string_view() : std::string_view(bytes, static_cast<size_t>(size));
}

}  // namespace octavo::audit
