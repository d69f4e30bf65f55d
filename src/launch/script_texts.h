#pragma once
// The texts that scripts.cpp fills in: each @WORD@ stands for a value.

#include <string_view>

namespace octavo::launch {

inline constexpr std::string_view kSlurmBody = R"sh(
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
@SHARE@
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
cores="${SLURM_CPUS_PER_TASK:-$((${SLURM_CPUS_ON_NODE:-1} / ${SLURM_NTASKS_PER_NODE:-@NPROC@}))}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$((cores > 0 ? cores : 1))}"

# Ranks that miss another leave by themselves with 3, so that the highest code is that of the rank
# at fault: they get the time for it. With checkpoint_upload there is no limit, either, when the first
# has left (--wait=0): the rank that uploads the last checkpoint may take hours.
code=0
srun --kill-on-bad-exit=0 --wait=@WAIT@ --export=ALL "${ranks[@]}" "$OCTAVO" "${command[@]}" || code=$?
echo "job $SLURM_JOB_ID, start $start: exit code $code"

requeue() {
  echo "job $SLURM_JOB_ID: requeued, $1"
  scontrol requeue "$SLURM_JOB_ID"
  sleep 300  # the requeue ends this script
}

# 75: stopped on request and resumable.
if [[ $code -eq 75 ]]; then requeue "it was stopped on request"; fi

# A rank or its machine failed (3, 128 + a signal) and a restart may help, by octavo's own table of ends.
# Wrong use (2), a guard (4), damage (5) and what else is not here would come again.
case $code in
@CURABLE@)
  now="$(date +%s)"
  echo "$now" >> "$logs/failures"
  recent="$(awk -v since="$((now - @WINDOW@))" '$1 >= since' "$logs/failures" | wc -l)"
  if [[ $recent -le @RESTARTS@ ]]; then requeue "failure $recent of at most @RESTARTS@ in @MINUTES@ minutes"; fi
  echo "job $SLURM_JOB_ID: not requeued, $recent failures in @MINUTES@ minutes (max_restarts, restart_window)"
  ;;
esac
exit "$code"
)sh";

inline constexpr std::string_view kSlurmShare = R"sh(
# The samples of a step are the same on any number of nodes: of those that the job got, as many take
# part as share its @PASSES@ passes evenly.
if [[ -z "${SWEEP_ID:-}" ]]; then
  if [[ "$CONFIG" != @FILE@ ]]; then
    echo "job $SLURM_JOB_ID: nodes and samples of a step (@SAMPLES@) are those of the file for which this" \
      "script was written; for others of $CONFIG write one with octavo launch --slurm" >&2
  fi
  taken=0
  for nodes in @NUMBERS@; do
    if [[ $nodes -le ${SLURM_JOB_NUM_NODES:-1} ]]; then taken=$nodes; fi
  done
  if [[ $taken -eq 0 ]]; then
    echo "job $SLURM_JOB_ID: wanted one of @NUMBERS@ nodes, found ${SLURM_JOB_NUM_NODES:-1}" >&2
    exit 2
  fi
  echo "job $SLURM_JOB_ID: $taken of ${SLURM_JOB_NUM_NODES:-1} nodes take part"
  ranks+=(--nodes="$taken" --ntasks="$((taken * @NPROC@))" --ntasks-per-node=@NPROC@)
fi
)sh";

inline constexpr std::string_view kJobSet =
    R"yaml(# Written by octavo launch --kubernetes, for you to change (image, claim, resources).
# Needs JobSet in the cluster, a claim with the run's folder, and the secret that nodes share:
#   kubectl create secret generic octavo-rendezvous --from-file=secret=FILE
# A pod that is lost is made anew, and its launcher joins the run again; the others wait for it.
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
      # What a restart cannot cure would come again.
      - name: notCurable
        action: FailJobSet
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
              # All but the codes after which a restart may help, by octavo's own table of ends, and those of the
              # container's runtime: it could not start it (128), or nobody knows how it ended (255).
              - action: FailJob
                onExitCodes: {containerName: octavo, operator: NotIn, values: [@CURABLE@]}
          template:
            spec:
              restartPolicy: Never
              # SIGTERM reaches the launcher, process 1 of the pod: the ranks save and leave with 75. So
              # no preStop hook is needed.
              terminationGracePeriodSeconds: 300
              # Of the image: who may read the secret and write into the claim.
              securityContext: {runAsUser: 10001, runAsGroup: 10001, fsGroup: 10001, runAsNonRoot: true}
              containers:
              - name: octavo
                image: octavo:latest
                workingDir: /octavo
                # The image's entry point is octavo.
                args:
@COMMAND@                # Only the first pod has /healthz; no answer means that its ranks are being started.
                livenessProbe:
                  initialDelaySeconds: 120
                  periodSeconds: 60
                  timeoutSeconds: 20
                  failureThreshold: 5
                  exec:
                    command:
                    - python3
                    - -c
                    - |
                      import os, sys, urllib.error, urllib.request
                      if os.environ.get("JOB_COMPLETION_INDEX") != "0":
                          sys.exit(0)
                      try:
                          urllib.request.urlopen("http://@HEALTH@/healthz", timeout=10)
                      except urllib.error.HTTPError as stalled:
                          sys.exit(str(stalled))
                      except OSError:
                          pass
                env:
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
                secret: {secretName: octavo-rendezvous, defaultMode: 0440}
              - name: shared-memory
                emptyDir: {medium: Memory}
)yaml";

}  // namespace octavo::launch
