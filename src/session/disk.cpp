#include <remat/disk.h>

#include <utility>

#include <remat/budget.h>
#include <remat/error.h>

namespace remat {

Disk::Disk(std::string where, int64_t room) : directory(std::move(where)), bytes(room) {
  if (directory.empty()) throw Error("[disk] no directory is named; give one, as in 100GiB:/scratch");
  if (bytes <= 0) throw Error("[disk] " + std::to_string(bytes) + " bytes are no room; give a number above 0");
}

Disk Disk::parse(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    throw Error("[disk] \"" + std::string(text) + "\" has no colon; give bytes and a directory, as in 100GiB:/scratch");
  }
  const Budget size = Budget::parse(text.substr(0, colon));
  if (size.kind() != Budget::Kind::kBytes) {
    throw Error("[disk] \"" + std::string(text.substr(0, colon)) + "\" is no number of bytes; give one, as in " +
                "100GiB:/scratch");
  }
  return {std::string(text.substr(colon + 1)), size.byte_count()};
}

}  // namespace remat
