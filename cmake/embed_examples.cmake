# cmake -D FOLDER=configs -D OUTPUT=FILE.cpp -D SHARE=DIR -P embed_examples.cmake: the YAML files of FOLDER as a C++ source
# (src/cli/examples.h), so that they are wherever the program is; and its JSON schemas copied to SHARE, where a build's program
# looks for them as an installed one does.
file(GLOB examples ${FOLDER}/*.yaml)
set(source "// Made from configs/ by cmake/embed_examples.cmake.\n\n#include \"cli/examples.h\"\n\nnamespace octavo::cli {\n\n")
string(APPEND source "std::span<const Example> example_files() {\n  static constexpr Example kExamples[] = {\n")
foreach(example IN LISTS examples)
  get_filename_component(name ${example} NAME_WE)
  file(READ ${example} text)
  string(APPEND source "      {\"${name}\", R\"example(${text})example\"},\n")
endforeach()
string(APPEND source "  };\n  return kExamples;\n}\n\n}  // namespace octavo::cli\n")
file(WRITE ${OUTPUT} "${source}")
file(COPY ${FOLDER}/ DESTINATION ${SHARE} FILES_MATCHING PATTERN "*.schema.json")
