#include "checkpoint/safetensors.h"

#include "checkpoint/test_util.h"

namespace octavo::checkpoint {
namespace {

const at::ScalarType kAllDtypes[] = {
    at::kDouble, at::kFloat,         at::kHalf,        at::kBFloat16,      at::kLong,   at::kInt,
    at::kShort,  at::kChar,          at::kUInt64,      at::kUInt32,        at::kUInt16, at::kByte,
    at::kBool,   at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kFloat8_e8m0fnu};

// Every byte pattern that the dtype allows, NaN payloads included: bits must survive, not values.
at::Tensor patterned(at::ScalarType dtype, at::IntArrayRef shape, int salt) {
  at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(dtype));
  auto* bytes = static_cast<unsigned char*>(tensor.data_ptr());
  for (size_t i = 0; i < tensor.nbytes(); ++i) {
    auto value = static_cast<unsigned char>(i * 37 + i / 251 + salt);
    bytes[i] = dtype == at::kBool ? value & 1 : value;
  }
  return tensor;
}

TEST(Safetensors, EveryDtypeAndShapeRoundTripsBitForBit) {
  Scratch folder;
  NamedTensors tensors;
  for (at::ScalarType dtype : kAllDtypes) {
    std::string name = c10::toString(dtype);
    tensors.emplace_back(name + ".matrix", patterned(dtype, {7, 13}, 1));
    tensors.emplace_back(name + ".aligned", patterned(dtype, {16, 64}, 2));
    tensors.emplace_back(name + ".scalar", patterned(dtype, {}, 3));
    tensors.emplace_back(name + ".none", patterned(dtype, {3, 0, 5}, 4));
    tensors.emplace_back(name + ".one", patterned(dtype, {1, 1, 1, 1}, 5));
  }
  fs::path path = folder / "all.safetensors";
  std::string hash = write_safetensors(path, tensors, {{"format", "pt"}, {"näme", "wert \"\n"}});
  EXPECT_EQ(hash, hash_file(path));

  SafetensorsReader reader(path);
  EXPECT_EQ(reader.tensors().size(), tensors.size());
  EXPECT_EQ(reader.metadata().at("näme"), "wert \"\n");
  for (const auto& item : tensors)
    EXPECT_TRUE(same_bits(reader.tensor(item.first), item.second)) << item.first;
}

TEST(Safetensors, TensorsAreAlignedWhereTheFormatAllows) {
  Scratch folder;
  NamedTensors tensors;
  int salt = 0;
  for (at::ScalarType dtype : kAllDtypes) {
    std::string name = c10::toString(dtype);
    tensors.emplace_back("a." + name, patterned(dtype, {3}, ++salt));
    tensors.emplace_back("b." + name, patterned(dtype, {128}, ++salt));
  }
  write_safetensors(folder / "x.safetensors", tensors, {});
  SafetensorsReader reader(folder / "x.safetensors");
  auto* base = reader.bytes().data();
  for (const auto& item : tensors) {
    auto bytes = reader.tensor_bytes(item.first);
    auto offset = static_cast<size_t>(bytes.data() - base);
    size_t wanted = bytes.size() % 64 == 0 ? 64 : item.second.element_size();
    EXPECT_EQ(offset % wanted, 0) << item.first;
    // So every one is a view of the map, none a copy.
    EXPECT_EQ(reader.tensor(item.first).const_data_ptr(), bytes.data()) << item.first;
  }
}

TEST(Safetensors, WriterReportsHashOfEachTensor) {
  Scratch folder;
  at::Tensor weight = patterned(at::kBFloat16, {5, 3}, 9);
  WrittenFile written = write_safetensors_hashed(folder / "x.safetensors", {{"w", weight}}, {});
  EXPECT_EQ(written.size, fs::file_size(folder / "x.safetensors"));
  std::span<const std::byte> bytes(static_cast<const std::byte*>(weight.data_ptr()), 30);
  EXPECT_EQ(written.tensor_hashes.at("w"), hash_bytes(bytes));
}

TEST(Safetensors, StridedTensorsAreWrittenInTheirLogicalOrder) {
  Scratch folder;
  at::Tensor matrix = at::arange(12, at::kFloat).view({3, 4});
  write_safetensors(folder / "x.safetensors",
                    {{"t", matrix.t()}, {"e", at::ones({1}).expand({6})}, {"s", matrix[1]}}, {});
  SafetensorsReader reader(folder / "x.safetensors");
  EXPECT_TRUE(same_bits(reader.tensor("t"), matrix.t()));
  EXPECT_TRUE(same_bits(reader.tensor("e"), at::ones({6})));
  EXPECT_TRUE(same_bits(reader.tensor("s"), matrix[1]));
}

TEST(Safetensors, ViewsOutliveReaderAndFile) {
  Scratch folder;
  at::Tensor big = patterned(at::kFloat, {1000, 100}, 1), view;
  write_safetensors(folder / "x.safetensors", {{"big", big}}, {});
  {
    SafetensorsReader reader(folder / "x.safetensors");
    view = reader.tensor("big");
  }
  fs::remove(folder / "x.safetensors");
  EXPECT_TRUE(same_bits(view, big));
}

TEST(Safetensors, NoTensorsAtAll) {
  Scratch folder;
  write_safetensors(folder / "x.safetensors", {}, {});
  EXPECT_TRUE(SafetensorsReader(folder / "x.safetensors").tensors().empty());
}

TEST(Safetensors, MisalignedTensorsOfOtherWritersAreCopied) {
  Scratch folder;
  std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                       R"("b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
  std::string file = raw_safetensors(header, 1);
  float values[2] = {1.5f, -2.25f};
  file.append(reinterpret_cast<const char*>(values), sizeof values);
  write_text(folder / "x.safetensors", file);
  at::Tensor b = SafetensorsReader(folder / "x.safetensors").tensor("b");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.const_data_ptr()) % 4, 0);
  EXPECT_EQ(b[0].item<float>(), 1.5f);
  EXPECT_EQ(b[1].item<float>(), -2.25f);
}

TEST(Safetensors, WriterRefusesWhatCannotBeReadBack) {
  Scratch folder;
  fs::path path = folder / "x.safetensors";
  at::Tensor one = at::ones({1});
  auto refused = [&](const NamedTensors& tensors, const char* wanted) {
    std::string message = error_of(ExitCode::kUsage, [&] { write_safetensors(path, tensors, {}); });
    EXPECT_NE(message.find(wanted), std::string::npos) << message;
    EXPECT_FALSE(fs::exists(path));
  };
  refused({{"a", one}, {"a", one}}, "two tensors");
  refused({{"", one}}, "empty");
  refused({{"__metadata__", one}}, "reserves");
  refused({{"a\nb", one}}, "control character");
  refused({{std::string(2000, 'a'), one}}, "bytes");
  refused({{"\xff\xfe", one}}, "UTF-8");
  refused({{"a", at::Tensor()}}, "dense tensor");
  refused({{"a", at::ones({1}, at::kComplexFloat)}}, "no dtype");
}

TEST(Safetensors, MissingTensorIsNamed) {
  Scratch folder;
  write_safetensors(folder / "x.safetensors", {{"a", at::ones({1})}}, {});
  SafetensorsReader reader(folder / "x.safetensors");
  EXPECT_NE(error_of(ExitCode::kDamaged, [&] { reader.tensor("b"); }).find("\"b\""),
            std::string::npos);
}

}  // namespace
}  // namespace octavo::checkpoint
