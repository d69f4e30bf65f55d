#include "object_store/object_store.h"

#include "base/error.h"
#include "base/module.h"
#include "object_store/address.h"
#include "object_store/s3/s3_module.h"

namespace octavo::object_store {

std::string ObjectStore::get(const std::string& address, uint64_t max_bytes) {
  const auto reader = open(address);
  if (reader->bytes() > max_bytes)
    fail(ExitCode::kDamaged, "object_store", address, ": wanted at most ", max_bytes,
         " bytes, found ", reader->bytes());
  return reader->read(0, reader->bytes());
}

void ObjectStore::put_text(const std::string& address, std::string_view text) {
  bool given = false;
  put(address, [&]() -> std::span<const std::byte> {
    if (given) return {};
    given = true;
    return std::as_bytes(std::span(text.data(), text.size()));
  });
}

std::shared_ptr<ObjectStore> s3() {
  endpoint_from_environment();  // refused before anything is loaded
  const auto open = reinterpret_cast<decltype(&octavo_s3_store)>(
      module_symbol("liboctavo_s3.so", "octavo_s3_store", "s3://"));
  return std::shared_ptr<ObjectStore>(open());
}

}  // namespace octavo::object_store
