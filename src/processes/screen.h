#pragma once

#include <cstddef>
#include <cstdio>
#include <string_view>

namespace co2::processes {

/// Writes what a person is to see, at once. A screen that is full, closed or gone is no reason to end a run, so a
/// failure is overlooked; std::ferror(stream) tells.
void show(std::FILE* stream, std::string_view text) noexcept;

/// Whether a line can be drawn over and over: a terminal that knows how to go back in it.
bool is_live(std::FILE* stream) noexcept;

/// Columns of the terminal; 80 if it doesn't say.
std::size_t screen_width(std::FILE* stream) noexcept;

}  // namespace co2::processes
