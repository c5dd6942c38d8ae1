#pragma once

#include <c10/core/ScalarType.h>
#include <co2/options.h>

#include <cstdint>

namespace co2 {

/// Throws OptionError if the wire has no meaning for parameters of dtype `own`.
void check_wire(Wire wire, at::ScalarType own);

/// What an element of dtype `own` is on a wire that adds up.
at::ScalarType wire_dtype(Wire wire, at::ScalarType own);

/// Bytes that an element takes on the wire: a fraction where several share one.
double wire_element_bytes(Wire wire, at::ScalarType own);

}  // namespace co2
