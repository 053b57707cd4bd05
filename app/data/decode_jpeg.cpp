// libjpeg reports errors by a function that must not return: functions that call it have no locals with destructors.
#include <csetjmp>
#include <cstddef>
#include <cstdio>

#include <jpeglib.h>  // needs size_t and FILE

#include <jerror.h>

#include "data/decoders.h"

namespace remat::data {
namespace {

constexpr int kMostScans = 100;  // far beyond what encoders write; each costs time for all pixels

/// That of Adobe's inverted inks, as Pillow computes it.
void cmyk_to_rgb(const uint8_t* cmyk, int64_t count, uint8_t* rgb) {
  for (; count > 0; --count, cmyk += 4) {
    const int light = cmyk[3];
    for (int channel = 0; channel < 3; ++channel) {
      const int product = (255 - cmyk[channel]) * light + 128;
      *rgb++ = static_cast<uint8_t>(light - ((product >> 8) + product) / 256);
    }
  }
}

class JpegReader {
 public:
  explicit JpegReader(std::string_view contents) : contents_(contents) {
    jpeg_.err = jpeg_std_error(&errors_);
    jpeg_.client_data = this;
    errors_.error_exit = [](j_common_ptr jpeg) { of(jpeg).fail(); };
    errors_.emit_message = [](j_common_ptr jpeg, int level) {
      if (level < 0) of(jpeg).look_at_warning();
    };
    progress_.progress_monitor = [](j_common_ptr jpeg) {
      if (of(jpeg).jpeg_.input_scan_number > kMostScans) of(jpeg).fail("it has too many scans");
    };
  }
  ~JpegReader() { jpeg_destroy_decompress(&jpeg_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  /// Finds width and height. False, as of read_pixels(), where problem() says why not.
  bool read_header() {
    if (setjmp(back_) != 0) return false;
    jpeg_create_decompress(&jpeg_);
    jpeg_.progress = &progress_;
    jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(contents_.data()), contents_.size());
    jpeg_read_header(&jpeg_, TRUE);
    return true;
  }
  int64_t width() const { return jpeg_.image_width; }
  int64_t height() const { return jpeg_.image_height; }

  /// `pixels`: place for all; `inks`: for a row of four channels.
  bool read_pixels(uint8_t* pixels, uint8_t* inks) {
    if (setjmp(back_) != 0) return false;
    const bool of_inks = jpeg_.jpeg_color_space == JCS_CMYK || jpeg_.jpeg_color_space == JCS_YCCK;
    jpeg_.out_color_space = of_inks ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&jpeg_);
    while (jpeg_.output_scanline < jpeg_.output_height) {
      uint8_t* const to = pixels + static_cast<int64_t>(jpeg_.output_scanline) * 3 * width();
      JSAMPROW row = of_inks ? inks : to;
      jpeg_read_scanlines(&jpeg_, &row, 1);
      if (of_inks) cmyk_to_rgb(inks, width(), to);
    }
    jpeg_finish_decompress(&jpeg_);
    return true;
  }

  const char* problem() const { return problem_; }

 private:
  static JpegReader& of(j_common_ptr jpeg) { return *static_cast<JpegReader*>(jpeg->client_data); }

  [[noreturn]] void fail() {
    errors_.format_message(reinterpret_cast<j_common_ptr>(&jpeg_), problem_);
    std::longjmp(back_, 1);
  }
  [[noreturn]] void fail(const char* problem) {
    std::snprintf(problem_, sizeof problem_, "%s", problem);
    std::longjmp(back_, 1);
  }
  /// libjpeg puts grey where there are no data. Warnings of other kinds are of no consequence for pixels.
  void look_at_warning() {
    for (const int damage : {JWRN_HIT_MARKER, JWRN_HUFF_BAD_CODE, JWRN_ARITH_BAD_CODE, JWRN_JPEG_EOF, JWRN_MUST_RESYNC})
      if (errors_.msg_code == damage) fail();
  }

  jpeg_decompress_struct jpeg_ = {};
  jpeg_error_mgr errors_ = {};
  jpeg_progress_mgr progress_ = {};
  std::jmp_buf back_ = {};
  std::string_view contents_;
  char problem_[JMSG_LENGTH_MAX] = "";
};

}  // namespace

Picture decode_jpeg(const std::string& path, std::string_view contents) {
  JpegReader reader(contents);
  if (!reader.read_header()) refuse_damaged(path, "JPEG", reader.problem());
  Picture picture{.height = reader.height(), .width = reader.width(), .pixels = {}};
  check_pixels(path, picture.height, picture.width);
  picture.pixels.resize(static_cast<size_t>(3 * picture.height * picture.width));
  std::vector<uint8_t> inks(static_cast<size_t>(4 * picture.width));
  if (!reader.read_pixels(picture.pixels.data(), inks.data())) refuse_damaged(path, "JPEG", reader.problem());
  return picture;
}

}  // namespace remat::data
