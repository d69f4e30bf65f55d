#pragma once
// Conversions of LLaMA-Factory's keys, for its table alone.

#include <string>
#include <vector>

#include "migrate/import_builder.h"

namespace octavo::migrate::llama_factory {

std::vector<std::string> comma_parts(const ForeignEntry& entry);  // lists, and "a, b"

void val_size(Importer& importer, const ForeignEntry& entry);
// max_steps; 0: it is not given, and the data says how long the run is.
int64_t given_steps(const Importer& importer);
void logging_steps(Importer& importer, const ForeignEntry& entry);
void eval_strategy(Importer& importer, const ForeignEntry& entry);
void eval_steps(Importer& importer, const ForeignEntry& entry);
void save_strategy(Importer& importer, const ForeignEntry& entry);
void save_steps(Importer& importer, const ForeignEntry& entry);
void resume(Importer& importer, const ForeignEntry& entry);
void report_to(Importer& importer, const ForeignEntry& entry);
void fsdp(Importer& importer, const ForeignEntry& entry);
void deepspeed(Importer& importer, const ForeignEntry& entry);
void fp8(Importer& importer, const ForeignEntry& entry);
void bf16(Importer& importer, const ForeignEntry& entry);
void fp16(Importer& importer, const ForeignEntry& entry);
void pure_bf16(Importer& importer, const ForeignEntry& entry);
void fp8_backend(Importer& importer, const ForeignEntry& entry);
void load_in_fp8(Importer& importer, const ForeignEntry& entry);

}  // namespace octavo::migrate::llama_factory
