# Toolchain for aarch64 Linux with clang, from any other machine: OCTAVO_SYSROOT names a folder with Debian's arm64 packages,
# unpacked (tests/integration/aarch64.py makes one). Programs run in QEMU's user mode.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(OCTAVO_SYSROOT "" CACHE PATH "a folder with Debian's arm64 packages, unpacked")
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES OCTAVO_SYSROOT)  # CMake's own small builds read this file too
if(NOT EXISTS ${OCTAVO_SYSROOT}/usr/lib/aarch64-linux-gnu/libc.so)
  message(FATAL_ERROR "OCTAVO_SYSROOT: wanted a folder with Debian's arm64 packages, unpacked, found '${OCTAVO_SYSROOT}'; "
    "tests/integration/aarch64.py makes one")
endif()
set(CMAKE_SYSROOT ${OCTAVO_SYSROOT})
set(CMAKE_CXX_COMPILER clang++)
set(CMAKE_CXX_COMPILER_TARGET aarch64-linux-gnu)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
add_link_options(-fuse-ld=lld)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${OCTAVO_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${OCTAVO_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${OCTAVO_SYSROOT}/usr/share/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${OCTAVO_SYSROOT})
