#include "train/image/prediction_grid.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>

#include "train/image/bitmap_font.h"

namespace co2::train {
namespace {

using Colour = std::array<std::uint8_t, 3>;
constexpr Colour kInk = {40, 40, 40};
constexpr Colour kRight = {0, 130, 60};
constexpr Colour kWrong = {200, 30, 30};
constexpr Colour kPaper = {250, 250, 250};

constexpr int kPictureSide = 112;  // about as large as pictures are shown
constexpr int kLetter = 2;         // a dot of a letter, in pixels
constexpr int kLine = (kGlyphHeight + 2) * kLetter;
constexpr int kAdvance = (kGlyphWidth + 1) * kLetter;
constexpr int kGap = 12;
constexpr int kFrame = 3;
constexpr std::int64_t kLongestName = 14;  // letters; what is longer is cut off

void fill(const at::Tensor& canvas, std::int64_t top, std::int64_t left, std::int64_t height, std::int64_t width,
          const Colour& colour) {
  const auto area = canvas.narrow(0, top, height).narrow(1, left, width);
  for (std::int64_t channel = 0; channel < 3; ++channel) {
    area.select(2, channel).fill_(colour[static_cast<std::size_t>(channel)]);
  }
}

/// In the middle of `width`, cut off where there is no room.
void write(const at::Tensor& canvas, std::int64_t top, std::int64_t left, std::int64_t width, const std::string& text,
           const Colour& colour) {
  const auto letters = std::min<std::int64_t>(std::ssize(text), width / kAdvance);
  left += (width - letters * kAdvance) / 2;
  for (std::int64_t i = 0; i < letters; ++i, left += kAdvance) {
    const char letter = text[static_cast<std::size_t>(i)];
    const auto& glyph = kGlyphs[letter >= ' ' && letter <= '~' ? static_cast<std::size_t>(letter - ' ') : '?' - ' '];
    for (int x = 0; x < kGlyphWidth; ++x) {
      for (int y = 0; y < kGlyphHeight; ++y) {
        const bool set = (glyph[static_cast<std::size_t>(x)] >> y & 1) != 0;
        if (set) fill(canvas, top + y * kLetter, left + x * kLetter, kLetter, kLetter, colour);
      }
    }
  }
}

/// As RGB [height, width, 3], every pixel `scale` times as large. Of other numbers of channels the first is shown.
at::Tensor enlarged(const at::Tensor& pixels, std::int64_t scale) {
  const auto rgb = pixels.size(0) == 3 ? pixels : pixels.narrow(0, 0, 1).expand({3, -1, -1});
  return rgb.permute({1, 2, 0}).repeat_interleave(scale, 0).repeat_interleave(scale, 1);
}

}  // namespace

at::Tensor prediction_grid(const std::vector<Prediction>& predictions, int columns) {
  TORCH_CHECK(!predictions.empty() && columns > 0, "a grid needs pictures");
  const auto& first = predictions[0].pixels;
  const std::int64_t scale = std::max<std::int64_t>(kPictureSide / std::max(first.size(1), first.size(2)), 1);
  const std::int64_t height = scale * first.size(1), width = scale * first.size(2);
  std::int64_t longest = 0;
  for (const Prediction& each : predictions) {
    longest = std::max({longest, std::ssize(each.truth), std::ssize(each.guess)});
  }
  const std::int64_t cell_width = std::max(width + 2 * kFrame, std::min(longest, kLongestName) * kAdvance) + kGap;
  const std::int64_t cell_height = height + 2 * kFrame + 2 * kLine + 2 * kGap;
  const std::int64_t rows = (std::ssize(predictions) + columns - 1) / columns;

  const auto canvas = at::empty({rows * cell_height + kGap, columns * cell_width + kGap, 3}, at::kByte);
  fill(canvas, 0, 0, canvas.size(0), canvas.size(1), kPaper);
  for (std::int64_t i = 0; i < std::ssize(predictions); ++i) {
    const Prediction& each = predictions[static_cast<std::size_t>(i)];
    const Colour& verdict = each.truth == each.guess ? kRight : kWrong;
    const std::int64_t top = i / columns * cell_height + kGap, left = i % columns * cell_width + kGap;
    const std::int64_t room = cell_width - kGap;
    const std::int64_t indent = (room - width) / 2;
    fill(canvas, top, left + indent - kFrame, height + 2 * kFrame, width + 2 * kFrame, verdict);
    canvas.narrow(0, top + kFrame, height).narrow(1, left + indent, width).copy_(enlarged(each.pixels, scale));
    const std::int64_t text = top + height + 2 * kFrame + kGap / 2;
    write(canvas, text, left, room, each.truth, kInk);
    write(canvas, text + kLine, left, room, each.guess, verdict);
  }
  return canvas;
}

}  // namespace co2::train
