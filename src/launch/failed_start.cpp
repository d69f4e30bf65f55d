#include "launch/failed_start.h"

#include <chrono>

#include "base/log.h"
#include "launch/messages.h"
#include "launch/node_secret.h"
#include "launch/run.h"
#include "launch/terms.h"
#include "rendezvous/auth.h"
#include "rendezvous/keys.h"

namespace octavo::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFindNodeZero{5'000}, kReadPlan{5'000};

bool needs_node(const RunTerms& run, int node) {
  return run.least == run.most && run.spares == 0 && node < run.most;
}

}  // namespace

void tell_failed_start(rendezvous::Client& client, int node, const Error& error) noexcept {
  try {
    if (!needs_node(read_terms(client.get(kTermsKey, kReadPlan)), node)) return;
    const StartPlan plan = read_plan(client.get(kPlanKey, kReadPlan));
    const std::string mine = rendezvous::new_secret();
    if (plan.stop || client.compare_set(node_key(plan.generation, node), "", mine) != mine) return;
    const int code = static_cast<int>(error.code());
    const std::string why = str("node ", node, " ended with exit code ", code, ": ", error.what());
    client.set(read_key(plan.generation, node), "1");  // node 0 is not to wait until it is read
    // The alarm first, as wherever a node leaves a generation.
    client.compare_set(rendezvous::alarm_key(plan.generation), "", why);
    const Outcome end{.code = code, .cause = Cause::kItself, .kind = EndKind::kUsage, .what = why};
    client.compare_set(end_key(plan.generation, node), "", written({.outcome = end}));
  } catch (const std::exception& problem) {
    log_debug(str("node 0 could not be told: ", problem.what()));  // what matters is `error`
  }
}

void tell_failed_start(const config::Settings& settings, const Variables& variables,
                       const Error& error) noexcept {
  try {
    if (error.code() != ExitCode::kUsage) return;  // what may be better in a minute ends nothing
    const RankInfo own = node_rank_info(settings, variables);
    if (own.nodes == 1 || own.node == 0) return;
    have_node_secret(own.node, milliseconds(0), [] { return false; });
    log_info(str("telling node 0 at ", own.master_address, " that node ", own.node,
                 " cannot start its ranks"));
    rendezvous::Client client(own.master_address, own.master_port,
                              rendezvous::secret_from_environment(), kFindNodeZero);
    client.set_answer_timeout(kFindNodeZero);
    tell_failed_start(client, own.node, error);
  } catch (const std::exception& problem) {
    log_debug(str("node 0 could not be told: ", problem.what()));
  }
}

}  // namespace octavo::launch
