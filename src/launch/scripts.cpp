#include "launch/scripts.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "launch/membership.h"
#include "launch/rank_ends.h"
#include "launch/restart.h"
#include "launch/script_texts.h"

namespace octavo::launch {
namespace {

// What the scripts put in themselves cannot be in the command, too.
void refuse_flag(const Work& work, const std::string& flag, const char* instead) {
  for (const std::string& word : work.command)
    if (word == flag || word.starts_with(flag + "="))
      fail(ExitCode::kUsage, "launch", "wanted a command without ", flag, ", found ", word,
           "; leave it out: ", instead);
}

int at_least_one(int64_t number) {
  return static_cast<int>(std::max<int64_t>(1, number));
}

bool wants_gpus(const Work& work) {
  return work.train.device != config::DeviceChoice::kCpu;
}

std::string joined(const std::vector<int>& codes, std::string_view separator) {
  std::vector<std::string> words;
  for (const int code : codes) words.push_back(std::to_string(code));
  return join(words, separator);
}

// In order, as Kubernetes wants them.
std::vector<int> pod_codes() {
  std::vector<int> codes = curable_codes();
  codes.insert(codes.end(), {128, 255});
  std::ranges::sort(codes);
  return codes;
}

// The text with each @WORD@ replaced; the values are not looked into again.
std::string filled(std::string_view text, const Variables& values) {
  std::string result;
  while (!text.empty()) {
    const size_t begin = text.find('@');
    result += text.substr(0, begin);
    if (begin == text.npos) break;
    const size_t end = text.find('@', begin + 1);
    OCTAVO_ASSERT(end != text.npos);
    result += values.at(std::string(text.substr(begin + 1, end - begin - 1)));
    text.remove_prefix(end + 1);
  }
  return result;
}

// A job of MIN to MAX nodes takes as many of those it got as share a step evenly.
std::string slurm_share(const Elastic& elastic, const Work& work) {
  if (!elastic.on()) return "";
  return filled(kSlurmShare, {{"FILE", shell_quoted(work.config_file)},
                              {"SAMPLES", std::to_string(elastic.samples)},
                              {"PASSES", std::to_string(elastic.passes)},
                              {"NUMBERS", join(split(numbers_taken(elastic), ','), "")},
                              {"NPROC", std::to_string(elastic.local_ranks)}});
}

// A label of a host's name: that of a pod, NAME-nodes-0-0-xxxxx, has at most 63 letters. Runs whose
// names differ have labels that differ, so that several are in one namespace.
std::string dns_name(const std::string& run_name) {
  constexpr size_t kMost = 40, kHash = 8;
  const auto fits = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  };
  if (run_name.empty()) return "octavo";
  if (run_name.size() <= kMost && std::ranges::all_of(run_name, fits) && run_name.front() >= 'a' &&
      run_name.back() != '-')
    return run_name;
  std::string name;
  for (const char c : run_name) {
    const auto lower = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    name += fits(static_cast<unsigned char>(lower)) ? lower : '-';
  }
  name.resize(std::min(name.size(), kMost - kHash - 1));
  while (!name.empty() && (name.front() == '-' || (name.front() >= '0' && name.front() <= '9')))
    name.erase(0, 1);
  while (!name.empty() && name.back() == '-') name.pop_back();
  const std::string hash = hash_text(run_name).substr(0, kHash);
  return str(name.empty() ? "octavo" : name, "-", hash);
}

// JSON's strings are YAML's.
std::string yaml_words(const std::vector<std::string>& words, std::string_view indent) {
  std::string text;
  for (const std::string& word : words)
    text += str(indent, "- ", nlohmann::json(word).dump(), "\n");
  return text;
}

}  // namespace

std::string shell_quoted(std::string_view text) {
  const bool plain = !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_-./=:,+@%").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string slurm_script(const config::Settings& settings, const Work& work) {
  refuse_flag(work, "--resume", "the script adds it when the job is run again");
  const int nproc = at_least_one(settings.nproc);
  if (settings.spares > 0)
    fail(ExitCode::kUsage, "launch", "slurm: wanted no spares, found ", settings.spares,
         "; leave them out: a job that is requeued gets other nodes from SLURM");
  const Elastic elastic = elastic_of(settings, work.train, nproc);
  const std::string script = shell_quoted(settings.slurm);
  std::string text =
      str("#!/usr/bin/env bash\n"
          "# Written by octavo launch --slurm, for you to change. From the folder of the run:\n"
          "#   sbatch --export=ALL,CONFIG=train.yaml ",
          script,
          "\n# One job for each trial of a sweep (octavo sweep create … --database sweep.db):\n"
          "#   for i in 1 2 3 4 5; do sbatch --export=ALL,SWEEP_ID=sweep ",
          script, "; done\n#SBATCH --job-name=", dns_name(work.train.run_name),
          "\n#SBATCH --nodes=", elastic.on() ? str(elastic.least, "-") : "", elastic.most,
          // SLURM gives a job no more nodes than its smallest number of tasks: a range names CPUs
          // of a node instead, and srun the tasks.
          elastic.on() ? "\n#SBATCH --mincpus=" : "\n#SBATCH --ntasks-per-node=", nproc, "\n");
  if (wants_gpus(work)) text += str("#SBATCH --gpus-per-node=", nproc, "\n");
  text +=
      "#SBATCH --time=24:00:00\n"
      "# Five minutes before the limit the ranks are told to save and stop.\n"
      "#SBATCH --signal=USR1@300\n"
      "#SBATCH --requeue\n"
      "#SBATCH --open-mode=append\n"
      "#SBATCH --output=octavo-%j.log\n\n";
  text += str("if [[ -z \"${OCTAVO:-}\" ]]; then OCTAVO=", shell_quoted(work.command.front()),
              "; fi\nif [[ -z \"${CONFIG:-}\" ]]; then CONFIG=", shell_quoted(work.config_file),
              "; fi\n");
  std::string words;
  for (size_t at = 2; at < work.command.size(); ++at)
    if (work.command[at] != work.config_file) words += " " + shell_quoted(work.command[at]);
  if (elastic.on() && work.train.target_effective_batch_size == 0)
    words += str(" --target_effective_batch_size ", elastic.samples);
  text += str("arguments=(${CONFIG:+\"$CONFIG\"}", words, ")\n");
  std::string body(kSlurmBody);
  const auto replace = [&](const std::string& old, const std::string& by) {
    const size_t at = body.find(old);
    OCTAVO_ASSERT(at != body.npos);
    body.replace(at, old.size(), by);
  };
  const auto window = static_cast<int64_t>(60 * settings.restart_window);
  replace("@WINDOW@", std::to_string(window));
  for (int time = 0; time < 2; ++time) {
    replace("@NPROC@", std::to_string(nproc));
    replace("@RESTARTS@", std::to_string(settings.max_restarts));
    replace("@MINUTES@", str(settings.restart_window));
  }
  replace("@CURABLE@", joined(curable_codes(), "|"));
  replace("@WAIT@", work.train.checkpoint_upload.empty() ? "60" : "0");
  replace("@SHARE@", slurm_share(elastic, work));
  // A job that is requeued is to find its own checkpoints, and not those of the run that saved
  // last.
  replace("@UNNAMED@", work.train.run_name.empty()
                           ? "  arguments+=(--run_name \"octavo-$SLURM_JOB_ID\")\n"
                           : "");
  return text + body;
}

std::string jobset_manifest(const config::Settings& settings, const Work& work) {
  refuse_flag(work, "--resume", "auto_resume is in the manifest");
  want_run_name(work.train);
  const std::string name = dns_name(work.train.run_name);
  const int nproc = at_least_one(settings.nproc);
  const Elastic elastic = elastic_of(settings, work.train, nproc);
  const int nodes = elastic.slots();
  const std::string numbers = elastic.on()
                                  ? str(elastic.least, ":", elastic.most, " --spares ",
                                        elastic.spares, " --node_wait ", settings.node_wait)
                                  : str(nodes);
  const std::string command = str("launch --auto_resume --nproc ", nproc, " --nnodes ", numbers,
                                  " --node_rank $(JOB_COMPLETION_INDEX) --master_address ", name,
                                  "-nodes-0-0.", name, " --max_restarts ", settings.max_restarts,
                                  " --restart_window ", settings.restart_window, " --");
  std::vector<std::string> words = split(command, ' ');
  words.insert(words.end(), work.command.begin() + 1, work.command.end());
  std::string health = work.train.metrics_address;
  if (health.empty()) {
    health = "127.0.0.1:9400";
    words.insert(words.end(), {"--metrics_address", health});
  }
  const std::string gpus =
      str("                resources: {limits: {nvidia.com/gpu: ", nproc, "}}\n");
  return filled(kJobSet, {{"NAME", name},
                          {"NODES", std::to_string(nodes)},
                          {"RESTARTS", std::to_string(settings.max_restarts)},
                          // A failure ends the launchers of all nodes: each is a pod's.
                          {"BACKOFF", std::to_string(2 * nodes * settings.max_restarts)},
                          {"CURABLE", joined(pod_codes(), ", ")},
                          {"HEALTH", health},
                          {"COMMAND", yaml_words(words, "                ")},
                          {"GPUS", wants_gpus(work) ? gpus : ""}});
}

}  // namespace octavo::launch
