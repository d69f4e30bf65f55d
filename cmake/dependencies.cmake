# What we link, by job: see docs/internals/dependencies.md. No find_package(Torch): it drags in nvcc and libtorch_cuda.

find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(spdlog REQUIRED)
find_package(GTest)
find_package(PkgConfig REQUIRED)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(CURL REQUIRED IMPORTED_TARGET libcurl)
pkg_check_modules(CRYPTO REQUIRED IMPORTED_TARGET libcrypto)
pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
# Who compiles for several instruction sets, and who tests them one by one, must mean the same ones. Old ones get the
# baseline; each target multiplies compile time.
add_library(octavo_highway INTERFACE)
target_link_libraries(octavo_highway INTERFACE PkgConfig::HWY)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12.3 AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  message(STATUS "GCC ${CMAKE_CXX_COMPILER_VERSION} compiles Highway's portable vectors wrongly (GCC bug 106322): the program will need SSSE3")
  add_compile_options(-mssse3)  # for all: precompiled headers are for one set of instructions
  target_compile_definitions(octavo_highway INTERFACE "HWY_DISABLED_TARGETS=(HWY_SSE4|HWY_SCALAR|HWY_EMU128)")
else()
  target_compile_definitions(octavo_highway INTERFACE "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4)")
endif()

if(NOT OCTAVO_TORCH)
  return()
endif()
file(GLOB OCTAVO_SITE_PACKAGES ${OCTAVO_VENV}/lib/python3*/site-packages)
if(NOT EXISTS ${OCTAVO_SITE_PACKAGES}/torch/lib/libtorch_cpu.so)
  message(FATAL_ERROR "torch not found under ${OCTAVO_VENV}: run ./bootstrap build first")
endif()

include(${CMAKE_CURRENT_LIST_DIR}/cuda.cmake)

# Arrow, from the pyarrow wheel: libraries have names with the version only.
foreach(lib arrow arrow_s3 parquet)
  file(GLOB octavo_arrow_file ${OCTAVO_SITE_PACKAGES}/pyarrow/lib${lib}.so.*)
  if(NOT octavo_arrow_file)
    message(FATAL_ERROR "lib${lib} not found in the pyarrow wheel under ${OCTAVO_VENV}: run ./bootstrap build first")
  endif()
  add_library(arrow::${lib} SHARED IMPORTED)
  set_target_properties(arrow::${lib} PROPERTIES IMPORTED_LOCATION ${octavo_arrow_file})
  target_include_directories(arrow::${lib} SYSTEM INTERFACE ${OCTAVO_SITE_PACKAGES}/pyarrow/include)
endforeach()

# libtorch, CPU part. oneDNN's own headers must come before torch's copies of a newer version.
foreach(lib c10 torch_cpu c10_cuda torch_cuda)
  add_library(lt::${lib} SHARED IMPORTED)
  set_target_properties(lt::${lib} PROPERTIES
    IMPORTED_LOCATION ${OCTAVO_SITE_PACKAGES}/torch/lib/lib${lib}.so)
endforeach()

# oneDNN: 3.2 is the oldest that octavo was tried with; 2.x has no run-time scales. Its wheel is for x86-64 alone.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(octavo_onednn_from wheel)
else()
  set(octavo_onednn_from none)
endif()
set(OCTAVO_LIBRARIES ${octavo_onednn_from} CACHE STRING
  "where oneDNN is from: wheel; system, which is CMAKE_PREFIX_PATH and the distribution; or none: libtorch's BLAS multiplies on CPUs")
if(NOT OCTAVO_LIBRARIES MATCHES "^(wheel|system|none)$")
  message(FATAL_ERROR "OCTAVO_LIBRARIES: wanted wheel, system or none, found '${OCTAVO_LIBRARIES}'")
endif()
if(OCTAVO_LIBRARIES STREQUAL "system")
  find_package(dnnl 3.2 CONFIG QUIET)
endif()
set(octavo_onednn_include)
if(OCTAVO_LIBRARIES STREQUAL "none")
  message(STATUS "oneDNN: none; libtorch's BLAS multiplies on CPUs, in FP32")
  add_library(octavo_onednn INTERFACE)
elseif(dnnl_FOUND)
  message(STATUS "oneDNN: ${dnnl_VERSION} of ${dnnl_DIR}")
  add_library(octavo_onednn INTERFACE)
  target_link_libraries(octavo_onednn INTERFACE DNNL::dnnl)
  get_target_property(octavo_onednn_include DNNL::dnnl INTERFACE_INCLUDE_DIRECTORIES)
elseif(EXISTS ${OCTAVO_VENV}/lib/libdnnl.so.3)
  message(STATUS "oneDNN: of the wheel (OCTAVO_LIBRARIES=${OCTAVO_LIBRARIES})")
  add_library(octavo_onednn SHARED IMPORTED)
  set_target_properties(octavo_onednn PROPERTIES IMPORTED_LOCATION ${OCTAVO_VENV}/lib/libdnnl.so.3)
  set(octavo_onednn_include ${OCTAVO_VENV}/include)
else()
  message(FATAL_ERROR "OCTAVO_LIBRARIES=${OCTAVO_LIBRARIES}: wanted oneDNN 3.2 or later, found none of the distribution's and no wheel's under "
    "${OCTAVO_VENV}; run ./bootstrap build on x86-64, or give -D OCTAVO_LIBRARIES=none")
endif()

add_library(octavo_torch INTERFACE)
target_include_directories(octavo_torch SYSTEM INTERFACE
  ${octavo_onednn_include}
  ${OCTAVO_SITE_PACKAGES}/torch/include
  ${OCTAVO_SITE_PACKAGES}/torch/include/torch/csrc/api/include)
target_link_libraries(octavo_torch INTERFACE octavo_onednn lt::torch_cpu lt::c10)
# Libraries used only through self-registration would be dropped otherwise.
target_link_options(octavo_torch INTERFACE LINKER:--no-as-needed)
