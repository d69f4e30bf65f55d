// The report of an import, as text, JSON, YAML; and the tables.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "migrate/import_builder.h"

namespace octavo::migrate {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string_view verdict_word(Finding::Verdict verdict) {
  switch (verdict) {
    case Finding::Verdict::kRefused:
      return "REFUSED";
    case Finding::Verdict::kRepaired:
      return "repaired";
    case Finding::Verdict::kNote:
      break;
  }
  return "note";
}

std::string pair_text(const std::string& key, const std::string& value) {
  return shown_text(key) + (value.empty() ? "" : ": " + value);
}

std::string mapped_lines(const Import& import, bool defaults) {
  std::string out;
  for (const MappedKey& item : import.mapped) {
    if (item.is_default != defaults) continue;
    out += str("  ", pair_text(item.theirs, item.from), " -> ", item.ours, ": ", item.to,
               item.note.empty() ? "" : "  (" + item.note + ")", "\n");
  }
  return out;
}

std::string unmapped_lines(const std::vector<UnmappedKey>& items) {
  std::string out;
  for (const UnmappedKey& item : items)
    out += str("  ", pair_text(item.theirs, item.from), item.ours.empty() ? "" : " -> " + item.ours,
               item.why.empty() ? "" : (item.ours.empty() ? ": " : "  (") + item.why,
               item.why.empty() || item.ours.empty() ? "" : ")", "\n");
  return out;
}

std::string finding_lines(const Import& import) {
  std::string out;
  for (const auto verdict :
       {Finding::Verdict::kRefused, Finding::Verdict::kRepaired, Finding::Verdict::kNote})
    for (const Finding& finding : import.findings)
      if (finding.verdict == verdict)
        out +=
            str("  ", verdict_word(verdict), " ", finding.id, ": ", finding.where, "\n",
                "    wrong: ", finding.problem, "\n    costs: ", finding.cost, "\n    ",
                verdict == Finding::Verdict::kRepaired ? "now:   " : "to do: ", finding.done, "\n");
  return out;
}

// "llama3 8B: 8.03 billion": what a file says by sizes.
std::string model_line(const Import& import) {
  if (!import.model) return "";
  const model_config::ModelConfig& c = import.model->config;
  return str("  ", import.model->name, ": ", c.layers, " layers, ", c.width, " wide, ", c.mlp,
             import.model->gated ? " gated" : "", " in the MLP, ", c.heads, " heads of ",
             c.head_dim, " (", c.kv_heads, " of keys), ", c.vocab, " tokens",
             c.tied ? ", head tied" : "", "\n",
             import.model->refusal.empty() ? "" : "  " + import.model->refusal + "\n");
}

std::string parallel_line(const Import& import) {
  const std::string text = parallelism_text(import.parallel);
  return text.empty() ? "" : "  " + text + "\n";
}

OrderedJson model_report(const Import& import) {
  if (!import.model) return nullptr;
  return {{"name", import.model->name},
          {"folder", model_folder(import)},
          {"gated", import.model->gated},
          {"refusal", import.model->refusal},
          {"config", OrderedJson::parse(model_json(import))}};
}

OrderedJson parallel_report(const Parallelism& p) {
  return {{"gpus", p.gpus},           {"is_assumed", p.is_assumed}, {"tensor", p.tensor},
          {"pipeline", p.pipeline},   {"context", p.context},       {"expert", p.expert},
          {"replicate", p.replicate}, {"shard", p.shard},           {"data", p.data()}};
}

std::string part(std::string_view title, const std::string& lines) {
  return lines.empty() ? "" : str("\n", title, "\n", lines);
}

OrderedJson uncarried_json(const std::vector<UnmappedKey>& items) {
  OrderedJson out = OrderedJson::array();
  for (const UnmappedKey& item : items)
    out.push_back({{"where", item.where},
                   {"theirs", item.theirs},
                   {"from", item.from},
                   {"ours", item.ours},
                   {"why", item.why}});
  return out;
}

std::string code_list(std::string_view keys) {
  std::vector<std::string> names;
  for (const std::string& name : split(keys, ' '))
    if (!name.empty())
      names.push_back("`" + name + "`" + (available_key(name) == nullptr ? " (later)" : ""));
  return names.empty() ? "none" : join(names, ", ");
}

std::string mapping_table(std::span<const Mapping> table) {
  std::string out = "| theirs | ours | what changes |\n|---|---|---|\n";
  for (const Mapping& mapping : table)
    out += str("| `", mapping.theirs, "` | ", code_list(mapping.ours), " | ",
               mapping.how.empty() ? "the same value" : mapping.how, " |\n");
  return out;
}

std::string drop_table(std::span<const Mapping> table) {
  std::string out = "| theirs | why, and what it costs |\n|---|---|\n";
  for (const Mapping& mapping : table)
    out += str("| `", mapping.theirs, "` | ", mapping.how, " |\n");
  return out;
}

}  // namespace

std::string import_yaml(const Import& import) {
  std::string out = "# Written by octavo config import from\n";
  for (const std::string& file : import.files) out += "#   " + file + "\n";
  if (const std::string text = parallelism_text(import.parallel); !text.empty())
    out += str("# for ", text, ": octavo plan … --num_gpus ", import.parallel.gpus, "\n");
  for (const config::SectionInfo& section : config::sections()) {
    std::string lines;
    for (const config::Key& key : config::keys()) {
      if (key.section != section.section) continue;
      for (const MappedKey& item : import.mapped)
        if (item.ours == key.name)
          lines += str(key.name, ": ", key.text(import.settings), "  # ", shown_text(item.theirs),
                       item.is_default ? ", their default" : "", "\n");
    }
    if (!lines.empty()) out += str("\n# ", section.name, "\n", lines);
  }
  return out;
}

std::string import_text(const Import& import) {
  std::string out;
  for (const std::string& file : import.files) out += file + "\n";
  out += part("model, by its sizes", model_line(import));
  out += part("parallelism", parallel_line(import));
  out += part("carried over (theirs -> ours)", mapped_lines(import, false));
  out += part("their defaults, where octavo's are others", mapped_lines(import, true));
  out += part("wrong with it", finding_lines(import));
  out += part("understood, not available in this version", unmapped_lines(import.understood));
  out += part("no counterpart, not carried over", unmapped_lines(import.dropped));
  out += part("nothing to set", unmapped_lines(import.unset));
  const auto count = [&](Finding::Verdict verdict) {
    return std::ranges::count(import.findings, verdict, &Finding::verdict);
  };
  return out + str("\ncarried=", import.mapped.size(),
                   " refused=", count(Finding::Verdict::kRefused),
                   " repaired=", count(Finding::Verdict::kRepaired),
                   " notes=", count(Finding::Verdict::kNote), " later=", import.understood.size(),
                   " dropped=", import.dropped.size(), " unset=", import.unset.size(), "\n");
}

std::string import_summary(const Import& import) {
  std::string out;
  for (const std::string& file : import.files) out += "from " + file + "\n";
  out += parallel_line(import);
  const auto given = std::ranges::count(import.mapped, false, &MappedKey::is_default);
  out += str("  ", given, " keys taken, ", import.mapped.size() - static_cast<size_t>(given),
             " defaults of theirs, ", import.dropped.size(), " not taken, ", import.unset.size(),
             " with nothing to set: octavo config import lists each, and why\n");
  for (const Finding& finding : import.findings)
    if (!finding.id.starts_with("no_dataset"))
      out += str("  ", verdict_word(finding.verdict), " ", finding.id, ": ", finding.problem, "; ",
                 finding.done, "\n");
  return out + "\n";
}

std::string import_json(const Import& import) {
  OrderedJson carried = OrderedJson::array(), findings = OrderedJson::array();
  for (const MappedKey& item : import.mapped)
    carried.push_back({{"where", item.where},
                       {"theirs", item.theirs},
                       {"from", item.from},
                       {"ours", item.ours},
                       {"to", item.to},
                       {"note", item.note},
                       {"is_default", item.is_default}});
  for (const Finding& finding : import.findings) {
    const bool refused = finding.verdict == Finding::Verdict::kRefused;
    findings.push_back({{"verdict", refused ? "refused" : verdict_word(finding.verdict)},
                        {"id", finding.id},
                        {"where", finding.where},
                        {"problem", finding.problem},
                        {"cost", finding.cost},
                        {"done", finding.done}});
  }
  const OrderedJson report = {{"files", import.files},
                              {"refused", import.is_refused()},
                              {"carried", carried},
                              {"findings", findings},
                              {"later", uncarried_json(import.understood)},
                              {"dropped", uncarried_json(import.dropped)},
                              {"unset", uncarried_json(import.unset)},
                              {"model", model_report(import)},
                              {"parallelism", parallel_report(import.parallel)},
                              {"yaml", import.is_refused() ? "" : import_yaml(import)}};
  // An untrusted key may be no UTF-8.
  return report.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

std::string import_tables() {
  const auto one = [](std::string_view title, std::string_view before,
                      std::span<const Mapping> mappings, std::span<const ForeignDefault> defaults,
                      std::span<const Mapping> drops) {
    std::string out = str("### ", title, "\n\n", before, mapping_table(mappings));
    if (!defaults.empty())
      out +=
          "\nNot in the file, and other than octavo's: written out as\n\n| theirs | default "
          "|\n|---|---|\n";
    for (const ForeignDefault& usual : defaults)
      out += str("| `", usual.theirs, "` | ", usual.value, " |\n");
    return out + "\nWithout a counterpart:\n\n" + drop_table(drops);
  };
  constexpr std::string_view kShared = "The keys of Hugging Face's Trainer as above, and\n\n";
  std::string out =
      one("LLaMA-Factory", "", llama_factory_mappings(), llama_factory_defaults(),
          llama_factory_drops()) +
      "\n" + one("DeepSpeed", "", deepspeed_mappings(), {}, deepspeed_drops()) + "\n" +
      one("TRL", kShared, trl_mappings(), trl_defaults(), trl_drops()) + "\n" +
      one("Accelerate", "", accelerate_mappings(), {}, accelerate_drops()) + "\n" +
      one("Hugging Face's Trainer", kShared, trainer_mappings(), trainer_defaults(),
          trainer_drops()) +
      "\n" + one("FSDP", "", fsdp_mappings(), {}, fsdp_drops()) + "\n" +
      one("torchtitan", "", torchtitan_mappings(), torchtitan_defaults(), torchtitan_drops()) +
      "\n" + one("Megatron", "", megatron_mappings(), megatron_defaults(), megatron_drops());
  std::string later;
  for (const std::string_view name : planned_keys())
    if (available_key(name) == nullptr) later += str(later.empty() ? " `" : ", `", name, "`");
  if (!later.empty())
    out +=
        "\n### Later\n\nKeys of the design that this version does not train with:" + later + ".\n";
  return out;
}

}  // namespace octavo::migrate
