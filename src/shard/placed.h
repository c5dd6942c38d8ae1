#pragma once

#include <co2/options.h>

namespace co2 {

/// A recipe as it is carried out by so many workers: `ddp` is one island of all of them, and ZeRO in an island of one
/// worker shards nothing. Throws OptionError if they can't be divided into islands of the wanted size.
Recipe placed(Recipe recipe, int workers);

}  // namespace co2
