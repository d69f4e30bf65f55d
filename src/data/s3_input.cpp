#include "data/s3_input.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "object_store/object_store.h"

namespace octavo::data {
namespace {

// Stands for the content, which is not read for its hash alone.
std::string tag_hash(const object_store::ObjectReader& reader) {
  return hash_text(str("s3 ", reader.tag(), ' ', reader.bytes()));
}

class S3Input : public InputFile {
 public:
  explicit S3Input(const Source& source)
      : reader_(object_store::s3()->open(source.path.string())), bytes_(source.bytes) {
    if (tag_hash(*reader_) != source.hash)
      fail(ExitCode::kUsage, "data", source.path.string(),
           " changed while it was being prepared; run the command again");
  }
  std::string read(uint64_t offset, uint64_t bytes) const override {
    return reader_->read(offset, std::min(bytes, bytes_ - std::min(offset, bytes_)));
  }

 private:
  std::unique_ptr<object_store::ObjectReader> reader_;
  uint64_t bytes_;
};

Source source_of(object_store::ObjectStore& store, const std::string& address,
                 const object_store::Object& object) {
  Source source;
  source.path = object.name.empty() ? address : object_store::join(address, object.name);
  source.name = object_store::leaf_of(address) + (object.name.empty() ? "" : "/" + object.name);
  source.bytes = object.bytes;
  source.modified_ns = object.modified_ns;
  source.hash = tag_hash(*store.open(source.path.string()));
  return source;
}

}  // namespace

std::vector<Source> list_s3(const std::string& address) {
  const auto store = object_store::s3();
  const std::string whole = "s3://" + object_store::path_of(address);
  const std::vector<object_store::Object> objects = store->list(whole);
  if (objects.empty())
    fail(ExitCode::kUsage, "data", "wanted an object or a prefix, found nothing at ", address,
         "; check the name");
  std::vector<Source> sources;
  for (const object_store::Object& object : objects) {
    stop_if_asked("listing inputs");  // each is a request
    if (object.name.empty() || object.bytes > 0)
      sources.push_back(source_of(*store, whole, object));
  }
  return sources;
}

std::unique_ptr<InputFile> open_s3(const Source& source) {
  return std::make_unique<S3Input>(source);
}

}  // namespace octavo::data
