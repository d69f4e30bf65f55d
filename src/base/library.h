#pragma once
// Libraries that come in Python wheels (torch, oneDNN, Arrow): finding them without Python, and
// saying in plain words what is missing. A loader's message names a file; a person needs to know
// which package has it, where it was looked for and what to type.

#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace octavo {

fs::path own_program();  // its full path, to start it again

// The folder of the libraries that belong to this program: lib/ beside its bin/.
fs::path own_library_folder();

// OCTAVO_SITE_PACKAGES names a site-packages folder with the wheels, for programs that are not
// installed in one. The loader reads its search path at the start of a process only, so the program
// starts itself again with the folders on it; returns when there is nothing to do.
void use_site_packages(char** argv);

// The folders where CUDA's wheels keep a part ("cuda_runtime"): one for all parts since CUDA 13,
// one for each before. First the one for the CUDA that this program was built with.
std::vector<fs::path> cuda_wheel_folders(const fs::path& site_packages, std::string_view part);

// What was wanted, what was found, where it was looked for and what to do, when the loader refused
// `library` and `said` why.
std::string loader_advice(const fs::path& library, std::string_view said);

// The site-packages folder that libtorch was loaded from, "" when it is not loaded.
fs::path torch_site_packages();

// The version that the package's folder tells ("2.15.0"), or "" when there is no such folder. Its
// name may end with the number of a CUDA (transformer_engine_cu13).
std::string installed_version(const fs::path& site_packages, std::string_view package);
// The version that this program was built with.
std::string wanted_version(std::string_view package);

}  // namespace octavo
