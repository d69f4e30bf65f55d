#pragma once
// Objects on a server, by their addresses (address.h). All calls may come from any thread. What
// goes wrong is an Error: kEnvironment when it may be better later, and no message shows
// credentials. Names and bytes come from a server: they are untrusted.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::object_store {

struct Object {
  std::string name;  // below the address that was listed; "": it is that object
  uint64_t bytes = 0;
  int64_t modified_ns = 0;
};

class ObjectReader {
 public:
  virtual ~ObjectReader() = default;
  virtual uint64_t bytes() const = 0;
  virtual std::string tag() const = 0;  // of the server: another one when the content is another
  // `bytes` from `offset`; an error when the object ends before.
  virtual std::string read(uint64_t offset, uint64_t bytes) const = 0;
};

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;
  // The object at an address, or all below it, by name. Empty when there is nothing.
  virtual std::vector<Object> list(const std::string& address) = 0;
  virtual std::unique_ptr<ObjectReader> open(const std::string& address) = 0;
  // In parts, several on the way at a time, each with a checksum that the server compares. `next`
  // gives the bytes one after the other, at the end none. The object appears when all are there:
  // what fails, or is thrown by `next`, leaves what was there before.
  using NextBytes = std::function<std::span<const std::byte>()>;
  virtual void put(const std::string& address, const NextBytes& next) = 0;
  // None there: nothing to do.
  virtual void remove(const std::string& address) = 0;
  virtual void remove_below(const std::string& address) = 0;  // every object

  // A whole small object; refuses one larger than `max_bytes`.
  std::string get(const std::string& address, uint64_t max_bytes);
  void put_text(const std::string& address, std::string_view text);
};

// S3, by way of liboctavo_s3.so, which is loaded now. Endpoint, region and credentials are those of
// the AWS tools: environment, profile, web identity, container, instance.
std::shared_ptr<ObjectStore> s3();

}  // namespace octavo::object_store
