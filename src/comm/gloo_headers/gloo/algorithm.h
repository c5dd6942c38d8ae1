#pragma once
// c10d's ProcessGroupGloo.hpp includes this file, but needs nothing from it. See context.h.
