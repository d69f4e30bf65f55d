#pragma once
// Gloo asks nobody who he is, and keeps whatever connects to its ports for as long as it lives: a
// foreign client could use up a rank's open files. It needs the ports only until the ranks of a
// group have found each other, but has no way to close them.

#include <set>

namespace octavo::dist {

std::set<int> listening_sockets();  // of this process

// From now on the system drops whatever comes to these sockets, as a firewall would; the
// connections that they have led to stay. Said aloud where the system refuses.
void refuse_new_connections(const std::set<int>& listening);

}  // namespace octavo::dist
