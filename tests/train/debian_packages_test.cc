// Corpora from Debian packages, with the real apt-get, dpkg-deb and gzip on tiny packages of our own: no network.
#include <co2/error.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/child_process.h"
#include "base/files.h"
#include "support/temporary.h"
#include "train/data/corpus.h"
#include "train/data/subprocess.h"
#include "train/sha256.h"

namespace co2::train {
namespace {

namespace fs = std::filesystem;

class DebianPackages : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* program : {"dpkg-deb", "gzip"}) {
      if (!have_program(program)) GTEST_SKIP() << "no " << program << " here";
    }
    context_.say = [this](const std::string& line) { said_.push_back(line); };
  }

  void run(std::vector<std::string> arguments, const fs::path& input = {}, const fs::path& output = "/dev/null") const {
    run_command({.arguments = std::move(arguments),
                 .folder = folder_.path(),
                 .input = input,
                 .output = output,
                 .log = folder_ / "log",
                 .timeout = std::chrono::seconds(60)});
  }

  /// Contents by path; those of names that end in "z" are compressed. Returns the lines that describe the package.
  std::string make_package(const std::string& name, const std::string& version,
                           const std::map<std::string, std::string>& files, const fs::path& archive) const {
    const auto tree = folder_ / "tree";
    fs::remove_all(tree);
    fs::create_directories(tree / "DEBIAN");
    fs::permissions(tree / "DEBIAN", fs::perms(0755));  // dpkg-deb insists, whatever the user's umask
    const auto control = fmt::format(
        "Package: {}\nVersion: {}\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\nDescription: a test\n",
        name, version);
    write_atomically(tree / "DEBIAN/control", control);
    for (const auto& [path, text] : files) {
      fs::create_directories((tree / path).parent_path());
      write_atomically(tree / path, text);
      if (!path.ends_with('z')) continue;
      run({"gzip", "-c"}, tree / path, folder_ / "compressed");
      fs::rename(folder_ / "compressed", tree / path);
    }
    fs::create_directories(archive.parent_path());
    run({"dpkg-deb", "--root-owner-group", "--build", tree.string(), archive.string()});
    return control;
  }

  /// A repository of one package in a folder, and a configuration with which apt-get knows nothing else.
  fs::path make_repository(const std::string& control, const fs::path& archive) const {
    write_atomically(archive.parent_path() / "Packages",
                     fmt::format("{}Filename: ./{}\nSize: {}\nSHA256: {}\n", control, archive.filename().string(),
                                 fs::file_size(archive), sha256(read_file(archive))));
    for (const char* name : {"state/lists/partial", "cache/archives/partial", "etc"}) {
      fs::create_directories(folder_ / name);
    }
    write_atomically(folder_ / "sources.list",
                     fmt::format("deb [trusted=yes] file:{} ./\n", archive.parent_path().string()));
    write_atomically(folder_ / "apt.conf",
                     fmt::format("Dir \"{0}\";\nDir::State \"state\";\nDir::State::status \"/dev/null\";\n"
                                 "Dir::Cache \"cache\";\nDir::Etc \"etc\";\n"
                                 "Dir::Etc::sourcelist \"{0}/sources.list\";\nAPT::Sandbox::User \"\";\n",
                                 folder_.path().string()));
    return folder_ / "apt.conf";
  }

  bool was_said(const std::string& part) const {
    return std::ranges::any_of(said_, [&](const auto& line) { return line.find(part) != std::string::npos; });
  }

  const test::TestFolder folder_;
  const test::ScopedVariable data_{"CO2_DATA", (folder_ / "data").string()};
  DataContext context_;
  std::vector<std::string> said_;
};

TEST_F(DebianPackages, AreFetchedUnpackedAndKept) {
  if (!have_program("apt-get")) GTEST_SKIP() << "no apt-get here";
  const auto archive = folder_ / "repository" / "anarchism_1.0_all.deb";
  const std::string texts = "usr/share/doc/anarchism/markdown/";
  const auto control = make_package("anarchism", "1.0",
                                    {{texts + "2.md", "second,\r\nwithout an end"},
                                     {texts + "1.md.gz", "first\n"},
                                     {texts + "3.html", "not this"},
                                     {"usr/share/doc/anarchism/4.md", "nor this"}},
                                    archive);
  const test::ScopedVariable configuration("APT_CONFIG", make_repository(control, archive).string());
  run({"apt-get", "-q", "update"});
  const auto corpus = load_corpus("anarchism", context_);
  EXPECT_EQ(corpus.text, "first\nsecond,\nwithout an end\n");
  EXPECT_TRUE(was_said("fetching the corpus anarchism"));
  EXPECT_TRUE(was_said("anarchism_1.0_all.deb is another version"));

  said_.clear();
  fs::remove(archive);
  EXPECT_EQ(load_corpus("anarchism", context_).sha256, corpus.sha256);
  EXPECT_TRUE(said_.empty()) << said_[0];
}

TEST_F(DebianPackages, AreTakenWhereSomebodyHasPlacedThem) {
  make_package("dict-gcide", "1.0", {{"usr/share/dictd/gcide.dict.dz", "a word\n"}, {"usr/share/dictd/index", "no"}},
               folder_ / "data" / "dict-gcide_1.0_all.deb");
  EXPECT_EQ(load_corpus("gcide", context_).text, "a word\n");
  EXPECT_FALSE(was_said("fetching"));
}

TEST_F(DebianPackages, ThatAreNotWhatTheySeemAreRefused) {
  // It has the name of the version whose SHA-256 we know.
  make_package("anarchism", "15.3-3", {{"usr/share/doc/anarchism/markdown/1.md", "another text"}},
               folder_ / "data" / "anarchism_15.3-3_all.deb");
  const auto other = test::message_of<DataError>([&] { load_corpus("anarchism", context_); });
  EXPECT_NE(other.find("cf21c10948b00e92"), std::string::npos) << other;

  make_package("dict-gcide", "1.0", {{"usr/share/elsewhere/gcide.dict.dz", "a word"}},
               folder_ / "data" / "dict-gcide_1.0_all.deb");
  const auto empty = test::message_of<DataError>([&] { load_corpus("gcide", context_); });
  EXPECT_NE(empty.find("has no texts in usr/share/dictd"), std::string::npos) << empty;

  write_atomically(folder_ / "data" / "dict-gcide_1.0_all.deb", "no package at all");
  const auto broken = test::message_of<DataError>([&] { load_corpus("gcide", context_); });
  EXPECT_NE(broken.find("`dpkg-deb -x "), std::string::npos) << broken;
  EXPECT_NE(broken.find("failed with exit code 2"), std::string::npos) << broken;
}

}  // namespace
}  // namespace co2::train
