# What the CUDA back end needs: nvcc, the toolkit (cudart, cuBLASLt, nvrtc), cuDNN with its C++ front end, NCCL.
#
# SPOTLIGHT_CUDA = AUTO (take it if all is there), ON (an error if anything is missing) or OFF. Sets
# SPOTLIGHT_CUDA_FOUND, SPOTLIGHT_CUDA_STATE (versions, or why it is left out) and, if found, enables the language CUDA
# and finds the targets CUDA::*, CUDNN::cudnn and spotlight_cudnn_frontend, and NCCL. No driver and no GPU is needed to
# build. To be included from the top directory, where a language can be enabled.
set(SPOTLIGHT_CUDA AUTO CACHE STRING "build the CUDA back end: AUTO, ON or OFF")
set_property(CACHE SPOTLIGHT_CUDA PROPERTY STRINGS AUTO ON OFF)

set(SPOTLIGHT_CUDA_FOUND FALSE)
set(SPOTLIGHT_CUDA_MISSING "")
if(NOT SPOTLIGHT_CUDA)
  set(SPOTLIGHT_CUDA_MISSING "SPOTLIGHT_CUDA is OFF")
else()
  # A toolkit in its usual place need not be on PATH.
  find_program(SPOTLIGHT_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(SPOTLIGHT_NVCC)
  if(SPOTLIGHT_NVCC AND NOT DEFINED ENV{CUDACXX})
    set(ENV{CUDACXX} "${SPOTLIGHT_NVCC}")
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    list(APPEND SPOTLIGHT_CUDA_MISSING "no working nvcc (put it on PATH, or set CUDACXX)")
  else()
    # sm_80 A100, sm_90 H100 and H200, sm_100 B200: machine code for each, and code for newer ones from the last.
    set(CMAKE_CUDA_ARCHITECTURES 80 90 100 CACHE STRING "compute capabilities that the CUDA back end is built for")
    enable_language(CUDA)
    if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 drops C++20 for nvcc without a word
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(CMAKE_CUDA_EXTENSIONS OFF)

    find_package(CUDAToolkit 12.8 QUIET)  # the first with sm_100
    if(NOT CUDAToolkit_FOUND)
      list(APPEND SPOTLIGHT_CUDA_MISSING "a CUDA toolkit of 12.8 or later (found: '${CMAKE_CUDA_COMPILER_VERSION}')")
    endif()
    if(NOT TARGET CUDA::cublasLt)
      list(APPEND SPOTLIGHT_CUDA_MISSING "cuBLASLt")
    endif()
    if(NOT TARGET CUDA::nvrtc)
      list(APPEND SPOTLIGHT_CUDA_MISSING "nvrtc")
    endif()
    find_package(CUDNN 9.8 QUIET)  # the first that plans for a device that is only described
    if(NOT CUDNN_FOUND)
      list(APPEND SPOTLIGHT_CUDA_MISSING "cuDNN of 9.8 or later (set CUDNN_ROOT)")
    endif()
    find_package(NCCL 2.20 QUIET)
    if(NOT NCCL_FOUND)
      list(APPEND SPOTLIGHT_CUDA_MISSING "NCCL of 2.20 or later (set NCCL_ROOT)")
    endif()
    file(GLOB SPOTLIGHT_CUDNN_FRONTEND_HINT "${SPOTLIGHT_DEPS}/venv/lib/python3*/site-packages/include")
    find_path(SPOTLIGHT_CUDNN_FRONTEND_DIR cudnn_frontend.h HINTS ${SPOTLIGHT_CUDNN_FRONTEND_HINT}
      ${CUDNN_INCLUDE_DIR})
    mark_as_advanced(SPOTLIGHT_CUDNN_FRONTEND_DIR)
    if(NOT SPOTLIGHT_CUDNN_FRONTEND_DIR)
      list(APPEND SPOTLIGHT_CUDA_MISSING "cuDNN's C++ front end (scripts/setup.sh)")
    endif()
  endif()
endif()

if(SPOTLIGHT_CUDA_MISSING)
  list(JOIN SPOTLIGHT_CUDA_MISSING "; " SPOTLIGHT_CUDA_STATE)
  if(SPOTLIGHT_CUDA AND NOT SPOTLIGHT_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "SPOTLIGHT_CUDA is ${SPOTLIGHT_CUDA}, but this is missing for the CUDA back end: "
      "${SPOTLIGHT_CUDA_STATE}. Install it, or configure with -DSPOTLIGHT_CUDA=OFF")
  endif()
else()
  set(SPOTLIGHT_CUDA_FOUND TRUE)
  list(JOIN CMAKE_CUDA_ARCHITECTURES " " SPOTLIGHT_CUDA_STATE)
  set(SPOTLIGHT_CUDA_STATE "${CUDAToolkit_VERSION} for ${SPOTLIGHT_CUDA_STATE}, cuDNN ${CUDNN_VERSION}, NCCL \
${NCCL_VERSION}")
  add_library(spotlight_cudnn_frontend INTERFACE)
  target_include_directories(spotlight_cudnn_frontend SYSTEM INTERFACE "${SPOTLIGHT_CUDNN_FRONTEND_DIR}")
  # Without its JSON library the front end compiles in 11 s instead of 28.
  target_compile_definitions(spotlight_cudnn_frontend INTERFACE CUDNN_FRONTEND_SKIP_JSON_LIB)
  target_link_libraries(spotlight_cudnn_frontend INTERFACE CUDNN::cudnn CUDA::cudart CUDA::nvrtc ${CMAKE_DL_LIBS})
endif()
