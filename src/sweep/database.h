#pragma once
// SQLite, as little of it as a sweep needs: a file, statements, one transaction at a time.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"

struct sqlite3;
struct sqlite3_stmt;

namespace octavo::sweep {

class Database {
 public:
  // Makes the file when `create` says so. Several processes may have it open: one writes at a time,
  // and the others wait for up to `patience_ms`, after which they fail with kEnvironment.
  Database(const fs::path& path, bool create, int patience_ms);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  void run(const std::string& sql);  // one or more statements without results
  int64_t changes() const;           // rows of the last statement
  const fs::path& path() const { return path_; }
  [[noreturn]] void fail_now(std::string_view doing) const;
  sqlite3* handle() const { return handle_; }

 private:
  fs::path path_;
  sqlite3* handle_ = nullptr;
};

// One statement with its values. Bind in order, then step: while (statement.next()) …
class Statement {
 public:
  Statement(Database& database, const std::string& sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(int64_t value);
  Statement& bind(double value);
  Statement& bind(std::string_view value);
  Statement& bind(const std::optional<double>& value);

  bool next();  // a row is there
  void run();   // to the end
  int64_t integer(int column) const;
  double real(int column) const;
  std::optional<double> optional_real(int column) const;
  std::string text(int column) const;

 private:
  Database& database_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

// Takes the write lock at once, so that what is read stays true until commit(). Undone otherwise.
class Transaction {
 public:
  explicit Transaction(Database& database) : database_(database) {
    database_.run("BEGIN IMMEDIATE");
  }
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Database& database_;
  bool done_ = false;
};

// Is the file on a file system of several machines, where SQLite's write-ahead log (which needs
// shared memory) must not be used?
bool on_network_file_system(const fs::path& path);

}  // namespace octavo::sweep
