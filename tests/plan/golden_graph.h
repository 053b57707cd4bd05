// tests/plan/golden_graph.h -- the graphs in tests/plan/golden.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include <remat/graph.h>

namespace remat::test {

/// tests/plan/golden/`name`.
inline std::filesystem::path golden_file(const std::string& name) {
  return std::filesystem::path(__FILE__).parent_path() / "golden" / name;
}

inline std::string read_golden(const std::string& name) {
  std::ifstream file(golden_file(name), std::ios::binary);
  EXPECT_TRUE(file) << golden_file(name);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline Graph golden_graph(const std::string& name) { return graph_from_json(read_golden(name + ".json")); }

}  // namespace remat::test
