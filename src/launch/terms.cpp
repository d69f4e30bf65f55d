#include "launch/terms.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "launch/messages.h"

namespace octavo::launch {
namespace {

constexpr std::chrono::milliseconds kReadTerms{10'000};

std::string nodes_text(const RunTerms& terms) {
  return terms.least == terms.most ? str(terms.most) : str(terms.least, ":", terms.most);
}

}  // namespace

RunTerms terms_of(const config::Settings& settings, const RankInfo& node) {
  RunTerms terms;
  terms.spares = settings.nnodes > 0 ? static_cast<int>(settings.spares) : 0;
  terms.most = node.nodes - terms.spares;
  terms.least = settings.least_nodes > 0 ? static_cast<int>(settings.least_nodes) : terms.most;
  terms.local_ranks = node.local_ranks;
  terms.max_restarts = static_cast<int>(settings.max_restarts);
  return terms;
}

std::string differences(const RunTerms& own, const RunTerms& first) {
  std::vector<std::string> found;
  const auto compare = [&](const char* option, const auto& here, const auto& there) {
    if (here != there) found.push_back(str(option, " ", here, " (node 0 has ", there, ")"));
  };
  compare("nnodes", nodes_text(own), nodes_text(first));
  compare("spares", own.spares, first.spares);
  compare("nproc", own.local_ranks, first.local_ranks);
  compare("max_restarts", own.max_restarts, first.max_restarts);
  return join(found, ", ");
}

void say_terms(rendezvous::Client& client, const RunTerms& own) {
  client.set(kTermsKey, written(own));
}

void check_terms(rendezvous::Client& client, int node, const RunTerms& own) {
  const RunTerms first = read_terms(client.get(kTermsKey, kReadTerms));
  const std::string found = differences(own, first);
  if (found.empty()) return;
  fail(ExitCode::kUsage, "launch", "wanted on every node the options of node 0, found on node ",
       node, " ", found, "; start octavo launch with the same options on every node");
}

}  // namespace octavo::launch
