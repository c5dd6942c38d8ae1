// The bodies of fmt's functions, once. LibTorch ships fmt's headers, but exports no compiled fmt; as a header-only
// library it costs every source file three to four seconds of compilation.
#include <fmt/format-inl.h>

namespace fmt {
template FMT_API auto detail::thousands_sep_impl<char>(locale_ref) -> detail::thousands_sep_result<char>;
template FMT_API auto detail::decimal_point_impl<char>(locale_ref) -> char;
template FMT_API auto detail::dragonbox::to_decimal(float) noexcept -> detail::dragonbox::decimal_fp<float>;
template FMT_API auto detail::dragonbox::to_decimal(double) noexcept -> detail::dragonbox::decimal_fp<double>;
}  // namespace fmt
