# Compiler settings shared by every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(REMAT_CCACHE ccache)
if(REMAT_CCACHE)
  # With GCC, ccache sees into precompiled headers only where the preprocessor keeps their place.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-fpch-preprocess)
  endif()
  set(CMAKE_CXX_COMPILER_LAUNCHER "${REMAT_CCACHE}")
endif()
find_program(REMAT_MOLD mold)

# Warnings, sanitizer and linker for one of our targets.
function(remat_target target)
  # Nobody replaces our functions at load time; without the last option, position-independent code could not inline them.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -fno-semantic-interposition)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC 12 sees overlapping copies where a literal and a string are put together (GCC's bug 105651).
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
  if(REMAT_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(REMAT_SANITIZE)
    # The checks that sanitizers insert make GCC 12 see uninitialized variables in std::optional and std::function.
    # LibTorch's headers have fences, which ThreadSanitizer does not know (-Wtsan).
    target_compile_options(${target} PRIVATE -fsanitize=${REMAT_SANITIZE} -fno-omit-frame-pointer -g
                           -Wno-maybe-uninitialized)
    if(REMAT_SANITIZE STREQUAL "thread")
      target_compile_options(${target} PRIVATE -Wno-tsan)
    endif()
    target_link_options(${target} PRIVATE -fsanitize=${REMAT_SANITIZE})
  endif()
  if(REMAT_MOLD)
    target_link_options(${target} PRIVATE -fuse-ld=mold)
  endif()
endfunction()

# Files of a target that include torch/torch.h are compiled in groups: at the end of each GCC instantiates templates that
# the precompiled header left pending, 7 seconds of them.
function(remat_group_files target)
  if(REMAT_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 5)
  endif()
endfunction()

# Sets `variable` to the folder of a header library, which no pip package brings.
function(remat_find_header variable header package)
  find_path(${variable} ${header})
  if(NOT ${variable})
    message(FATAL_ERROR "remat: no ${header}; install it (Debian's package ${package}) or set ${variable} to its folder")
  endif()
endfunction()

# Headers of include/remat/ that users of one of our libraries see, by stem.
function(remat_public_headers target)
  list(TRANSFORM ARGN PREPEND "${PROJECT_SOURCE_DIR}/include/remat/")
  list(TRANSFORM ARGN APPEND ".h")
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${ARGN})
endfunction()
