# A LibTorch with CUDA, at remat_torch_prefix, without its own package file: that one demands CUDA's compiler, which
# remat has no use for and which is not there where pip installed torch. Needed are the headers of CUDA's runtime and
# its library. What pip installed with torch comes first, since it is of the same version: the library is one of the
# packages nvidia-*; their headers lack crt/, Triton's do not.
set(TORCH_INSTALL_PREFIX "${remat_torch_prefix}")
set(TORCH_INCLUDE_DIRS "${TORCH_INSTALL_PREFIX}/include" "${TORCH_INSTALL_PREFIX}/include/torch/csrc/api/include")
include("${Torch_DIR}/TorchConfigVersion.cmake")
set(Torch_VERSION "${PACKAGE_VERSION}")

file(GLOB remat_cuda_hints "${TORCH_INSTALL_PREFIX}/../nvidia/cu1*" "${TORCH_INSTALL_PREFIX}/../nvidia/cuda_runtime"
     "${TORCH_INSTALL_PREFIX}/../triton/backends/nvidia")
list(APPEND remat_cuda_hints $ENV{CUDA_HOME} /usr/local/cuda)
find_path(REMAT_CUDA_INCLUDE crt/host_config.h HINTS ${remat_cuda_hints} PATH_SUFFIXES include)
find_file(REMAT_CUDART NAMES libcudart.so.13 libcudart.so.12 libcudart.so HINTS ${remat_cuda_hints}
          PATH_SUFFIXES lib lib64)
if(NOT REMAT_CUDA_INCLUDE OR NOT REMAT_CUDART)
  message(FATAL_ERROR "remat: the torch in ${TORCH_INSTALL_PREFIX} is one with CUDA, and crt/host_config.h or libcudart "
                      "is not beside it; set CUDA_HOME to a CUDA toolkit, or REMAT_CUDA_INCLUDE and REMAT_CUDART")
endif()
list(APPEND TORCH_INCLUDE_DIRS "${REMAT_CUDA_INCLUDE}")

# No symbol of libtorch_cuda is named by anybody; loaded, it makes itself known to PyTorch.
set(TORCH_CUDA_LIBRARIES "-Wl,--no-as-needed,${TORCH_INSTALL_PREFIX}/lib/libtorch_cuda.so,--as-needed"
                         "${TORCH_INSTALL_PREFIX}/lib/libc10_cuda.so" "${REMAT_CUDART}")
set(remat_torch_libraries "${TORCH_INSTALL_PREFIX}/lib/libtorch.so" "${TORCH_INSTALL_PREFIX}/lib/libtorch_cpu.so"
                          "${TORCH_INSTALL_PREFIX}/lib/libc10.so" ${TORCH_CUDA_LIBRARIES})

# What its headers were compiled with, as the package file says: without USE_C10D_GLOO they have no groups of Gloo.
file(STRINGS "${TORCH_INSTALL_PREFIX}/share/cmake/Caffe2/Caffe2Targets.cmake" remat_torch_definitions
     REGEX "INTERFACE_COMPILE_DEFINITIONS \"USE_DISTRIBUTED")
string(REGEX REPLACE ".*\"(.*)\".*" "\\1" remat_torch_definitions "${remat_torch_definitions}")
