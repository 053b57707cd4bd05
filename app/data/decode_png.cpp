// libpng reports errors by longjmp(): functions that call it have no locals with destructors.
#include <cstddef>
#include <cstdio>
#include <cstring>

#include <png.h>

#include "data/decoders.h"

namespace remat::data {
namespace {

class PngReader {
 public:
  explicit PngReader(std::string_view contents)
      : next_(reinterpret_cast<const unsigned char*>(contents.data())), left_(contents.size()) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, fail, [](png_structp, png_const_charp) {});
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  /// Finds width and height. False, as of read_pixels(), where problem() says why not.
  bool read_header() {
    if (info_ == nullptr) return false;
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);  // all that pixels do not depend on
    png_set_read_fn(png_, this, take);
    png_read_info(png_, info_);
    return true;
  }
  int64_t width() const { return png_get_image_width(png_, info_); }
  int64_t height() const { return png_get_image_height(png_, info_); }

  /// `pixels`: place for all.
  bool read_pixels(uint8_t* pixels) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_expand(png_);  // palettes, less than 8 bits
    png_set_strip_16(png_);
    png_set_strip_alpha(png_);
    png_set_gray_to_rgb(png_);
    const int passes = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    if (png_get_rowbytes(png_, info_) != 3 * static_cast<size_t>(width()))
      png_error(png_, "rows are not of 3 channels");
    for (int pass = 0; pass < passes; ++pass) {
      for (int64_t row = 0; row < height(); ++row) png_read_row(png_, pixels + row * 3 * width(), nullptr);
    }
    png_read_end(png_, nullptr);
    return true;
  }

  const char* problem() const { return problem_; }

 private:
  static void fail(png_structp png, png_const_charp message) {
    auto* const self = static_cast<PngReader*>(png_get_error_ptr(png));
    std::snprintf(self->problem_, sizeof self->problem_, "%s", message);
    png_longjmp(png, 1);
  }
  static void take(png_structp png, png_bytep to, size_t size) {
    auto* const self = static_cast<PngReader*>(png_get_io_ptr(png));
    if (size > self->left_) png_error(png, "the file is truncated");
    std::memcpy(to, self->next_, size);
    self->next_ += size;
    self->left_ -= size;
  }

  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  const unsigned char* next_;
  size_t left_;
  char problem_[128] = "there is no memory left";
};

}  // namespace

Picture decode_png(const std::string& path, std::string_view contents) {
  PngReader reader(contents);
  if (!reader.read_header()) refuse_damaged(path, "PNG", reader.problem());
  Picture picture{.height = reader.height(), .width = reader.width(), .pixels = {}};
  check_pixels(path, picture.height, picture.width);
  picture.pixels.resize(static_cast<size_t>(3 * picture.height * picture.width));
  if (!reader.read_pixels(picture.pixels.data())) refuse_damaged(path, "PNG", reader.problem());
  return picture;
}

}  // namespace remat::data
