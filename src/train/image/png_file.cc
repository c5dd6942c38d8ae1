#include "train/image/png_file.h"

#include <ATen/ATen.h>
#include <co2/error.h>
#include <fmt/format.h>
#include <png.h>

#include <string>

#include "base/files.h"

namespace co2::train {
namespace {

/// libpng's simple interface, which keeps what went wrong.
struct Png {
  png_image image{};
  const std::filesystem::path& path;

  explicit Png(const std::filesystem::path& file) : path(file) { image.version = PNG_IMAGE_VERSION; }
  ~Png() { png_image_free(&image); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;

  void expect(int good, const char* what) const {
    if (good == 0) throw DataError(fmt::format("can't {} {}: {}", what, path.string(), image.message));
  }
};

}  // namespace

at::Tensor read_png(const std::filesystem::path& path) {
  const std::string bytes = read_file(path);
  Png png(path);
  png.expect(png_image_begin_read_from_memory(&png.image, bytes.data(), bytes.size()), "read the picture");
  png.image.format = PNG_FORMAT_RGB;
  auto pixels = at::empty({png.image.height, png.image.width, 3}, at::kByte);
  png.expect(png_image_finish_read(&png.image, nullptr, pixels.data_ptr(), 0, nullptr), "read the picture");
  return pixels;
}

void write_png(const std::filesystem::path& path, const at::Tensor& pixels) {
  const at::Tensor rows = pixels.contiguous();
  TORCH_CHECK(rows.scalar_type() == at::kByte && rows.dim() == 3 && rows.size(2) == 3, "a picture is RGB in bytes");
  Png png(path);
  png.image.format = PNG_FORMAT_RGB;
  png.image.height = static_cast<png_uint_32>(rows.size(0));
  png.image.width = static_cast<png_uint_32>(rows.size(1));
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(png.image), '\0');
  png_alloc_size_t size = bytes.size();
  png.expect(png_image_write_to_memory(&png.image, bytes.data(), &size, 0, rows.const_data_ptr(), 0, nullptr), "make");
  bytes.resize(size);
  write_atomically(path, bytes);
}

}  // namespace co2::train
