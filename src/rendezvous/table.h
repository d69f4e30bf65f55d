#pragma once
// What the server keeps, and the operations on it; no sockets, no clocks.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "rendezvous/protocol.h"

namespace octavo::rendezvous {

class Table {
 public:
  Table(size_t max_keys, size_t max_bytes) : max_keys_(max_keys), max_bytes_(max_bytes) {}

  // The first key at `from` or later that a waiting request still lacks; kNone when it has all.
  static constexpr size_t kNone = SIZE_MAX;
  size_t first_missing(const Request& request, size_t from) const;

  // Answers a request that lacks nothing. Every way to be wrong is a reply with kRefused.
  Reply answer(const Request& request);

  size_t keys() const { return entries_.size(); }
  size_t bytes() const { return bytes_; }

  static bool waits(Op op) { return op == Op::kGet || op == Op::kWait || op == Op::kMultiGet; }
  static bool writes(Op op);

 private:
  bool has(const std::string& key) const { return entries_.contains(key); }
  std::optional<Reply> put(const std::string& key, std::string value);
  Reply answer_set(const Request& request);
  Reply answer_add(const Request& request);
  Reply answer_compare_set(const Request& request);
  Reply answer_append(const Request& request);
  Reply answer_get(const Request& request) const;
  Reply answer_missing(const Request& request) const;
  Reply answer_delete(const Request& request);
  void erase(std::map<std::string, std::string>::iterator entry);

  size_t max_keys_, max_bytes_, bytes_ = 0;
  std::map<std::string, std::string> entries_;
};

}  // namespace octavo::rendezvous
