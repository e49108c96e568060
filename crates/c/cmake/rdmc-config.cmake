# find_package(rdmc): the target rdmc::rdmc, with the C header and the C++ header. Finds both from its own place, PREFIX/share/cmake/rdmc.
include_guard(GLOBAL)
get_filename_component(_rdmc_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
find_library(RDMC_LIBRARY NAMES rdmc PATHS "${_rdmc_prefix}" REQUIRED NO_DEFAULT_PATH
             PATH_SUFFIXES lib "lib/${CMAKE_LIBRARY_ARCHITECTURE}" lib64)
find_path(RDMC_INCLUDE_DIR NAMES rdmc.h PATHS "${_rdmc_prefix}" REQUIRED NO_DEFAULT_PATH PATH_SUFFIXES include)
mark_as_advanced(RDMC_LIBRARY RDMC_INCLUDE_DIR)
if(NOT TARGET rdmc::rdmc)
  add_library(rdmc::rdmc SHARED IMPORTED)
  set_target_properties(rdmc::rdmc PROPERTIES IMPORTED_LOCATION "${RDMC_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${RDMC_INCLUDE_DIR}")
endif()
set(rdmc_FOUND TRUE)
