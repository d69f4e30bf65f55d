# What the wheel (packaging/backend) and the Debian package (packaging/deb) are made of: cmake --install DIR --component octavo.
# Files are copied as they are. install(TARGETS) would give every library of the build tree a search path with an empty entry,
# which is the current folder; packaging/backend/bundle.py writes the paths that installed libraries need.
add_custom_target(octavo_installed
  DEPENDS octavo octavo_light octavo_core octavo_cuda octavo_arrow octavo_s3 octavo_absent octavo_absent_driver)

install(PROGRAMS $<TARGET_FILE:octavo> DESTINATION bin COMPONENT octavo)
foreach(library octavo_light octavo_core octavo_cuda octavo_arrow octavo_s3 octavo_absent)
  install(PROGRAMS $<TARGET_FILE:${library}> DESTINATION lib COMPONENT octavo)
endforeach()
install(PROGRAMS $<TARGET_FILE:octavo_absent_driver> DESTINATION lib/absent COMPONENT octavo)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/configs DESTINATION share COMPONENT octavo FILES_MATCHING PATTERN "*.yaml")
