#include "pretrained/safetensors.h"

#include <cstring>
#include <random>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace remat::pretrained {
namespace {

using test::TemporaryDirectory;

/// A file of that header and so many bytes behind it.
std::string file_of(const std::string& header, size_t bytes) {
  const uint64_t size = header.size();
  std::string text(sizeof size, '\0');
  std::memcpy(text.data(), &size, sizeof size);
  return text + header + std::string(bytes, '\x01');
}

void open_file(const std::string& contents) {
  const TemporaryDirectory directory;
  const SafetensorsFile file(directory.write("a.safetensors", contents));
}

void open_header(const std::string& header, size_t bytes) { open_file(file_of(header, bytes)); }

TEST(Safetensors, GivesBackWhatWasWritten) {
  const TemporaryDirectory directory;
  const auto path = directory.path("a.safetensors");
  const std::vector<std::pair<std::string, at::Tensor>> tensors = {
      {"matrix", torch::randn({3, 5})},
      {"transposed", torch::randn({4, 2}).t()},
      {"number", torch::tensor(2.5, torch::kDouble)},
      {"empty", torch::empty({0, 7})},
      {"bfloat16", torch::randn({9}).to(torch::kBFloat16)},
      {"half", torch::randn({9}).to(torch::kHalf)},
      {"flags", torch::rand({11}) > 0.5},
      {"integers", torch::arange(5)},
      {"name with \"quotes\" and \xC3\xA9", torch::arange(3, torch::kInt)}};
  write_safetensors(path, tensors);
  const SafetensorsFile file(path);
  EXPECT_EQ(file.entries().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor read = file.read(name);
    EXPECT_EQ(read.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(read.equal(tensor)) << name;
  }
  EXPECT_ERROR(file.read("other"), "has no tensor 'other'");
}

TEST(Safetensors, AFileWithoutTensorsIsOne) {
  const TemporaryDirectory directory;
  const auto path = directory.path("a.safetensors");
  write_safetensors(path, {});
  EXPECT_TRUE(SafetensorsFile(path).entries().empty());
}

TEST(Safetensors, EmptyTensorsOfEveryTypeAreRead) {
  for (const std::string type : {"F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL", "U16", "U32",
                                 "U64", "C64", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0"}) {
    std::string header = R"({"x": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]})";
    const std::map<std::string, std::vector<int64_t>> shapes = {
        {"a", {0}}, {"b", {2, 0, 5}}, {"c", {0, INT64_MAX}}, {"d", {0, int64_t{1} << 40, int64_t{1} << 40}}};
    for (const auto& [name, shape] : shapes) {
      std::string sizes;
      for (const int64_t size : shape) sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
      const std::string place = name < "c" ? "[0, 0]" : "[3, 3]";
      header += ",\"" + name + R"(": {"dtype": ")" + type + R"(", "shape": [)" + sizes + R"(], "data_offsets": )";
      header += place + "}";
    }
    const TemporaryDirectory directory;
    const SafetensorsFile file(directory.write("a.safetensors", file_of(header + "}", 3)));
    for (const auto& [name, shape] : shapes) {
      const at::Tensor tensor = file.read(name);
      EXPECT_EQ(tensor.numel(), 0) << type << name;
      EXPECT_EQ(tensor.sizes(), at::IntArrayRef(shape)) << type << name;
    }
    EXPECT_EQ(file.read("x").numel(), 3);
  }
}

TEST(Safetensors, RefusesWhatIsNoWholeFile) {
  EXPECT_ERROR(SafetensorsFile("/nowhere/a.safetensors"), "cannot read");
  EXPECT_ERROR(SafetensorsFile("/"), "is not a regular file");
  EXPECT_ERROR(open_file(""), "has no header");
  EXPECT_ERROR(open_file("1234567"), "has no header");
  EXPECT_ERROR(open_file(std::string(8, '\xFF')), "says that its header has 18446744073709551615 bytes");
  EXPECT_ERROR(open_file(file_of("{}", 0).substr(0, 9)), "says that its header has 2 bytes, and has 1");
  EXPECT_ERROR(open_header("[]", 0), "is an array, not an object");
  EXPECT_ERROR(open_header(std::string(100'000, '['), 0), "nested more than 3 deep");
  EXPECT_ERROR(open_header("{}", 4), "has 4 bytes behind its header, its tensors need 0");
}

TEST(Safetensors, RefusesTensorsThatCannotBe) {
  const auto one = [](const std::string& type, const std::string& shape, const std::string& offsets) {
    return R"({"a": {"dtype": ")" + type + R"(", "shape": )" + shape + R"(, "data_offsets": )" + offsets + "}}";
  };
  EXPECT_NO_THROW(open_header(one("F32", "[2]", "[0, 8]"), 8));
  EXPECT_ERROR(open_header(one("F31", "[2]", "[0, 8]"), 8), "type F31");
  EXPECT_ERROR(open_header(one("F32", "[-2]", "[0, 8]"), 8), "shape has -2");
  EXPECT_ERROR(open_header(one("F32", "[2.0]", "[0, 8]"), 8), "shape has 2.0");
  EXPECT_ERROR(open_header(one("F32", "[3]", "[0, 8]"), 8), "which 8 bytes cannot hold");
  EXPECT_ERROR(open_header(one("F32", "[2]", "[8, 0]"), 8), "cannot hold");
  EXPECT_ERROR(open_header(one("F32", "[2]", "[0, 8, 9]"), 8), "no lists");
  EXPECT_ERROR(open_header(one("F32", "[4611686018427387904, 4]", "[0, 0]"), 0), "cannot hold")
      << "the product of sizes overflows";
  EXPECT_ERROR(open_header(one("F32", "[2]", "[4, 12]"), 12), "gaps at byte 0");
  EXPECT_ERROR(open_header(one("F32", "[2]", "[0, 8]"), 7), "has 7 bytes behind its header");
  const std::string a = R"("a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]})";
  const std::string b = R"("b": {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]})";
  EXPECT_ERROR(open_header("{" + a + "," + b + "}", 6), "overlap or leave gaps at byte 4");
  EXPECT_ERROR(open_header("{" + a + "," + a + "}", 4), "has the name 'a' twice");
}

TEST(Safetensors, AWriteThatFailsLeavesTheOldFile) {
  const TemporaryDirectory directory;
  const auto path = directory.path("a.safetensors");
  write_safetensors(path, {{"a", torch::ones({2})}});
  const std::vector<std::pair<std::string, at::Tensor>> unknown = {{"b", torch::ones({2}, torch::kComplexDouble)}};
  EXPECT_ERROR(write_safetensors(path, unknown), "is of type ComplexDouble");
  EXPECT_TRUE(SafetensorsFile(path).entries().contains("a"));
  EXPECT_ERROR(write_safetensors(directory.path("none/a"), {}), "cannot write");
}

/// A byte changed, added or removed, a piece cut out or doubled: either it reads, or it is an Error.
TEST(Safetensors, MutatedFilesAreReadOrRefused) {
  const TemporaryDirectory directory;
  const auto path = directory.path("a.safetensors");
  write_safetensors(path, {{"weight", torch::randn({4, 3})}, {"bias", torch::randn({3})}, {"n", torch::arange(2)}});
  const std::string original = test::read_all(path);
  std::mt19937_64 random(1);
  const auto below = [&](size_t count) { return static_cast<size_t>(random() % count); };
  int read = 0, refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string text = original;
    const size_t header = 8 + (original.size() - 8) * 3 / 4;
    for (size_t changes = 1 + below(3); changes > 0 && !text.empty(); --changes) {
      const size_t at = below(std::min(text.size(), below(8) == 0 ? text.size() : header));
      const size_t length = std::min(text.size() - at, 1 + below(20));
      switch (below(5)) {
        case 0:
          text[at] = static_cast<char>(below(256));
          break;
        case 1:
          text[at] = "0123456789{}[],:\"-eF"[below(20)];
          break;
        case 2:
          text.erase(at, length);
          break;
        case 3:
          text.insert(at, text.substr(at, length));
          break;
        default:
          text.resize(at);
          break;
      }
    }
    directory.write("a.safetensors", text);
    try {
      const SafetensorsFile file(path);
      for (const auto& [name, entry] : file.entries()) file.read(name);
      ++read;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 50);
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace remat::pretrained
