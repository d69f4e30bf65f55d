#include "train/reporting/expert_load.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace octavo::train {

void report_experts(const nn::RoutingSizes& sizes, const std::vector<double>& told, double passes,
                    monitor::StepRecord& record) {
  constexpr std::ptrdiff_t kCounts = 2;  // behind both losses
  record.balance_loss = told[0] / passes;
  record.router_z = told[1] / passes;
  for (int64_t layer = 0; layer < sizes.layers; ++layer) {
    const auto first = told.begin() + kCounts + layer * sizes.experts;
    std::vector<double> rows(first, first + sizes.experts), shares = rows;
    const double all = std::accumulate(rows.begin(), rows.end(), 0.0);
    for (double& share : shares) share *= static_cast<double>(sizes.active) / all;
    std::ranges::sort(rows, std::greater<>());
    const double busiest = std::accumulate(rows.begin(), rows.begin() + sizes.active, 0.0);
    record.expert_loads.push_back(
        {.busiest_share = busiest / all,
         .even_share = static_cast<double>(sizes.active) / static_cast<double>(sizes.experts),
         .largest = rows.front() * static_cast<double>(sizes.experts) / all,
         .idle = std::ranges::count(rows, 0.0),
         .token_shares = std::move(shares)});
  }
}

}  // namespace octavo::train
