#include "launch/threads.h"

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "config/key_makers.h"
#include "launch/variables.h"

namespace octavo::launch {
namespace {

// "4" or, one number for each level, "4,2"; 0 for anything else, which the runtime ignores after a
// warning.
int thread_count(const std::string& value) {
  const auto threads = config::parse_number<int>(value.substr(0, value.find(',')));
  return threads ? std::max(0, *threads) : 0;
}

}  // namespace

ThreadChoice choose_threads(int64_t num_threads, const RankInfo& rank_info,
                            const Variables& variables, const CpuShare& share) {
  const int ranks = rank_info.local_ranks;
  const std::string usable =
      words_of(share) + (ranks > 1 ? str(", ", ranks, " ranks on this node") : "");
  if (num_threads > 0)
    return {static_cast<int>(num_threads), str("as num_threads says (found ", usable, ")")};
  // Given to torch by name: it would take no more than the physical cores of the variable's
  // threads.
  const std::string threads = variable(variables, "OMP_NUM_THREADS").value_or("");
  if (const int count = thread_count(threads); count > 0)
    return {count,
            str("as OMP_NUM_THREADS=", printable(threads, 40), " says (found ", usable, ")")};
  const bool bind = rank_info.launcher == "slurm" || rank_info.launcher == "mpi";
  return {threads_of_rank(share, ranks, bind), str("for ", usable)};
}

}  // namespace octavo::launch
