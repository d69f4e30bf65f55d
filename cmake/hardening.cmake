# Release builds: what the compiler and the linker can do against memory faults, and nothing of the folder that was built in.
# tests/faults/supply.py reads the built files for all of it. Sanitizer builds have checks of their own.
include(CheckPIESupported)
check_pie_supported()  # position-independent executables, as CMAKE_POSITION_INDEPENDENT_CODE asks

set(octavo_hardening
  -fstack-protector-strong      # a canary between a function's buffers and its return address
  -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2   # memcpy and its kin check the sizes that the compiler knows
  -D_GLIBCXX_ASSERTIONS         # bounds of operator[], front of empty containers, null smart pointers
  # One text of a program wherever it is built: paths in messages and debug information are from the source folder.
  -ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)
# Indirect jumps land where they are meant to: CET, or its counterpart on Arm.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND octavo_hardening -fcf-protection=full)
  list(APPEND octavo_hardening -fstack-clash-protection)  # no jump over the stack's guard page; clang 14 has none for Arm
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  list(APPEND octavo_hardening -mbranch-protection=standard)
endif()
foreach(option ${octavo_hardening})
  add_compile_options($<$<CONFIG:Release>:${option}>)
endforeach()
if(CMAKE_UNITY_BUILD)
  # DWARF 5 has checksums of the sources: here of the made-up ones that join others, and these name the folder.
  add_compile_options($<$<CONFIG:Release>:-gdwarf-4> $<$<CONFIG:Release>:-g1>)  # the former alone would mean -g2
endif()
# Relocations read-only before main, no executable stack, code on pages of its own.
add_link_options($<$<CONFIG:Release>:LINKER:-z,relro,-z,now,-z,noexecstack,-z,separate-code>)
