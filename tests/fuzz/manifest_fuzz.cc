#include <co2/error.h>

#include "checkpoint/manifest.h"
#include "fuzz.h"

using namespace co2::checkpoint;

namespace {

void parse(std::string_view text) {
  try {
    const auto manifest = parse_manifest(text, "x");
    for (int worker = 0; worker < manifest.workers; ++worker) file_of(manifest, worker, "x");
    // Compared as text, since a NaN is not equal to itself.
    const auto again = manifest_text(manifest);
    CO2_HOLDS(manifest_text(parse_manifest(again, "x")) == again);
  } catch (const co2::DataError&) {
  }
}

}  // namespace

std::vector<std::string> seeds() {
  const std::string sum(32, 'a');
  std::vector<std::string> texts;
  for (const int workers : {1, 2, 4}) {
    Manifest manifest{.co2 = "0.1.0", .step = 120, .workers = workers, .island_size = workers, .zero = 3};
    manifest.about = {{"task", "gpt"}, {"seed", std::int64_t{-1}}, {"loss", 1.5e-3}, {"none", 0.0 / 0.0}};
    for (int worker = 0; worker < workers; ++worker) {
      manifest.files.push_back({"worker-0000" + std::to_string(worker) + ".safetensors", 1000 * worker, sum});
    }
    texts.push_back(manifest_text(manifest));
  }
  // Without its end, as that is put there anew.
  texts.push_back(texts[0].substr(0, texts[0].rfind(',')) + "}");
  texts.push_back(R"({"format":2,"co2":"9"})");
  return texts;
}

void run(std::string_view input) {
  parse(input);
  parse(sealed(input));  // no mutation finds the right checksum
}
