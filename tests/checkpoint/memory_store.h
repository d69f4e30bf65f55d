#pragma once
// An object store in memory that notes what was asked of it, and fails when it is told to.

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "object_store/object_store.h"

namespace octavo::checkpoint {

class MemoryStore : public object_store::ObjectStore {
 public:
  // Called before each request with its kind ("put", "get", "list", "remove") and address; may
  // throw.
  std::function<void(const std::string& kind, const std::string& address)> before;

  std::vector<object_store::Object> list(const std::string& address) override {
    ask("list", address);
    const std::lock_guard lock(mutex_);
    if (objects_.contains(address)) return {{"", objects_.at(address).size(), 0}};
    std::vector<object_store::Object> found;
    for (const auto& [name, content] : objects_)
      if (name.starts_with(address + "/"))
        found.push_back({name.substr(address.size() + 1), content.size(), 0});
    return found;
  }
  std::unique_ptr<object_store::ObjectReader> open(const std::string& address) override {
    ask("get", address);
    const std::lock_guard lock(mutex_);
    if (!objects_.contains(address)) fail(ExitCode::kEnvironment, "test", "nothing at ", address);
    return std::make_unique<Reader>(objects_.at(address));
  }
  void put(const std::string& address, const NextBytes& next) override {
    ask("put", address);
    std::string content;
    for (auto bytes = next(); !bytes.empty(); bytes = next())
      content.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::lock_guard lock(mutex_);
    objects_[address] = std::move(content);
    changes_.push_back("put " + address);
  }
  void remove(const std::string& address) override {
    ask("remove", address);
    const std::lock_guard lock(mutex_);
    if (objects_.erase(address) > 0) changes_.push_back("remove " + address);
  }
  void remove_below(const std::string& address) override {
    ask("remove", address);
    const std::lock_guard lock(mutex_);
    std::erase_if(objects_,
                  [&](const auto& item) { return item.first.starts_with(address + "/"); });
    changes_.push_back("remove_below " + address);
  }

  std::map<std::string, std::string> objects() const {
    const std::lock_guard lock(mutex_);
    return objects_;
  }
  void set(const std::string& address, std::string content) {
    const std::lock_guard lock(mutex_);
    objects_[address] = std::move(content);
  }
  std::vector<std::string> take_changes() {
    const std::lock_guard lock(mutex_);
    return std::exchange(changes_, {});
  }

 private:
  class Reader : public object_store::ObjectReader {
   public:
    explicit Reader(std::string content) : content_(std::move(content)) {}
    uint64_t bytes() const override { return content_.size(); }
    std::string tag() const override { return "tag"; }
    std::string read(uint64_t offset, uint64_t bytes) const override {
      return content_.substr(offset, bytes);
    }

   private:
    std::string content_;
  };

  void ask(const std::string& kind, const std::string& address) const {
    if (before) before(kind, address);
  }

  mutable std::mutex mutex_;
  std::map<std::string, std::string> objects_;
  std::vector<std::string> changes_;
};

}  // namespace octavo::checkpoint
