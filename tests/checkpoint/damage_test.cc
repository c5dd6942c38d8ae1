// A bit flipped in every byte, and every length that a file can be cut to: all of it is noticed.

#include <co2/error.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/files.h"
#include "checkpoint/folder.h"
#include "checkpoint/parts.h"
#include "checkpoint/safetensors.h"
#include "support/temporary.h"

namespace co2::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Without waiting for the disk, thousands of times.
void overwrite(const fs::path& path, std::string_view contents) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << contents;
}

class DamageTest : public testing::Test {
 protected:
  DamageTest() {
    save(checkpoints_, 1);
    newest_ = save(checkpoints_, 2);
    manifest_ = verify(newest_);
  }

  /// With this in place of a file of the newest one.
  void expect_noticed(const fs::path& file, const std::string& contents, const std::string& what) {
    overwrite(file, contents);
    EXPECT_THROW(verify(newest_), DataError) << what;
    const auto found = checkpoints_.newest_good();
    ASSERT_TRUE(found.path) << what;
    EXPECT_EQ(found.manifest.step, 1) << what;
    ASSERT_EQ(found.passed_over.size(), 1u) << what;
    EXPECT_NE(found.passed_over[0].second.find(file.filename().string()), std::string::npos)
        << found.passed_over[0].second;
    if (file.extension() != ".safetensors") return;
    const auto& entry = *std::ranges::find(manifest_.files, file.filename().string(), &FileEntry::name);
    EXPECT_THROW(read_part(file, entry), DataError) << what;
    // Who has no checksum to compare may get other numbers, but nothing worse.
    try {
      read_safetensors(file);
    } catch (const DataError&) {
    }
  }

  const test::TestFolder folder_;
  Checkpoints checkpoints_{folder_.path()};
  fs::path newest_;
  Manifest manifest_;
};

TEST_F(DamageTest, AFlippedBitInAnyByteIsNoticed) {
  std::size_t flips = 0;
  for (const auto& entry : fs::directory_iterator(newest_)) {
    const auto good = read_file(entry.path());
    for (std::size_t at = 0; at < good.size(); ++at, ++flips) {
      auto bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
      expect_noticed(entry.path(), bad, entry.path().filename().string() + ", byte " + std::to_string(at));
      if (HasFatalFailure()) return;
    }
    overwrite(entry.path(), good);
  }
  EXPECT_GT(flips, 1000u);
  EXPECT_TRUE(holds_what_was_saved(newest_, verify(newest_)));
}

TEST_F(DamageTest, AFileOfAnyOtherLengthIsNoticed) {
  for (const auto& entry : fs::directory_iterator(newest_)) {
    const auto good = read_file(entry.path());
    for (std::size_t size = 0; size < good.size(); ++size) {
      expect_noticed(entry.path(), good.substr(0, size),
                     entry.path().filename().string() + ", " + std::to_string(size));
      if (HasFatalFailure()) return;
    }
    for (const char* more : {" ", "\n", "x"}) expect_noticed(entry.path(), good + more, "longer");
    expect_noticed(entry.path(), good + std::string(8, '\0'), "longer");
    overwrite(entry.path(), good);
  }
  EXPECT_TRUE(holds_what_was_saved(newest_, verify(newest_)));
}

TEST_F(DamageTest, FilesThatChangedPlacesAreNoticed) {
  fs::rename(newest_ / "worker-00000.safetensors", newest_ / "x");
  fs::rename(newest_ / "worker-00001.safetensors", newest_ / "worker-00000.safetensors");
  fs::rename(newest_ / "x", newest_ / "worker-00001.safetensors");
  EXPECT_THROW(verify(newest_), DataError);
  EXPECT_THROW(verify(newest_, std::vector{1}), DataError);
}

}  // namespace
}  // namespace co2::checkpoint
