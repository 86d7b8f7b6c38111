# Every dependency, found by the ordinary CMake means; SPOTLIGHT_DEPS (scripts/setup.sh) is only a hint. Nothing is
# REQUIRED one by one: the closing table shows all that was found and all that is missing with the Debian package to
# install, and configuring ends there if anything is missing. Only the CUDA back end is optional (Cuda.cmake).

set(SPOTLIGHT_FOUND_ROWS "")
set(SPOTLIGHT_MISSING_ROWS "")

# One row of the table. <found> is the name of a variable; <remedy> says what to install.
function(spotlight_dependency name found version remedy)
  string(LENGTH "${name}" length)
  math(EXPR padding "14 - ${length}")
  string(REPEAT " " ${padding} padding)
  if(${found})
    set(SPOTLIGHT_FOUND_ROWS "${SPOTLIGHT_FOUND_ROWS}\n  ✓ ${name}${padding}${version}" PARENT_SCOPE)
  else()
    set(SPOTLIGHT_MISSING_ROWS "${SPOTLIGHT_MISSING_ROWS}\n  ✗ ${name}${padding}missing: ${remedy}" PARENT_SCOPE)
  endif()
endfunction()

if(NOT MPI_HOME AND "$ENV{MPI_HOME}" STREQUAL "")  # which FindMPI knows by itself
  find_program(MPI_CXX_COMPILER mpicxx HINTS "${SPOTLIGHT_DEPS}/venv/bin")
  find_program(MPIEXEC_EXECUTABLE mpirun HINTS "${SPOTLIGHT_DEPS}/venv/bin")
endif()
find_package(MPI 3.1 QUIET COMPONENTS CXX)
spotlight_dependency("MPI" MPI_CXX_FOUND "${MPI_CXX_VERSION} (${MPIEXEC_EXECUTABLE})"
  "scripts/setup.sh, or load your site's Open MPI 5")
# Open MPI announces ULFM in mpi-ext.h; without it the calls that survive a lost rank do not exist.
find_file(SPOTLIGHT_MPI_EXTENSIONS mpi-ext.h PATHS ${MPI_CXX_INCLUDE_DIRS} NO_DEFAULT_PATH)
if(SPOTLIGHT_MPI_EXTENSIONS)
  file(STRINGS "${SPOTLIGHT_MPI_EXTENSIONS}" SPOTLIGHT_ULFM REGEX "define OMPI_HAVE_MPI_EXT_FTMPI 1")
endif()
spotlight_dependency("ULFM" SPOTLIGHT_ULFM "in this MPI" "an Open MPI 5 built with fault tolerance: scripts/setup.sh")

find_package(Kokkos 4 QUIET HINTS "${SPOTLIGHT_DEPS}/kokkos")
if(Kokkos_FOUND AND "OPENMP" IN_LIST Kokkos_DEVICES)
  set(SPOTLIGHT_KOKKOS_FOUND TRUE)
endif()
spotlight_dependency("Kokkos" SPOTLIGHT_KOKKOS_FOUND "${Kokkos_VERSION} (${Kokkos_DEVICES})"
  "scripts/setup.sh, or set Kokkos_ROOT to your site's Kokkos 4 with OpenMP")

set(HDF5_PREFER_PARALLEL OFF)  # serial on purpose: one file per rank, and no second MPI
find_package(HDF5 1.10 QUIET COMPONENTS C HL)
spotlight_dependency("HDF5" HDF5_FOUND "${HDF5_VERSION}" "apt-get install libhdf5-dev")

find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)  # find_package(dnnl) would demand OpenCL
find_library(DNNL_LIBRARY dnnl)
if(DNNL_INCLUDE_DIR AND DNNL_LIBRARY)
  file(STRINGS "${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h" SPOTLIGHT_DNNL_VERSION
    REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
  string(REGEX REPLACE "[^;]*VERSION_[A-Z]+ +([0-9]+)" "\\1" SPOTLIGHT_DNNL_VERSION "${SPOTLIGHT_DNNL_VERSION}")
  string(REPLACE ";" "." SPOTLIGHT_DNNL_VERSION "${SPOTLIGHT_DNNL_VERSION}")
  if(SPOTLIGHT_DNNL_VERSION MATCHES "^2")  # 3 has another interface for operation descriptors
    set(SPOTLIGHT_DNNL_FOUND TRUE)
  endif()
  add_library(spotlight_dnnl INTERFACE)
  target_include_directories(spotlight_dnnl SYSTEM INTERFACE "${DNNL_INCLUDE_DIR}")
  target_link_libraries(spotlight_dnnl INTERFACE "${DNNL_LIBRARY}")
endif()
set(SPOTLIGHT_DNNL_REMEDY "apt-get install libdnnl-dev")
if(SPOTLIGHT_DNNL_VERSION AND NOT SPOTLIGHT_DNNL_FOUND)
  set(SPOTLIGHT_DNNL_REMEDY
    "version 2; found is ${SPOTLIGHT_DNNL_VERSION}, whose interface differs: set DNNL_INCLUDE_DIR and DNNL_LIBRARY")
endif()
spotlight_dependency("oneDNN" SPOTLIGHT_DNNL_FOUND "${SPOTLIGHT_DNNL_VERSION}" "${SPOTLIGHT_DNNL_REMEDY}")

find_package(CLI11 QUIET)
spotlight_dependency("CLI11" CLI11_FOUND "${CLI11_VERSION}" "apt-get install libcli11-dev")
find_package(fmt QUIET)
spotlight_dependency("fmt" fmt_FOUND "${fmt_VERSION}" "apt-get install libfmt-dev")
find_package(spdlog QUIET)
spotlight_dependency("spdlog" spdlog_FOUND "${spdlog_VERSION}" "apt-get install libspdlog-dev")
find_package(nlohmann_json QUIET)
spotlight_dependency("nlohmann-json" nlohmann_json_FOUND "${nlohmann_json_VERSION}"
  "apt-get install nlohmann-json3-dev")
find_package(PNG QUIET)
spotlight_dependency("libpng" PNG_FOUND "${PNG_VERSION_STRING}" "apt-get install libpng-dev")

find_package(PkgConfig QUIET)
spotlight_dependency("pkg-config" PKG_CONFIG_FOUND "${PKG_CONFIG_VERSION_STRING}" "apt-get install pkg-config")
if(PKG_CONFIG_FOUND)
  pkg_check_modules(libzmq QUIET IMPORTED_TARGET libzmq)
endif()
spotlight_dependency("ZeroMQ" libzmq_FOUND "${libzmq_VERSION}" "apt-get install libzmq3-dev")
find_path(SPOTLIGHT_CPPZMQ_INCLUDE_DIR zmq.hpp)
spotlight_dependency("cppzmq" SPOTLIGHT_CPPZMQ_INCLUDE_DIR "${SPOTLIGHT_CPPZMQ_INCLUDE_DIR}/zmq.hpp"
  "apt-get install cppzmq-dev")

option(BUILD_TESTING "build the tests" ON)
if(BUILD_TESTING)
  find_package(GTest QUIET)
  spotlight_dependency("GoogleTest" GTest_FOUND "${GTest_VERSION}"
    "apt-get install libgtest-dev libgmock-dev, or configure with -DBUILD_TESTING=OFF")
endif()

include(Cuda)
if(SPOTLIGHT_CUDA_FOUND)
  spotlight_dependency("CUDA" SPOTLIGHT_CUDA_FOUND "${SPOTLIGHT_CUDA_STATE}" "")
else()
  set(SPOTLIGHT_FOUND_ROWS "${SPOTLIGHT_FOUND_ROWS}\n  – CUDA          left out: ${SPOTLIGHT_CUDA_STATE}")
endif()

message(STATUS "spotlight ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}, ${CMAKE_CXX_COMPILER_ID} "
  "${CMAKE_CXX_COMPILER_VERSION}; dependencies:${SPOTLIGHT_FOUND_ROWS}${SPOTLIGHT_MISSING_ROWS}")
if(SPOTLIGHT_MISSING_ROWS)
  message(FATAL_ERROR "missing dependencies:${SPOTLIGHT_MISSING_ROWS}\n"
    "On Debian 12 scripts/setup.sh installs all of them.")
endif()
