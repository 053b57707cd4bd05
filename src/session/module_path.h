// src/session/module_path.h -- the paths of modules, as named_modules() gives them.
#pragma once

#include <string>

namespace remat {

/// The module that the parameter or module at `path` is in: "blocks.3" for "blocks.3.norm", "" for "norm".
inline std::string module_around(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? std::string() : path.substr(0, dot);
}

}  // namespace remat
