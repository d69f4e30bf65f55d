# What the wheel (packaging/backend) and the Debian package (packaging/deb) are made of: cmake --install DIR --component octavo.
# Files are copied as they are. install(TARGETS) would give every library of the build tree a search path with an empty entry,
# which is the current folder; packaging/backend/bundle.py writes the paths that installed libraries need.
set(octavo_libraries octavo_light octavo_core octavo_cuda octavo_arrow octavo_s3)
set(octavo_fake_libraries octavo_fake_cuda octavo_fake_cuda_driver)  # in a folder that no search path names
set(octavo_torch_libraries octavo_core octavo_cuda octavo_arrow octavo_s3)
if(TARGET octavo_kernels_cuda)  # where there is an nvcc: src/kernels
  list(APPEND octavo_libraries octavo_kernels_cuda)
  list(APPEND octavo_torch_libraries octavo_kernels_cuda)
endif()
add_custom_target(octavo_installed DEPENDS octavo ${octavo_libraries} ${octavo_fake_libraries})

# Search paths of the build tree are relative, so that the folder of a build is in none of the files (tests/faults/supply.py).
set(octavo_search_path $ORIGIN)
get_filename_component(octavo_cudart_folder ${OCTAVO_CUDART} DIRECTORY)
foreach(folder ${OCTAVO_SITE_PACKAGES}/torch/lib ${octavo_cudart_folder} ${OCTAVO_SITE_PACKAGES}/pyarrow ${OCTAVO_VENV}/lib)
  file(RELATIVE_PATH octavo_relative ${CMAKE_LIBRARY_OUTPUT_DIRECTORY} ${folder})
  list(APPEND octavo_search_path $ORIGIN/${octavo_relative})
endforeach()
if(dnnl_FOUND)  # from outside: before the wheel's, which is last
  get_target_property(octavo_onednn_file DNNL::dnnl LOCATION)
  get_filename_component(octavo_onednn_folder ${octavo_onednn_file} DIRECTORY)
  list(INSERT octavo_search_path -1 ${octavo_onednn_folder})
endif()
set_target_properties(${octavo_torch_libraries} PROPERTIES
  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${octavo_search_path}")
set_target_properties(octavo_fake_cuda_driver PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH $ORIGIN)

install(PROGRAMS $<TARGET_FILE:octavo> DESTINATION bin COMPONENT octavo)
foreach(library ${octavo_libraries})
  install(PROGRAMS $<TARGET_FILE:${library}> DESTINATION lib COMPONENT octavo)
endforeach()
foreach(library ${octavo_fake_libraries})
  install(PROGRAMS $<TARGET_FILE:${library}> DESTINATION lib/fake_cuda COMPONENT octavo)
endforeach()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/configs DESTINATION share COMPONENT octavo FILES_MATCHING PATTERN "*.yaml"
  PATTERN "*.schema.json")

# The SBOM: what these files link and load, asked of this machine's loader; licences.txt knows Debian 12's packages.
set(octavo_system)
if(EXISTS /etc/os-release)
  file(STRINGS /etc/os-release octavo_system REGEX "^VERSION_CODENAME=bookworm")
endif()
if(CMAKE_CROSSCOMPILING OR NOT octavo_system)
  message(STATUS "no SBOM (octavo.cdx.json): it is written on Debian 12 alone, for that machine; packages cannot be made of this build")
elseif(NOT OCTAVO_SANITIZE)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(octavo_sbom ${CMAKE_BINARY_DIR}/octavo.cdx.json)
  add_custom_command(OUTPUT ${octavo_sbom} VERBATIM COMMENT "Writing octavo.cdx.json"
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/packaging/sbom ${CMAKE_BINARY_DIR} ${OCTAVO_SITE_PACKAGES} ${octavo_sbom}
    DEPENDS octavo ${octavo_libraries} ${octavo_fake_libraries} ${CMAKE_SOURCE_DIR}/packaging/sbom
      ${CMAKE_SOURCE_DIR}/packaging/licences.txt ${CMAKE_SOURCE_DIR}/packaging/requirements.lock
      ${CMAKE_SOURCE_DIR}/packaging/backend/bundle.py ${CMAKE_SOURCE_DIR}/packaging/backend/octavo_build.py
      ${CMAKE_SOURCE_DIR}/pyproject.toml)
  add_custom_target(octavo_sbom ALL DEPENDS ${octavo_sbom})
  add_dependencies(octavo_installed octavo_sbom)
  install(FILES ${octavo_sbom} DESTINATION share COMPONENT octavo)
endif()
