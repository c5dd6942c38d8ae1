# What `cmake --install` puts in place: include/co2, the library, the program, examples, studies, and the CMake package
# with co2::co2.
include(CMakePackageConfigHelpers)
set(_co2_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/co2)

install(TARGETS co2 co2_gloo_headers EXPORT co2Targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/co2 DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h)
if(CO2_GLOO_INCLUDE_DIR STREQUAL "${PROJECT_SOURCE_DIR}/src/comm/gloo_headers")
  # Not where compilers look by themselves: only who asks for co2::gloo_headers shall see them.
  install(DIRECTORY ${CO2_GLOO_INCLUDE_DIR} DESTINATION ${CMAKE_INSTALL_DATADIR}/co2)
  target_include_directories(co2_gloo_headers SYSTEM INTERFACE
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_DATADIR}/co2/gloo_headers>)
endif()
install(EXPORT co2Targets NAMESPACE co2:: DESTINATION ${_co2_package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/co2Config.cmake.in ${PROJECT_BINARY_DIR}/co2Config.cmake
  INSTALL_DESTINATION ${_co2_package_dir})
# Before 1.0 every minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/co2ConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/co2Config.cmake ${PROJECT_BINARY_DIR}/co2ConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/Co2LibTorch.cmake DESTINATION ${_co2_package_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(TARGET co2_program)  # src/cli installs it
  file(GLOB _co2_studies CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/studies/*.toml)
  install(FILES ${_co2_studies} DESTINATION ${CMAKE_INSTALL_DATADIR}/co2/studies)
  # It finds LibTorch where it was built against it. Said outright, as CMake drops folders inside the source tree (.venv)
  # from the path that it derives by itself.
  set_target_properties(co2_program PROPERTIES INSTALL_RPATH "${CO2_TORCH_HOME}/lib")
endif()
