#include "checkpoint/reader.h"

#include <ATen/ATen.h>

#include <cstring>

#include "base/error.h"

namespace octavo::checkpoint {
namespace {

std::vector<int64_t> shape_of_rows(const std::vector<int64_t>& full, int64_t rows) {
  std::vector<int64_t> shape = full;
  if (!shape.empty()) shape[0] = rows;
  return shape;
}

}  // namespace

Reader::Reader(fs::path checkpoint, Manifest manifest)
    : folder_(std::move(checkpoint)), manifest_(std::move(manifest)) {}

void Reader::fail_damaged(const std::string& problem) const {
  fail(ExitCode::kDamaged, "checkpoint", folder_.string(), " is damaged: ", problem,
       "; take another one (`octavo checkpoints list`)");
}

std::map<std::string, Reader::OpenFile>& Reader::files_of(int rank) {
  const auto found = files_.find(rank);
  if (found != files_.end()) return found->second;
  std::map<std::string, OpenFile> files;
  if (manifest_.in_parts())
    for (ListedFile& listed : read_part(folder_, manifest_, rank).files)
      files[listed.file.group] = {listed.file, std::move(listed.pieces), {}, {}};
  else
    for (const ManifestFile& file : manifest_.files) files[file.group] = {file, {}, {}, {}};
  return files_[rank] = std::move(files);
}

SafetensorsReader& Reader::opened(OpenFile& file) {
  if (file.reader) return *file.reader;
  const ManifestFile& entry = file.entry;
  if (entry.header_hash.empty()) {  // only the hash of all of it tells whether the header is whole
    const auto problems = file_problems(folder_, entry, &file.reader);
    if (!problems.empty()) fail_damaged(problems.front());
    for (const auto& item : entry.tensor_hashes) file.checked.insert(item.first);
    return *file.reader;
  }
  if (const std::string problem = size_problem(folder_, entry.name, entry.size); !problem.empty())
    fail_damaged(problem);
  try {
    file.reader.emplace(join_inside(folder_, entry.name));
  } catch (const Error& error) {
    if (error.code() != ExitCode::kDamaged) throw;
    fail_damaged(entry.name + ": its header is damaged: " + error.what());
  }
  if (hash_bytes(file.reader->header_bytes()) != entry.header_hash)
    fail_damaged(entry.name + ": its header is damaged");
  return *file.reader;
}

at::Tensor Reader::checked_tensor(OpenFile& file, const std::string& name) {
  SafetensorsReader& reader = opened(file);
  const auto hash = file.entry.tensor_hashes.find(name);
  if (hash == file.entry.tensor_hashes.end() || !reader.tensors().contains(name))
    fail_damaged(file.entry.name + ": tensor " + quote_name(name) + " is missing");
  if (!file.checked.contains(name)) {
    if (hash_bytes(reader.tensor_bytes(name)) != hash->second)
      fail_damaged(file.entry.name + ": tensor " + quote_name(name) + " is damaged");
    file.checked.insert(name);
  }
  return reader.tensor(name);
}

const std::map<std::string, TensorLocation>& Reader::outlines(const std::string& group) {
  const auto known = manifest_.index.find(group);
  if (known != manifest_.index.end() || manifest_.in_parts()) return manifest_.index[group];
  auto& places = manifest_.index[group];
  auto& files = files_of(0);
  const auto file = files.find(group);
  if (file == files.end()) return places;
  for (const auto& item : opened(file->second).tensors())
    places[item.first] = {item.second.dtype, item.second.shape, 0, 0, {}};
  return places;
}

at::Tensor Reader::piece(const std::string& group, const std::string& name,
                         const TensorLocation& place, const PlacedPiece& wanted) {
  auto& files = files_of(wanted.rank);
  const auto file = files.find(group);
  if (file == files.end())
    fail_damaged(str("rank ", wanted.rank, " has no file of group ", group, " with tensor ",
                     quote_name(name)));
  at::Tensor found = checked_tensor(file->second, name);
  bool fits = found.scalar_type() == place.dtype &&
              found.sizes() == shape_of_rows(place.shape, wanted.rows);
  if (manifest_.in_parts()) {
    const ListedPiece& listed = file->second.pieces.at(name);
    fits = fits && listed.first_row == wanted.first_row && listed.shape == place.shape;
  }
  if (!fits)
    fail_damaged(file->second.entry.name + ": tensor " + quote_name(name) +
                 " is not the piece that the manifest says");
  return found;
}

at::Tensor Reader::rows(const std::string& group, const std::string& name, int64_t first,
                        int64_t count) {
  const auto& all = outlines(group);
  const auto found = all.find(name);
  if (found == all.end()) return {};
  const TensorLocation& place = found->second;
  const int64_t total = row_count(place.shape);
  if (first < 0 || count < 0 || first > total || count > total - first)
    fail(ExitCode::kUsage, "checkpoint", "tensor ", quote_name(name), ": wanted rows ", first,
         " to ", first + count, ", the checkpoint has ", total);
  const auto pieces = pieces_with(place, first, count);
  if (pieces.size() == 1 && !place.shape.empty())
    return piece(group, name, place, pieces[0])
        .narrow(0, first - pieces[0].first_row, count);  // a view of the file
  if (pieces.size() == 1) return piece(group, name, place, pieces[0]);
  at::Tensor made =
      at::empty(shape_of_rows(place.shape, count), at::TensorOptions().dtype(place.dtype));
  const size_t row = total == 0 || count == 0 ? 0 : made.nbytes() / static_cast<size_t>(count);
  auto* out = static_cast<std::byte*>(made.mutable_data_ptr());
  for (const PlacedPiece& p : pieces) {
    const int64_t begin = std::max(first, p.first_row);
    const int64_t end = std::min(first + count, p.first_row + p.rows);
    const at::Tensor part = piece(group, name, place, p);
    std::memcpy(out + static_cast<size_t>(begin - first) * row,
                static_cast<const std::byte*>(part.const_data_ptr()) +
                    static_cast<size_t>(begin - p.first_row) * row,
                static_cast<size_t>(end - begin) * row);
  }
  return made;
}

}  // namespace octavo::checkpoint
