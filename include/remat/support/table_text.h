// remat/support/table_text.h -- rows and columns for people.
#pragma once

#include <string>
#include <vector>

namespace remat::support {

/// The first column flush left, the others flush right. Rows may have different numbers of cells. Each ends in a
/// newline, without trailing spaces.
std::string table_text(const std::vector<std::vector<std::string>>& rows);

}  // namespace remat::support
