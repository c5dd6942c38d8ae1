#include "train/data/corpus.h"

#include <co2/error.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/files.h"
#include "support/temporary.h"
#include "train/data/data_set.h"
#include "train/data/synthetic.h"
#include "train/sha256.h"

namespace co2::train {
namespace {

TEST(Sha256, MatchesThePublishedExamples) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Synthetic, IsTheSameTextOnEveryMachine) {
  const auto text = synthetic_text(kSyntheticBytes);
  EXPECT_GE(text.size(), kSyntheticBytes);
  EXPECT_LT(text.size(), kSyntheticBytes + 2000);
  EXPECT_EQ(sha256(text), "8db6af896d80d524f7d07ab1c952ed7fba9f6de839518d3d4934769ea2ec9c5f");
  EXPECT_EQ(text.substr(0, 2000), synthetic_text(2000).substr(0, 2000));
}

TEST(Corpus, AFileIsTakenAsItIs) {
  const test::TestFolder folder;
  const std::string text = "some text\r\n with \xff bytes";
  write_atomically(folder / "a.dat", text);
  const auto corpus = load_corpus((folder / "a.dat").string());
  EXPECT_EQ(corpus.text, text);
  EXPECT_EQ(corpus.sha256, sha256(text));
}

TEST(Corpus, AFolderGivesItsTextFilesInOrder) {
  const test::TestFolder folder;
  write_atomically(folder / "b.txt", "second");
  write_atomically(folder / "a.txt", "first\n");
  write_atomically(folder / "c.md", "not a text file");
  EXPECT_EQ(load_corpus(folder.path().string()).text, "first\nsecond\n");
}

TEST(Corpus, WhatIsMissingOrEmptyIsAnError) {
  const test::TestFolder folder;
  EXPECT_THROW(load_corpus(folder.path().string()), DataError);  // no .txt in it
  EXPECT_THROW(load_corpus(""), DataError);
  write_atomically(folder / "empty.txt", "");
  const auto empty = test::message_of<DataError>([&] { load_corpus((folder / "empty.txt").string()); });
  EXPECT_NE(empty.find("empty.txt is empty"), std::string::npos) << empty;
  const auto missing = test::message_of<DataError>([&] { load_corpus((folder / "nothing").string()); });
  EXPECT_NE(missing.find("nothing"), std::string::npos) << missing;
  const auto typo = test::message_of<DataError>([] { load_corpus("gutenburg"); });
  EXPECT_NE(typo.find("did you mean 'gutenberg"), std::string::npos) << typo;
}

TEST(Corpus, AutomaticChoiceFallsBackToSyntheticWhereThereAreNoClients) {
  const test::TestFolder folder;
  const test::ScopedVariable path("PATH", folder.path().string());
  const test::ScopedVariable data("CO2_DATA", (folder / "cache").string());
  std::vector<std::string> said;
  DataContext context;
  context.say = [&](const std::string& line) { said.push_back(line); };
  EXPECT_EQ(load_corpus("auto", context).name, "synthetic");
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("synthetic"), std::string::npos) << said[0];
  EXPECT_NE(said[0].find("npm"), std::string::npos) << said[0];
}

TEST(Corpus, AutomaticChoiceIsSyntheticForAllIfOneWorkerFails) {
  const test::TestFolder folder;
  const test::ScopedVariable data("CO2_DATA", (folder / "cache").string());
  std::vector<std::string> said;
  DataContext context;
  context.agree = [](bool) { return false; };  // some other worker always disagrees
  context.say = [&](const std::string& line) { said.push_back(line); };
  EXPECT_EQ(load_corpus("auto", context).name, "synthetic");
  context.speaks_for_all = false;
  said.clear();
  EXPECT_EQ(load_corpus("auto", context).name, "synthetic");
  EXPECT_TRUE(said.empty());
}

TEST(Corpus, AnInterruptedDownloadIsNoReasonToTrainOnSomethingElse) {
  const test::TestFolder folder;
  write_atomically(folder / "npm", "#!/bin/sh\nexec /bin/sleep 60\n");
  std::filesystem::permissions(folder / "npm", std::filesystem::perms::owner_all);
  const test::ScopedVariable path("PATH", folder.path().string());
  const test::ScopedVariable data("CO2_DATA", (folder / "cache").string());
  DataContext context;
  context.cancelled = [] { return true; };
  const auto message = test::message_of<DataError>([&] { load_corpus("auto", context); });
  EXPECT_NE(message.find("asked to stop"), std::string::npos) << message;
}

TEST(Corpus, CacheFolderIsTheUsersChoice) {
  const test::ScopedVariable home("HOME", "/home/someone");
  {
    const test::ScopedVariable data("CO2_DATA", "/data");
    EXPECT_EQ(cache_folder(), "/data");
  }
  const test::ScopedVariable data("CO2_DATA", "");
  EXPECT_EQ(cache_folder(), "/home/someone/.cache/co2");
  const test::ScopedVariable nobody("HOME", "");
  EXPECT_THROW(cache_folder(), DataError);
}

}  // namespace
}  // namespace co2::train
