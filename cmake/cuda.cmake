# The CUDA compiler and the architectures to build for. The runtime is linked statically; cuBLASLt, NCCL and NVML are
# opened when the program starts and found missing by name.
set(TUTTI_CUDA_ARCHITECTURES "90a" CACHE STRING "Architectures of the CUDA kernels, as in sm_*: 80;86;89;90a;100;120 for a bundle")

set(CMAKE_CUDA_ARCHITECTURES OFF)
if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
  set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know it of nvcc
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)

add_library(tutti_cuda_flags INTERFACE)
target_include_directories(tutti_cuda_flags SYSTEM INTERFACE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
# CMake links the runtime where a target or a library of its own has CUDA sources; modules that only call it need it named.
find_library(TUTTI_CUDART cudart_static HINTS ${CMAKE_CUDA_HOST_IMPLICIT_LINK_DIRECTORIES} ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES} REQUIRED)
target_link_libraries(tutti_cuda_flags INTERFACE ${TUTTI_CUDART} rt pthread ${CMAKE_DL_LIBS})
foreach(arch ${TUTTI_CUDA_ARCHITECTURES})
  target_compile_options(tutti_cuda_flags INTERFACE
                         "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-gencode=arch=compute_${arch},code=sm_${arch}>")
endforeach()
target_compile_options(tutti_cuda_flags INTERFACE
                       "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:--expt-relaxed-constexpr --compress-mode=size -Xcompiler=-Wall,-Wextra,-Wno-unused-parameter -lineinfo>")
