#include "checkpoint/part.h"

#include <co2/error.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/files.h"
#include "checkpoint/checksum.h"
#include "checkpoint/names.h"
#include "checkpoint/parts.h"
#include "support/temporary.h"

namespace co2::checkpoint {
namespace {

TEST(Part, RoundTripKeepsEverything) {
  const test::TestFolder folder;
  using Limits = std::numeric_limits<double>;
  Part part = part_of(12, 3);
  part.tensors.emplace_back("Gewicht \"ü\" \\ \n \x01 重み", at::randn({4, 4}).t());
  part.tensors.emplace_back("", at::empty({0}));
  part.integers[""] = Limits::max_exponent;
  part.integers["least"] = std::numeric_limits<std::int64_t>::min();
  part.numbers = {{"nan", Limits::quiet_NaN()},
                  {"-nan", -Limits::quiet_NaN()},
                  {"inf", Limits::infinity()},
                  {"-inf", -Limits::infinity()},
                  {"-0", -0.0},
                  {"tiny", Limits::denorm_min()},
                  {"third", 1.0 / 3}};
  part.texts["int64:x"] = "";
  part.texts["odd"] = std::string("\0\t{}[]\"", 7);
  const auto entry = write_part(folder.path(), 3, part);
  EXPECT_EQ(entry.name, "worker-00003.safetensors");
  const auto file = read_file(folder / entry.name);
  EXPECT_EQ(entry.bytes, static_cast<std::int64_t>(file.size()));
  EXPECT_EQ(entry.checksum, checksum_of(file));
  EXPECT_TRUE(same_part(read_part(folder / entry.name, entry), part));
}

TEST(Part, OfNothing) {
  const test::TestFolder folder;
  const auto entry = write_part(folder.path(), 0, {});
  EXPECT_TRUE(same_part(read_part(folder / entry.name, entry), {}));
}

TEST(Part, OnlyTextThatIsUtf8CanBeWritten) {
  const test::TestFolder folder;
  Part part;
  part.texts["a"] = "\xff";
  EXPECT_THROW(write_part(folder.path(), 0, part), DataError);
  part.texts = {{"\xc3", "a"}};
  EXPECT_THROW(write_part(folder.path(), 0, part), DataError);
  part.texts.clear();
  part.tensors.emplace_back("\xc3\x28", at::ones(1));
  const auto message = test::message_of<DataError>([&] { write_part(folder.path(), 0, part); });
  EXPECT_NE(message.find("UTF-8"), std::string::npos) << message;
  EXPECT_THROW(write_part(folder.path(), -1, {}), DataError);
  EXPECT_THROW(write_part(folder.path(), kMostWorkers, {}), DataError);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Part, SaysWhatIsWrongWithAFile) {
  const test::TestFolder folder;
  const auto entry = write_part(folder.path(), 0, part_of(1, 0));
  const auto path = folder / entry.name;
  const auto message = [&] { return test::message_of<DataError>([&] { read_part(path, entry); }); };
  const auto good = read_file(path);
  write_atomically(path, good.substr(0, 100));
  EXPECT_NE(message().find("truncated: it has 100 of " + std::to_string(good.size())), std::string::npos) << message();
  write_atomically(path, good + "x");
  EXPECT_NE(message().find("bytes instead of"), std::string::npos) << message();
  auto bad = good;
  bad.back() ^= 1;
  write_atomically(path, bad);
  EXPECT_NE(message().find("checksum"), std::string::npos) << message();
  std::filesystem::remove(path);
  EXPECT_NE(message().find("is missing"), std::string::npos) << message();
}

/// Whoever makes a file with a right checksum can still write nonsense.
TEST(Part, MetadataOfAnotherKindIsRefused) {
  const test::TestFolder folder;
  for (const auto* metadata : {R"("x":"1")", R"("int64:x":"1.0")", R"("float64:x":"1.0")", R"("float64:x":"")"}) {
    auto header = std::string("{\"__metadata__\":{") + metadata + "}}";
    std::string file(8, '\0');
    file[0] = static_cast<char>(header.size());
    file += header;
    write_atomically(folder / "x", file);
    EXPECT_THROW(read_part(folder / "x", {"x", static_cast<std::int64_t>(file.size()), checksum_of(file)}), DataError);
  }
}

/// The reference values of xxHash's own description, so that `xxh128sum` agrees with us.
TEST(Checksum, IsXxh3With128Bits) {
  EXPECT_EQ(checksum_of(""), "99aa06d3014798d86001c324468d497f");
  std::string bytes(1 << 20, 'x');
  Checksum pieces;
  for (std::size_t at = 0; at < bytes.size(); at += 1000) pieces.add(std::string_view(bytes).substr(at, 1000));
  EXPECT_EQ(pieces.digits(), checksum_of(bytes));
  EXPECT_TRUE(is_checksum(pieces.digits()));
  EXPECT_FALSE(is_checksum("99AA06d3014798d86001c324468d497f"));
  EXPECT_FALSE(is_checksum("99"));
}

}  // namespace
}  // namespace co2::checkpoint
