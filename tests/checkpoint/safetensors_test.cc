#include "checkpoint/safetensors.h"

#include <co2/error.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>

#include "base/files.h"
#include "checkpoint/checksum.h"
#include "checkpoint/parts.h"
#include "support/temporary.h"

namespace co2::checkpoint {
namespace {

std::string file_with(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}

std::string problem_with(const std::filesystem::path& path, const std::string& contents) {
  write_atomically(path, contents);
  return test::message_of<DataError>([&] { read_safetensors(path); });
}

TEST(Safetensors, RoundTripKeepsBitsShapesDtypesOrderAndMetadata) {
  const test::TestFolder folder;
  Safetensors written;
  written.metadata = {{"format", "pt"}, {"", ""}, {"ü \"quoted\"", "\\ \n \x01"}};
  written.tensors = {{"b", at::randn({3, 5})},
                     {"a", at::randn({2, 3}).t()},  // not contiguous
                     {"every other", at::arange(10, at::kLong).slice(0, 1, 10, 2)},
                     {"expanded", at::ones({1}).expand({4})},
                     {"scalar", at::scalar_tensor(1.5, at::kDouble)},
                     {"empty", at::empty({0, 7})},
                     {"also empty", at::empty({3, 0}, at::kByte)},
                     {"odd size", at::ones({3}, at::kByte)},
                     {"half", at::randn({3}).to(at::kBFloat16)},
                     {"negated view", at::_neg_view(at::randn({4}))},
                     {"", at::arange(4, at::kLong)},
                     {"Gewicht \"ü\" \\ / \n \x7f 重み 🙂", at::arange(4, at::kLong)},
                     {std::string("zero\0byte", 9), at::ones({1, 1, 1, 1, 1, 1, 1, 1, 1})},
                     {"gradient", at::ones({2}).requires_grad_()}};
  const auto path = folder / "x.safetensors";
  const auto entry = write_safetensors(path, written);
  const SafetensorsFile opened(path);
  for (const auto& read : {read_safetensors(path), read_safetensors(path, entry)}) {
    EXPECT_EQ(read.metadata, written.metadata);
    ASSERT_EQ(read.tensors.size(), written.tensors.size());
    for (std::size_t i = 0; i < written.tensors.size(); ++i) {
      const auto& [name, tensor] = written.tensors[i];
      EXPECT_EQ(read.tensors[i].first, name);
      EXPECT_TRUE(same_tensor(read.tensors[i].second, tensor.detach().resolve_neg())) << name;
      EXPECT_TRUE(same_tensor(opened.read(name), tensor.detach().resolve_neg())) << name;
    }
  }
  EXPECT_EQ(entry, (FileEntry{"x.safetensors", static_cast<std::int64_t>(read_file(path).size()),
                              checksum_of(read_file(path))}));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);  // no draft is left behind
}

TEST(Safetensors, EveryDtypeHasItsPlaceAtAMultipleOfItsSize) {
  const test::TestFolder folder;
  Safetensors written;
  for (const auto type :
       {at::kBool, at::kByte, at::kChar, at::kShort, at::kUInt16, at::kInt, at::kUInt32, at::kLong, at::kUInt64,
        at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
    written.tensors.emplace_back(c10::toString(type), at::arange(3).to(at::kFloat).to(type));
  }
  written.tensors[0].second = at::tensor({1, 0, 1}).to(at::kBool);
  ASSERT_EQ(written.tensors.size(), dtypes().size());
  write_safetensors(folder / "x", written);
  const auto read = read_safetensors(folder / "x");
  const SafetensorsFile opened(folder / "x");
  for (std::size_t i = 0; i < written.tensors.size(); ++i) {
    const auto& tensor = written.tensors[i].second;
    EXPECT_TRUE(same_tensor(read.tensors[i].second, tensor)) << written.tensors[i].first;
    const auto& info = opened.header().tensors[i];
    EXPECT_EQ(info.begin % tensor.element_size(), 0u) << info.name;
  }
  const auto file = read_file(folder / "x");
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  EXPECT_EQ(length % 8, 0u);
}

TEST(Safetensors, OfNothing) {
  const test::TestFolder folder;
  const auto entry = write_safetensors(folder / "x", {});
  EXPECT_TRUE(read_safetensors(folder / "x", entry).tensors.empty());
  EXPECT_THROW(SafetensorsFile(folder / "x").read("a"), DataError);
}

/// As others may write them: no padding, tensors in any order, one of them not at a multiple of its size.
TEST(Safetensors, ReadsFilesOfOtherShapes) {
  const test::TestFolder folder;
  const std::string header =
      R"({"b":{"data_offsets":[1,5],"dtype":"F32","shape":[]},"a":{"dtype":"I8","shape":[1,1],"data_offsets":[0,1]}})";
  EXPECT_EQ(problem_with(folder / "x", file_with(header + " \n\t", std::string("\x07\0\0\x80\x3f", 5))), "");
  const auto read = read_safetensors(folder / "x");
  EXPECT_EQ(read.tensors[0].first, "b");
  EXPECT_EQ(read.tensors[0].second.item<float>(), 1);
  EXPECT_EQ(read.tensors[1].second.item<int>(), 7);
}

TEST(Safetensors, RefusesWhatItCantWrite) {
  const test::TestFolder folder;
  EXPECT_THROW(write_safetensors(folder / "x", {{{"a", at::ones(1)}, {"a", at::ones(1)}}, {}}), DataError);
  EXPECT_THROW(write_safetensors(folder / "x", {{{"__metadata__", at::ones(1)}}, {}}), DataError);
  EXPECT_THROW(write_safetensors(folder / "x", {{{"a", at::ones(1, at::kComplexFloat)}}, {}}), DataError);
  EXPECT_THROW(write_safetensors(folder / "x", {{{"a", at::ones(1).to_sparse()}}, {}}), DataError);
  EXPECT_THROW(write_safetensors(folder / "x", {{{"a", at::Tensor()}}, {}}), DataError);
  EXPECT_THROW(write_safetensors(folder / "missing" / "x", {{{"a", at::ones(1)}}, {}}), DataError);
  EXPECT_FALSE(std::filesystem::exists(folder / "x"));
}

TEST(Safetensors, EveryWayToBeCorruptIsNoticed) {
  const test::TestFolder folder;
  const auto path = folder / "x.safetensors";
  const std::string eight(8, 'x');
  const auto tensor = [](const std::string& fields) { return "{\"a\":{" + fields + "}}"; };
  const std::string good = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";

  ASSERT_EQ(problem_with(path, file_with(tensor(good), eight)), "");

  std::string many_ones;
  for (int i = 0; i < 64; ++i) many_ones += ",1";
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
      {"metadata twice", file_with(R"({"__metadata__":{},"__metadata__":{}})", "")},
      {"metadata with a key twice", file_with(R"({"__metadata__":{"a":"1","a":"1"}})", "")},
      {"field twice", file_with(tensor(good + R"(,"dtype":"F32")"), eight)},
      {"offsets that don't fit", file_with(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,1e400])"), eight)},
      {"huge offsets",
       file_with(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551616])"), eight)},
      {"largest offsets",
       file_with(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[18446744073709551608,18446744073709551615])"),
                 eight)},
      {"overflow by the size of an element",
       file_with(tensor(R"("dtype":"F64","shape":[2305843009213693953],"data_offsets":[0,8])"), eight)},
      {"empty, and overflowing beside it",
       file_with(tensor(R"("dtype":"F32","shape":[4294967296,0,4294967296],"data_offsets":[0,0])"), "")},
      {"many dimensions",
       file_with(tensor(R"("dtype":"F32","shape":[2)" + many_ones + R"(],"data_offsets":[0,8])"), eight)},
      {"an empty one inside another",
       file_with("{\"a\":{" + good + R"(},"b":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}})", eight)},
      {"the same place twice", file_with("{\"a\":{" + good + "},\"b\":{" + good + "}}", eight)},
      {"shape too deep", file_with(tensor(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])"), eight)},
      {"deep", file_with(std::string(1'000'000, '['), "")},
      {"deep inside", file_with("{\"a\":" + std::string(1'000'000, '['), "")},
      {"zero byte", file_with("{}" + std::string(6, '\0'), "")},
      {"not UTF-8", file_with("{\"\xff\":{" + good + "}}", eight)},
      {"half a surrogate", file_with("{\"\\ud800\":{" + good + "}}", eight)},
      {"byte order mark", file_with("\xef\xbb\xbf{}", "")},
      {"two objects", file_with("{}{}", "")},
      {"no text", file_with("", "")},
      {"spaces", file_with("    ", "")},
      {"length without a header", std::string(7, '\0')},
      {"no byte", ""},
      {"neither true nor false", file_with(tensor(R"("dtype":"BOOL","shape":[8],"data_offsets":[0,8])"), eight)},
      {"metadata not an object", file_with("{\"__metadata__\":[],\"a\":{" + good + "}}", eight)},
  };
  for (const auto& [what, contents] : bad) {
    const auto message = problem_with(path, contents);
    EXPECT_NE(message.find(path.string()), std::string::npos) << what << ": " << message;
  }
  EXPECT_THROW(read_safetensors(folder / "nothing"), DataError);
  EXPECT_THROW(read_safetensors(folder.path()), DataError);
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(read_safetensors(folder / "pipe"), DataError);
}

}  // namespace
}  // namespace co2::checkpoint
