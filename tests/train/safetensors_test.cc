#include "train/safetensors.h"

#include <co2/error.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <set>

#include "base/files.h"
#include "train/temporary.h"

namespace co2::train {
namespace {

std::string file_with(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}

TEST(Safetensors, RoundTripKeepsBitsShapesDtypesOrderAndMetadata) {
  const TestFolder folder;
  Safetensors written;
  written.metadata["format"] = "pt";
  written.tensors = {{"b", at::randn({3, 5})},
                     {"a", at::randn({2, 3}).t()},  // not contiguous
                     {"scalar", at::scalar_tensor(1.5, at::kDouble)},
                     {"empty", at::empty({0, 7})},
                     {"half", at::randn({3}).to(at::kBFloat16)},
                     {"numbers", at::arange(4, at::kLong)}};
  write_safetensors(folder / "x.safetensors", written);
  const auto read = read_safetensors(folder / "x.safetensors");
  EXPECT_EQ(read.metadata, written.metadata);
  ASSERT_EQ(read.tensors.size(), written.tensors.size());
  for (const auto& [name, tensor] : written.tensors) {
    const auto found = std::ranges::find(read.tensors, name, [](const auto& entry) { return entry.first; });
    ASSERT_NE(found, read.tensors.end()) << name;
    EXPECT_EQ(found->second.scalar_type(), tensor.scalar_type());
    EXPECT_EQ(found->second.sizes(), tensor.sizes());
    EXPECT_TRUE(at::equal(found->second, tensor)) << name;
  }
  const auto file = read_file(folder / "x.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);  // no draft is left behind
}

TEST(Safetensors, RefusesWhatItCantWrite) {
  const TestFolder folder;
  EXPECT_THROW(write_safetensors(folder / "x", {{{"a", at::ones(1)}, {"a", at::ones(1)}}, {}}), DataError);
  EXPECT_THROW(write_safetensors(folder / "x", {{{"__metadata__", at::ones(1)}}, {}}), DataError);
  EXPECT_THROW(write_safetensors(folder / "x", {{{"a", at::ones(1, at::kComplexFloat)}}, {}}), DataError);
  EXPECT_THROW(write_safetensors(folder / "missing" / "x", {{{"a", at::ones(1)}}, {}}), DataError);
  EXPECT_FALSE(std::filesystem::exists(folder / "x"));
}

TEST(Safetensors, EveryWayToBeCorruptIsNoticed) {
  const TestFolder folder;
  const auto path = folder / "x.safetensors";
  const std::string eight(8, 'x');
  const auto tensor = [](const std::string& fields) { return "{\"a\":{" + fields + "}}"; };
  const std::string good = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";

  write_atomically(path, file_with(tensor(good), eight));
  EXPECT_EQ(read_safetensors(path).tensors.size(), 1u);

  const std::vector<std::pair<const char*, std::string>> bad = {
      {"too short", "1234"},
      {"header longer than the file", std::string("\xff\0\0\0\0\0\0\0{}", 10)},
      {"header absurdly long", std::string(8, '\xff') + "{}"},
      {"not JSON", file_with("{\"a\":", eight)},
      {"not an object", file_with("[1]", "")},
      {"entry not an object", file_with("{\"a\":1}", eight)},
      {"name twice", file_with("{\"a\":{" + good + "},\"a\":{" + good + "}}", eight)},
      {"no dtype", file_with(tensor(R"("shape":[2],"data_offsets":[0,8])"), eight)},
      {"unknown dtype", file_with(tensor(R"("dtype":"F31","shape":[2],"data_offsets":[0,8])"), eight)},
      {"dtype not text", file_with(tensor(R"("dtype":4,"shape":[2],"data_offsets":[0,8])"), eight)},
      {"no shape", file_with(tensor(R"("dtype":"F32","data_offsets":[0,8])"), eight)},
      {"negative shape", file_with(tensor(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), eight)},
      {"fractional shape", file_with(tensor(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), eight)},
      {"overflowing shape",
       file_with(tensor(R"("dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8])"), eight)},
      {"huge shape of nothing",
       file_with(tensor(R"("dtype":"F32","shape":[0,18446744073709551615],"data_offsets":[0,0])"), "")},
      {"no offsets", file_with(tensor(R"("dtype":"F32","shape":[2])"), eight)},
      {"three offsets", file_with(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])"), eight)},
      {"reversed offsets", file_with(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), eight)},
      {"beyond the end", file_with(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[4,12])"), eight)},
      {"size does not match the shape", file_with(tensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), eight)},
      {"gap at the beginning", file_with(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), eight)},
      {"bytes left over", file_with(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), eight)},
      {"overlap", file_with("{\"a\":{" + good + R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", eight)},
      {"metadata not text", file_with("{\"__metadata__\":{\"a\":1},\"a\":{" + good + "}}", eight)},
      {"metadata not an object", file_with("{\"__metadata__\":[],\"a\":{" + good + "}}", eight)},
  };
  for (const auto& [what, contents] : bad) {
    write_atomically(path, contents);
    const auto message = message_of<DataError>([&] { read_safetensors(path); });
    EXPECT_NE(message.find(path.string()), std::string::npos) << what << ": " << message;
  }
  EXPECT_THROW(read_safetensors(folder / "nothing"), DataError);
}

}  // namespace
}  // namespace co2::train
