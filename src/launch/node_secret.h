#pragma once
// The rendezvous secret of a run on several nodes, when the environment names none: a file in the
// home folder, which node 0 makes and which the other nodes read (shared homes have it, others need
// a copy).

#include <chrono>
#include <functional>

#include "base/file.h"

namespace octavo::launch {

// ~/.octavo-rendezvous-secret, as the SLURM scripts have it; empty without HOME.
fs::path secret_file_of_user();

// Readable by its owner alone, and whole or not there. Returns whether this call made it.
bool make_secret_file(const fs::path& path);

// Sees to it that OCTAVO_RENDEZVOUS_SECRET or …_SECRET_FILE is set: node 0 makes the file, the
// others wait for it as long as `patience`, or until `interrupted` says that the run is to stop.
void have_node_secret(int node, std::chrono::milliseconds patience,
                      const std::function<bool()>& interrupted);

}  // namespace octavo::launch
