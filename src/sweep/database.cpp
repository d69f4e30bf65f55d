#include "sweep/database.h"

#include <sqlite3.h>
#include <sys/vfs.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"

namespace octavo::sweep {

Database::Database(const fs::path& path, bool create, int patience_ms) : path_(path) {
  std::error_code error;
  if (!create && !fs::is_regular_file(path, error))
    fail(ExitCode::kUsage, "sweep", "wanted a sweep's database, found no file ", path.string(),
         "; make one with octavo sweep create");
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | (create ? SQLITE_OPEN_CREATE : 0);
  if (sqlite3_open_v2(path.c_str(), &handle_, flags, nullptr) != SQLITE_OK) {
    const std::string reason = handle_ == nullptr ? "no memory" : sqlite3_errmsg(handle_);
    sqlite3_close(handle_);
    fail(ExitCode::kEnvironment, "sweep", "wanted to open ", path.string(), ", found: ", reason);
  }
  sqlite3_extended_result_codes(handle_, 1);
  sqlite3_busy_timeout(handle_, patience_ms);
  // The file may come from anywhere: nothing in it is run, and nothing in it is huge.
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_limit(handle_, SQLITE_LIMIT_LENGTH, 16 << 20);
}

Database::~Database() {
  sqlite3_close(handle_);
}

void Database::fail_now(std::string_view doing) const {
  const int code = sqlite3_errcode(handle_) & 0xff;
  const std::string reason = sqlite3_errmsg(handle_);
  if (code == SQLITE_BUSY || code == SQLITE_LOCKED)
    fail(
        ExitCode::kEnvironment, "sweep", path_.string(), ": wanted to ", doing,
        ", found that another process kept it locked for too long (", reason,
        "); look for one that stands still, and see docs/how-to/sweep.md for network file systems");
  if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_ERROR)
    fail(ExitCode::kDamaged, "sweep", path_.string(), ": wanted to ", doing, ", found: ", reason,
         "; this is no sweep's database, or it is damaged");
  fail(ExitCode::kEnvironment, "sweep", path_.string(), ": wanted to ", doing, ", found: ", reason);
}

void Database::run(const std::string& sql) {
  if (sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK)
    fail_now("write to it");
}

int64_t Database::changes() const {
  return sqlite3_changes(handle_);
}

Statement::Statement(Database& database, const std::string& sql) : database_(database) {
  if (sqlite3_prepare_v2(database.handle(), sql.c_str(), static_cast<int>(sql.size()), &statement_,
                         nullptr) != SQLITE_OK)
    database.fail_now("read it");
}

Statement::~Statement() {
  sqlite3_finalize(statement_);
}

Statement& Statement::bind(int64_t value) {
  sqlite3_bind_int64(statement_, ++bound_, value);
  return *this;
}

Statement& Statement::bind(double value) {
  sqlite3_bind_double(statement_, ++bound_, value);
  return *this;
}

Statement& Statement::bind(std::string_view value) {
  if (sqlite3_bind_text64(statement_, ++bound_, value.data(), value.size(), SQLITE_TRANSIENT,
                          SQLITE_UTF8) != SQLITE_OK)
    database_.fail_now("write to it");
  return *this;
}

Statement& Statement::bind(const std::optional<double>& value) {
  if (value) return bind(*value);
  ++bound_;  // what is not bound is NULL
  return *this;
}

bool Statement::next() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) database_.fail_now("use it");
  return false;
}

void Statement::run() {
  while (next()) {
  }
}

int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(statement_, column);
}

double Statement::real(int column) const {
  return sqlite3_column_double(statement_, column);
}

std::optional<double> Statement::optional_real(int column) const {
  if (sqlite3_column_type(statement_, column) == SQLITE_NULL) return std::nullopt;
  return real(column);
}

std::string Statement::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  const int size = sqlite3_column_bytes(statement_, column);
  return bytes == nullptr ? std::string() : std::string(bytes, static_cast<size_t>(size));
}

Transaction::~Transaction() {
  if (done_) return;
  if (sqlite3_exec(database_.handle(), "ROLLBACK", nullptr, nullptr, nullptr) != SQLITE_OK)
    log_debug("sweep: nothing to undo");
}

void Transaction::commit() {
  database_.run("COMMIT");
  done_ = true;
}

bool on_network_file_system(const fs::path& path) {
  constexpr uint32_t kNetwork[] = {0x6969,                          // NFS
                                   0x0bd00bd0,                      // Lustre
                                   0x47504653,                      // GPFS
                                   0x19830326,                      // BeeGFS
                                   0x00c36400,                      // Ceph
                                   0xff534d42, 0xfe534d42, 0x517b,  // SMB
                                   0x5346414f,                      // AFS
                                   0x01021997,                      // 9P
                                   0x65735546};                     // FUSE: nobody can tell
  struct statfs info {};
  if (statfs(path.c_str(), &info) != 0) return true;  // the careful answer
  return std::ranges::find(kNetwork, static_cast<uint32_t>(info.f_type)) != std::end(kNetwork);
}

}  // namespace octavo::sweep
