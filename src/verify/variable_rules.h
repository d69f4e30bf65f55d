#pragma once
// What the values of environment variables mean, one function a kind.

#include "verify/variables.h"

namespace octavo::verify::rules {

Verdict max_connections(const std::string& value, const Facts& facts);
Verdict does_nothing(const std::string& value, const Facts& facts);
Verdict python_only(const std::string& value, const Facts& facts);
Verdict gpu_num(const std::string& value, const Facts& facts);
Verdict world_size(const std::string& value, const Facts& facts);
Verdict rank(const std::string& value, const Facts& facts);
Verdict master_addr(const std::string& value, const Facts& facts);
Verdict master_port(const std::string& value, const Facts& facts);
Verdict disable_nvrtc(const std::string& value, const Facts& facts);
Verdict folder(const std::string& value, const Facts& facts);
Verdict file(const std::string& value, const Facts& facts);
Verdict number(const std::string& value, const Facts& facts);
Verdict nccl_debug(const std::string& value, const Facts& facts);
Verdict p2p_disable(const std::string& value, const Facts& facts);
Verdict ib_disable(const std::string& value, const Facts& facts);
Verdict shm_disable(const std::string& value, const Facts& facts);
Verdict old_torch_name(const std::string& value, const Facts& facts);
Verdict error_handling(const std::string& value, const Facts& facts);
Verdict slow_when_on(const std::string& value, const Facts& facts);
Verdict slow_when_set(const std::string& value, const Facts& facts);
Verdict distributed_debug(const std::string& value, const Facts& facts);
Verdict allocator(const std::string& value, const Facts& facts);
Verdict visible_devices(const std::string& value, const Facts& facts);
Verdict tf32(const std::string& value, const Facts& facts);
Verdict omp_threads(const std::string& value, const Facts& facts);
Verdict wait_policy(const std::string& value, const Facts& facts);
Verdict preload(const std::string& value, const Facts& facts);

}  // namespace octavo::verify::rules
