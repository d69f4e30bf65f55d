# octavo_module(NAME [TORCH] [FOLDERS ...] [SOURCES ...]): one object library per module of src/, of all .cpp files in its folder
# and in the FOLDERS below it, unless SOURCES says which. Modules without TORCH go into liboctavo_light.so (fast start: --help,
# config, data, launchers); modules with TORCH into liboctavo_core.so, which the executable loads when a verb needs it, and
# into nothing where OCTAVO_TORCH is off.

# In the order of the table in docs/internals/tour.md: a module may include only modules before it.
set(OCTAVO_MODULES base chart fake_cuda model_config config migrate python_env fp8 kernels tokenizer jinja hub object_store rendezvous launch plan data engine nn models optim dist
  checkpoint monitor run_report foreign_logs sweep eval train export bench verify diagnose compare audit)
if(NOT OCTAVO_TORCH)  # what has no part without it
  list(REMOVE_ITEM OCTAVO_MODULES fake_cuda nn models dist eval train export bench diagnose)
  set(octavo_kinds light)
else()
  set(octavo_kinds light torch)
endif()

add_library(octavo_options INTERFACE)
target_compile_options(octavo_options INTERFACE -Wall -Wextra -Wshadow $<$<BOOL:${OCTAVO_WERROR}>:-Werror> -ffp-contract=off
  -fno-omit-frame-pointer)
# GCC's warnings that clang does not have: members that a designated initializer leaves out have their defaults, which is meant;
# and a joined build includes .cpp files, whose unnamed namespaces it takes for a header's. And GCC 12 takes the content of an
# empty std::optional that is copied for a value that is read.
target_compile_options(octavo_options INTERFACE
  $<$<CXX_COMPILER_ID:GNU>:-Wno-missing-field-initializers> $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
target_include_directories(octavo_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
find_program(OCTAVO_LLD ld.lld)  # faster than others, and not needed
if(OCTAVO_LLD)
  target_link_options(octavo_options INTERFACE -fuse-ld=lld)
endif()
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)  # files joined, where a build joins files: .ci/run
if(OCTAVO_SANITIZE)
  target_compile_options(octavo_options INTERFACE -fsanitize=${OCTAVO_SANITIZE} -fno-sanitize-recover=undefined)
  add_compile_options(-gline-tables-only)  # enough for a report, and faster to build than all of -g
  # Files of a module joined, which builds faster. The names of helpers must differ within a module, as .ci/tidy wants too.
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 12)
  # Ten million inputs want speed: no call for every comparison (the dictionaries know the words), and of the modules just
  # what a target needs, as the counters of all edges are read after every input.
  target_compile_options(octavo_options INTERFACE -O2 -ffunction-sections -fno-sanitize-coverage=trace-cmp)
  # Executables hold the runtimes of the sanitizers, and lend them to the libraries.
  target_link_options(octavo_options INTERFACE -fsanitize=${OCTAVO_SANITIZE} LINKER:--gc-sections)
endif()

# Precompiled headers: one for modules without torch, one for those with it, and the same two with GoogleTest for tests. All are
# compiled as position-independent code, so everything that shares one is, too.
set(octavo_light_headers <nlohmann/json.hpp> <algorithm> <chrono> <filesystem> <functional> <map> <memory> <optional> <set>
  <string> <vector>)
set(octavo_torch_headers <ATen/ATen.h> <ATen/Parallel.h> <torch/csrc/autograd/custom_function.h>
  <torch/csrc/autograd/autograd.h>)
foreach(kind ${octavo_kinds})
  foreach(part pch test_pch)
    add_library(octavo_${kind}_${part} OBJECT EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/cmake/pch.cpp)
    set_target_properties(octavo_${kind}_${part} PROPERTIES UNITY_BUILD OFF)
    target_link_libraries(octavo_${kind}_${part} PRIVATE octavo_options nlohmann_json::nlohmann_json)
    target_precompile_headers(octavo_${kind}_${part} PRIVATE ${octavo_light_headers})
  endforeach()
  if(GTest_FOUND)
    target_link_libraries(octavo_${kind}_test_pch PRIVATE GTest::gtest)
    target_precompile_headers(octavo_${kind}_test_pch PRIVATE <gtest/gtest.h>)
  endif()
endforeach()
if(OCTAVO_TORCH)
  foreach(part pch test_pch)
    target_link_libraries(octavo_torch_${part} PRIVATE octavo_torch)
    target_precompile_headers(octavo_torch_${part} PRIVATE ${octavo_torch_headers})
  endforeach()
endif()

# Builds that join files (CMAKE_UNITY_BUILD: .ci/run, the sanitizers) leave alone what Highway compiles once for each
# instruction set.
function(octavo_keep_apart)
  foreach(source ${ARGN})
    file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/${source} several LIMIT_COUNT 1 REGEX "foreach_target\\.h")
    if(several)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()

function(octavo_module name)
  cmake_parse_arguments(MODULE "TORCH" "" "FOLDERS;SOURCES" ${ARGN})
  if(MODULE_TORCH AND NOT OCTAVO_TORCH)
    return()
  endif()
  if(NOT MODULE_SOURCES)
    set(patterns *.cpp)
    foreach(folder ${MODULE_FOLDERS})
      list(APPEND patterns ${folder}/*.cpp)
    endforeach()
    file(GLOB MODULE_SOURCES CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${patterns})
  endif()
  octavo_keep_apart(${MODULE_SOURCES})
  add_library(octavo_${name} OBJECT ${MODULE_SOURCES})
  target_link_libraries(octavo_${name} PRIVATE octavo_options)
  if(MODULE_TORCH)
    target_link_libraries(octavo_${name} PRIVATE octavo_torch)
    target_precompile_headers(octavo_${name} REUSE_FROM octavo_torch_pch)
    set_property(GLOBAL APPEND PROPERTY OCTAVO_CORE_MODULES octavo_${name})
  else()
    target_precompile_headers(octavo_${name} REUSE_FROM octavo_light_pch)
    set_property(GLOBAL APPEND PROPERTY OCTAVO_LIGHT_MODULES octavo_${name})
  endif()
endfunction()

# What is tested under which sanitizers. In the gate (preset fuzz): the modules that read untrusted bytes, which the fuzz targets
# need too (fuzz_light; data's own tests need liboctavo_arrow.so, and with it all of the light part). At night, since all of the program must be built for them: the others (asan), and threads (tsan).
if(OCTAVO_SANITIZE MATCHES "thread")
  set(OCTAVO_SANITIZED_TESTS base rendezvous launch monitor data checkpoint dist)
elseif(OCTAVO_SANITIZE MATCHES "fuzzer")
  set(OCTAVO_SANITIZED_TESTS base model_config config migrate python_env tokenizer hub rendezvous audit)
  set(octavo_tested fuzz_light)
else()
  set(OCTAVO_SANITIZED_TESTS data fp8 launch cli optim_light checkpoint sweep run_report foreign_logs compare monitor dist train)
endif()
if(NOT octavo_tested)
  set(octavo_tested octavo_light)
endif()
add_custom_target(sanitized_tests)

# octavo_test(MODULE [TORCH] [SOURCES ...]): a GoogleTest runner bin/test_MODULE of all .cpp files in the folder, unless
# SOURCES says which; registered with ctest. With TORCH none where OCTAVO_TORCH is off.
function(octavo_test name)
  cmake_parse_arguments(TEST "TORCH" "" "SOURCES" ${ARGN})
  if(TEST_TORCH AND NOT OCTAVO_TORCH)
    return()
  endif()
  if(NOT TEST_SOURCES)
    file(GLOB TEST_SOURCES CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *.cpp)
  endif()
  add_executable(test_${name} ${TEST_SOURCES})
  if(OCTAVO_JOIN_TESTS)
    set_target_properties(test_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10)
  endif()
  target_link_libraries(test_${name} PRIVATE octavo_options ${octavo_tested} GTest::gtest_main nlohmann_json::nlohmann_json)
  target_include_directories(test_${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  if(TEST_TORCH)
    target_link_libraries(test_${name} PRIVATE octavo_core octavo_torch)
    target_precompile_headers(test_${name} REUSE_FROM octavo_torch_test_pch)
  else()
    target_precompile_headers(test_${name} REUSE_FROM octavo_light_test_pch)
  endif()
  target_compile_options(test_${name} PRIVATE -fPIC)  # as the precompiled header; -fPIE would differ
  add_test(NAME ${name} COMMAND test_${name})
  # Thousands of tiny parallel calls: threads that spin while they wait would cost ten times their work.
  set_tests_properties(${name} PROPERTIES ENVIRONMENT OMP_WAIT_POLICY=passive)
  if(OCTAVO_SANITIZE AND name IN_LIST OCTAVO_SANITIZED_TESTS)
    add_dependencies(sanitized_tests test_${name})
    # torch, its OpenMP and Gloo are not built for the thread sanitizer: what they order among themselves it cannot see.
    set_tests_properties(${name} PROPERTIES LABELS sanitized ENVIRONMENT
      "OMP_WAIT_POLICY=passive;OMP_NUM_THREADS=1;TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.txt:second_deadlock_stack=1:die_after_fork=0")
  endif()
endfunction()
