# Installation: headers, both libraries, the CMake package and the pkg-config file.

include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/weft")

install(FILES ${WEFT_HEADERS} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/weft")

# Both libraries are exported as weft::weft; the package file loads one of the two.
install(TARGETS weft_static EXPORT weft-static ARCHIVE)
install(TARGETS weft_shared EXPORT weft-shared LIBRARY)
install(EXPORT weft-static NAMESPACE weft:: FILE weft-static.cmake DESTINATION "${package_dir}")
install(EXPORT weft-shared NAMESPACE weft:: FILE weft-shared.cmake DESTINATION "${package_dir}")

configure_package_config_file(cmake/weftConfig.cmake.in weftConfig.cmake
  INSTALL_DESTINATION "${package_dir}")
# Before 1.0.0 a minor version may change the API.
write_basic_package_version_file(weftConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/weftConfig.cmake" "${PROJECT_BINARY_DIR}/weftConfigVersion.cmake"
  DESTINATION "${package_dir}")

# The pkg-config file finds the prefix from its own place, so an installed tree can be moved.
file(RELATIVE_PATH WEFT_PC_PREFIX "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
string(REGEX REPLACE "/$" "" WEFT_PC_PREFIX "${WEFT_PC_PREFIX}")
set(WEFT_PC_LIBS_PRIVATE "-pthread")
foreach(library IN LISTS WEFT_CONTEXT_LIBRARIES)
  string(APPEND WEFT_PC_LIBS_PRIVATE " -l${library}")
endforeach()
configure_file(cmake/weft.pc.in weft.pc @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/weft.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
