# toml++, headers only, for who reads TOML: target_include_directories(... SYSTEM PRIVATE ${CO2_TOMLPLUSPLUS_INCLUDE_DIR}).
find_path(CO2_TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h)
mark_as_advanced(CO2_TOMLPLUSPLUS_INCLUDE_DIR)
if(NOT CO2_TOMLPLUSPLUS_INCLUDE_DIR)
  message(FATAL_ERROR "co2 found no toml++ (toml++/toml.h), which reads configuration files. Install Debian's "
    "libtomlplusplus-dev (scripts/setup does), name it with CMAKE_PREFIX_PATH, or build the library alone: "
    "cmake -DCO2_BUILD_PROGRAM=OFF")
endif()
