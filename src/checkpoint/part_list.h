#pragma once
// A rank's list of what it wrote (part-00002-of-00004.json): its files with sizes and hashes, and
// for every tensor in them which rows of which shape they are. It is written last, when the files
// are durable: a list that is there says that the rank is done. Private to this module.

#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace octavo::checkpoint {

struct ListedPiece {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;  // of the whole tensor
  int64_t first_row = 0, rows = 0;
};

struct ListedFile {
  ManifestFile file;
  std::map<std::string, ListedPiece> pieces;  // of every tensor in it
};

struct PartList {
  int64_t step = 0;
  std::string save_id;
  int rank = 0, ranks = 1;
  std::vector<ListedFile> files;
};

std::string part_name(size_t rank, size_t ranks);
std::string part_file_name(const std::string& group, int rank, int ranks);
// What a rank whose part failed leaves in the list's place: a text that says why.
std::string part_failure_name(size_t rank, size_t ranks);

std::string part_text(const PartList& list);
PartList parse_part(std::string_view text, const std::string& source);

// The list of a rank in a finished checkpoint, checked against the manifest.
PartList read_part(const fs::path& folder, const Manifest& manifest, int rank);

// Adds a list to the manifest that is being made: the entry of the list, and its files.
void add_part(const PartList& list, std::string_view text, Manifest& manifest);
// The index, from all lists. Fails when a tensor is not whole.
Index make_index(const std::vector<PartList>& lists);

}  // namespace octavo::checkpoint
