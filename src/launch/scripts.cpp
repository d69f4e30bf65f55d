#include "launch/scripts.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/text.h"

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

constexpr std::string_view kSlurmBody = R"sh(
set -euo pipefail

logs="logs/$SLURM_JOB_ID"
mkdir -p "$logs"

start=$((${SLURM_RESTART_COUNT:-0} + 1))
ranks=(--open-mode=append --output="$logs/rank-%t.log")

# A job of a sweep takes the next trial of the database that `octavo sweep create` made, which has
# its configuration. A job that was requeued takes up the trial that it left.
if [[ -n "${SWEEP_ID:-}" ]]; then
  database="$SWEEP_ID"
  if [[ ! -f "$database" ]]; then database="$SWEEP_ID.db"; fi
  if [[ ! -f "$database" ]]; then
    echo "SWEEP_ID: wanted the database of a sweep, found no file $SWEEP_ID and no $database;" \
      "make it with: octavo sweep create SWEEP.yaml CONFIG.yaml --database $database" >&2
    exit 2
  fi
  command=(sweep agent "$database" --trials "${TRIALS:-1}" --nproc @NPROC@)
  ranks+=(--nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task="${SLURM_CPUS_ON_NODE:-1}")
else
@UNNAMED@  command=(train "${arguments[@]}")
fi

# A job that was requeued resumes where it stopped; one that had not saved yet starts anew.
if [[ -z "${SWEEP_ID:-}" && $start -gt 1 ]]; then
  saved="$("$OCTAVO" train "${arguments[@]}" --list_checkpoints)"
  if [[ "$saved" == *step-* ]]; then command+=(--resume latest); fi
fi

# Ranks on several nodes share a secret. The name of its file is handed on, never the secret.
if [[ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 && -z "${SWEEP_ID:-}" ]]; then
  secret="${OCTAVO_RENDEZVOUS_SECRET_FILE:-${HOME:-$PWD}/.octavo-rendezvous-secret}"
  export OCTAVO_RENDEZVOUS_SECRET_FILE="$secret"
  if [[ ! -s "$secret" ]]; then
    (umask 077 && head -c 32 /dev/urandom | base64 > "$secret.$SLURM_JOB_ID")
    mv -n "$secret.$SLURM_JOB_ID" "$secret"
  fi
fi

# Ranks of one node share its cores.
cores="${SLURM_CPUS_PER_TASK:-$((${SLURM_CPUS_ON_NODE:-1} / ${SLURM_NTASKS_PER_NODE:-1}))}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$((cores > 0 ? cores : 1))}"

code=0
srun --kill-on-bad-exit=1 --export=ALL "${ranks[@]}" "$OCTAVO" "${command[@]}" || code=$?
echo "job $SLURM_JOB_ID, start $start: exit code $code"

# 75: stopped on request and resumable.
if [[ $code -eq 75 ]]; then
  scontrol requeue "$SLURM_JOB_ID"
  sleep 300  # the requeue ends this script
fi
exit "$code"
)sh";

constexpr std::string_view kJobSet =
    R"yaml(# Written by octavo launch --kubernetes, for you to change (image, claim, resources).
# Needs JobSet in the cluster, a claim with the run's folder, and the secret that nodes share:
#   kubectl create secret generic octavo-rendezvous --from-file=secret=FILE
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: @NAME@
spec:
  network:
    enableDNSHostnames: true
    publishNotReadyAddresses: true
  failurePolicy:
    maxRestarts: @RESTARTS@
    rules:
      # Wrong use (2), a guard (4) and damage (5) would come again.
      - action: FailJobSet
        onJobFailureReasons: [PodFailurePolicy]
  replicatedJobs:
    - name: nodes
      replicas: 1
      template:
        spec:
          completionMode: Indexed
          parallelism: @NODES@
          completions: @NODES@
          backoffLimit: @BACKOFF@
          podFailurePolicy:
            rules:
              # 75: stopped on request and resumable; the pod is made anew and continues.
              - action: Ignore
                onExitCodes: {containerName: octavo, operator: In, values: [75]}
              - action: Ignore
                onPodConditions: [{type: DisruptionTarget, status: "True"}]
              - action: FailJob
                onExitCodes: {containerName: octavo, operator: In, values: [2, 4, 5]}
          template:
            spec:
              restartPolicy: Never
              terminationGracePeriodSeconds: 300
              containers:
              - name: octavo
                image: octavo:latest
                workingDir: /octavo
                command:
@COMMAND@                env:
                - name: OCTAVO_RENDEZVOUS_SECRET_FILE
                  value: /etc/octavo/rendezvous/secret
@GPUS@                volumeMounts:
                - {name: folder, mountPath: /octavo}
                - {name: rendezvous, mountPath: /etc/octavo/rendezvous, readOnly: true}
                - {name: shared-memory, mountPath: /dev/shm}
              volumes:
              - name: folder
                persistentVolumeClaim: {claimName: octavo}
              - name: rendezvous
                secret: {secretName: octavo-rendezvous, defaultMode: 0400}
              - name: shared-memory
                emptyDir: {medium: Memory}
)yaml";

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

std::string dns_name(const std::string& run_name) {
  const bool fits = !run_name.empty() && run_name.size() <= 40 &&
                    std::islower(static_cast<unsigned char>(run_name.front())) != 0 &&
                    run_name.back() != '-' && std::ranges::all_of(run_name, [](unsigned char c) {
                      return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '-';
                    });
  return fits ? run_name : "octavo";
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
  const std::string script = shell_quoted(settings.slurm);
  std::string text =
      str("#!/usr/bin/env bash\n"
          "# Written by octavo launch --slurm, for you to change. From the folder of the run:\n"
          "#   sbatch --export=ALL,CONFIG=train.yaml ",
          script,
          "\n# One job for each trial of a sweep (octavo sweep create … --database sweep.db):\n"
          "#   for i in 1 2 3 4 5; do sbatch --export=ALL,SWEEP_ID=sweep ",
          script, "; done\n#SBATCH --job-name=", dns_name(work.train.run_name),
          "\n#SBATCH --nodes=", at_least_one(settings.nnodes),
          "\n#SBATCH --ntasks-per-node=", nproc, "\n");
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
  text += str("arguments=(${CONFIG:+\"$CONFIG\"}", words, ")\n");
  std::string body(kSlurmBody);
  const auto replace = [&](const std::string& old, const std::string& by) {
    const size_t at = body.find(old);
    OCTAVO_ASSERT(at != body.npos);
    body.replace(at, old.size(), by);
  };
  replace("@NPROC@", std::to_string(nproc));
  // A job that is requeued is to find its own checkpoints, and not those of the run that saved
  // last.
  replace("@UNNAMED@", work.train.run_name.empty()
                           ? "  arguments+=(--run_name \"octavo-$SLURM_JOB_ID\")\n"
                           : "");
  return text + body;
}

std::string jobset_manifest(const config::Settings& settings, const Work& work) {
  refuse_flag(work, "--resume", "auto_resume is in the manifest");
  const std::string name = dns_name(work.train.run_name);
  const int nodes = at_least_one(settings.nnodes), nproc = at_least_one(settings.nproc);
  const std::string command =
      str("octavo launch --auto_resume --nproc ", nproc, " --nnodes ", nodes,
          " --node_rank $(JOB_COMPLETION_INDEX) --master_address ", name, "-nodes-0-0.", name,
          " --max_restarts ", settings.max_restarts, " --");
  std::vector<std::string> words = split(command, ' ');
  words.insert(words.end(), work.command.begin() + 1, work.command.end());
  const std::string gpus =
      str("                resources: {limits: {nvidia.com/gpu: ", nproc, "}}\n");
  return filled(kJobSet, {{"NAME", name},
                          {"NODES", std::to_string(nodes)},
                          {"RESTARTS", std::to_string(std::max<int64_t>(3, settings.max_restarts))},
                          {"BACKOFF", std::to_string(nodes * 3)},
                          {"COMMAND", yaml_words(words, "                ")},
                          {"GPUS", wants_gpus(work) ? gpus : ""}});
}

}  // namespace octavo::launch
