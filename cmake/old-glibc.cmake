# Toolchain file for an addon that runs where glibc is 2.31 or newer (scripts/portable.mjs): the machine's own compiler and
# its libstdc++, linked into the addon, over the headers and libraries of Debian 11 in RADSERVE_SYSROOT.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES RADSERVE_SYSROOT)
set(CMAKE_SYSROOT "${RADSERVE_SYSROOT}")
set(RADSERVE_OLD_GLIBC ON)
# Debian's GCC looks into the machine's own folders before those of the sysroot, unless they are named.
set(_folders "-L${RADSERVE_SYSROOT}/usr/lib/x86_64-linux-gnu -L${RADSERVE_SYSROOT}/lib/x86_64-linux-gnu")
# libgcc_s stays the system's: Node.js and ONNX Runtime need it too, and an exception has one unwinder.
set(_standard "-static-libstdc++ -Wl,--exclude-libs,ALL")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "${_folders} ${_standard}")
set(CMAKE_EXE_LINKER_FLAGS_INIT "${_folders}")
