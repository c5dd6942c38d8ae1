#pragma once

/// Everything that a program which trains with co2 needs.
#include <co2/checkpoint.h>
#include <co2/cluster.h>
#include <co2/communicator.h>
#include <co2/core.h>
#include <co2/error.h>
#include <co2/memory.h>
#include <co2/options.h>
#include <co2/parameters.h>
#include <co2/state.h>
#include <co2/synchronizer.h>
#include <co2/trace.h>
#include <co2/unit.h>
