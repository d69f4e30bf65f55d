// manifest.json and a rank's list. They carry the hash of their own text, which an attacker can
// make as well as we: it is put right here, so that what is behind it is reached.
#include "checkpoint/manifest.h"
#include "checkpoint/part_list.h"
#include "checkpoint/pieces.h"
#include "fuzz/harness.h"

namespace {

using namespace octavo;

// As a checkpoint in a folder, with one file of those that it may name.
void read_folder(std::string_view text) {
  static const fuzz::ScratchFolder folder;
  folder.write("manifest.json", text);
  folder.write("model.safetensors", std::string_view("\2\0\0\0\0\0\0\0{}", 10));
  fuzz::refusal_of([&] {
    const checkpoint::Manifest manifest = checkpoint::read_manifest(folder.path());
    checkpoint::size_problems(folder.path(), manifest);
    for (const auto& file : manifest.files) checkpoint::file_problems(folder.path(), file, nullptr);
  });
}

// As the list of one rank of a checkpoint.
void read_list(std::string_view text, const checkpoint::PartList& list) {
  static const fuzz::ScratchFolder folder;
  if (list.ranks > 4) return;
  checkpoint::Manifest manifest;
  manifest.save_id = list.save_id;
  for (int rank = 0; rank < list.ranks; ++rank) checkpoint::add_part(list, text, manifest);
  for (auto& part : manifest.parts) part.name = "part.json";
  folder.write("part.json", text);
  try {
    checkpoint::make_index({list});
  } catch (const Error&) {  // our own ranks give it lists, so its errors are not those of a file
  }
  fuzz::refusal_of([&] { checkpoint::read_part(folder.path(), manifest, list.rank); });
}

std::string sealed(std::string_view body) {
  const std::string rest = "{\n" + std::string(body);
  return "{\n  \"manifest_hash\": \"" +
         hash_bytes(std::as_bytes(std::span(rest.data(), rest.size()))) + "\",\n" +
         std::string(body);
}

}  // namespace

OCTAVO_FUZZ_TARGET(input) {
  const bool keep_hash = input.starts_with("{\n  \"manifest_hash\"");
  const std::string text =
      keep_hash ? std::string(input) : sealed(input.starts_with("{\n") ? input.substr(2) : input);
  if (input.size() % 8 == 1) return read_folder(text);
  // Few inputs are worth reading as both.
  const bool is_list = input.find("\"ranks\"") != input.npos, both = input.size() % 8 == 0;
  if (!is_list || both)
    fuzz::refusal_of([&] {
      const checkpoint::Manifest manifest = checkpoint::parse_manifest(text, "manifest.json");
      for (const auto& file : manifest.files)
        fuzz::check(file.name.find('/') == std::string::npos && !file.name.starts_with("."),
                    "a file name that leaves the folder");
      for (const auto& part : manifest.parts)
        fuzz::check(part.name.find('/') == std::string::npos,
                    "a list's name that leaves the folder");
      for (const auto& [group, tensors] : manifest.index)
        for (const auto& [name, place] : tensors) {
          const int64_t rows = checkpoint::row_count(place.shape);
          int64_t placed = 0;
          if (manifest.parts.size() > 1000) continue;
          for (const auto& piece : checkpoint::pieces_with(place, 0, rows)) {
            placed += piece.rows;
            fuzz::check(piece.rank >= 0 && static_cast<size_t>(piece.rank) < manifest.parts.size(),
                        "a piece of a rank that is not there");
          }
          fuzz::check(placed == rows, "pieces that are not the whole");
        }
      const std::string again = checkpoint::manifest_text(manifest);
      checkpoint::parse_manifest(again, "what we wrote");
    });
  if (is_list || both)
    fuzz::refusal_of([&] {
      const checkpoint::PartList list = checkpoint::parse_part(text, "part.json");
      if (input.size() % 4 == 0) read_list(text, list);
      fuzz::check(
          checkpoint::parse_part(checkpoint::part_text(list), "what we wrote").files.size() ==
              list.files.size(),
          "a list that reads back otherwise");
    });
}
