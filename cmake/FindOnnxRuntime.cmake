# Finds ONNX Runtime: headers and one shared library that belong together.
#
# 1. ONNXRUNTIME_ROOT (CMake variable or environment): an unpacked official release with include/ and lib/.
# 2. The npm package com.github.asus4.onnxruntime in node_modules: a re-package of Microsoft's release, CPU only,
#    held to the sha256 below.
#
# Defines the imported target OnnxRuntime::OnnxRuntime, and OnnxRuntime_LIBRARY, OnnxRuntime_INCLUDE_DIR and
# OnnxRuntime_SONAME, the name under which the library is looked for at run time.

set(_ort_npm_sha256 5715f06d8992ca8eeeddcce43df3a7d38f97d537052126f558e912cb312460ca)
set(_ort_npm "${CMAKE_CURRENT_SOURCE_DIR}/node_modules/com.github.asus4.onnxruntime")

if(NOT ONNXRUNTIME_ROOT)
  set(ONNXRUNTIME_ROOT "$ENV{ONNXRUNTIME_ROOT}")
endif()

if(ONNXRUNTIME_ROOT)
  find_path(OnnxRuntime_INCLUDE_DIR onnxruntime_cxx_api.h
    PATHS "${ONNXRUNTIME_ROOT}/include" PATH_SUFFIXES onnxruntime onnxruntime/core/session NO_DEFAULT_PATH NO_CACHE)
  find_library(OnnxRuntime_LIBRARY onnxruntime
    PATHS "${ONNXRUNTIME_ROOT}/lib" "${ONNXRUNTIME_ROOT}/lib64" NO_DEFAULT_PATH NO_CACHE)
  if(NOT OnnxRuntime_INCLUDE_DIR OR NOT OnnxRuntime_LIBRARY)
    message(FATAL_ERROR "ONNXRUNTIME_ROOT is ${ONNXRUNTIME_ROOT}: expected include/onnxruntime_cxx_api.h and "
      "lib/libonnxruntime.so there. Unpack an official ONNX Runtime release and point ONNXRUNTIME_ROOT at it.")
  endif()
else()
  set(OnnxRuntime_INCLUDE_DIR
    "${_ort_npm}/Plugins/iOS~/onnxruntime.xcframework/ios-arm64/onnxruntime.framework/Headers")
  set(OnnxRuntime_LIBRARY "${_ort_npm}/Plugins/Linux/x64/libonnxruntime.so")
  if(NOT EXISTS "${OnnxRuntime_LIBRARY}" OR NOT EXISTS "${OnnxRuntime_INCLUDE_DIR}/onnxruntime_cxx_api.h")
    message(FATAL_ERROR "ONNX Runtime is missing: run npm ci, or set ONNXRUNTIME_ROOT to an official release.")
  endif()
  file(SHA256 "${OnnxRuntime_LIBRARY}" _ort_found_sha256)
  if(NOT _ort_found_sha256 STREQUAL _ort_npm_sha256)
    message(FATAL_ERROR "${OnnxRuntime_LIBRARY} has sha256 ${_ort_found_sha256}, expected ${_ort_npm_sha256}. "
      "Remove node_modules and run npm ci.")
  endif()
endif()

get_filename_component(OnnxRuntime_LIBRARY "${OnnxRuntime_LIBRARY}" REALPATH)
set(OnnxRuntime_SONAME libonnxruntime.so.1)

if(NOT TARGET OnnxRuntime::OnnxRuntime)
  add_library(OnnxRuntime::OnnxRuntime SHARED IMPORTED)
  set_target_properties(OnnxRuntime::OnnxRuntime PROPERTIES
    IMPORTED_LOCATION "${OnnxRuntime_LIBRARY}"
    IMPORTED_SONAME "${OnnxRuntime_SONAME}"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${OnnxRuntime_INCLUDE_DIR}"
    INTERFACE_INCLUDE_DIRECTORIES "${OnnxRuntime_INCLUDE_DIR}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OnnxRuntime DEFAULT_MSG OnnxRuntime_LIBRARY OnnxRuntime_INCLUDE_DIR)
