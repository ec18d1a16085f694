#!/usr/bin/env bash
# Tests configs/slurm/rollout.sbatch with Debian's slurmctld, slurmd and munged: an array of two workers
# collects a fleet in a folder. One worker is preempted (scontrol requeue): it ends by the SIGTERM, before
# Slurm's SIGKILL, and starts again. Each sample is in the folder once.
# Exit status 75: the packages are not available here. This is not an error of the code.
set -euo pipefail
cd "$(dirname "$0")/.."
say() { echo "e2e-slurm: $*" >&2; }
die() { say "$*"; tail -n 20 "$work"/*.log >&2; exit 1; }
root=$PWD/.build/slurm
status=0
.ci/debian.sh "$root" slurmctld slurmd slurm-client munge || status=$?
[ $status != 75 ] || say 'NOT CHECKED: see above'
[ $status = 0 ] || exit $status
[ "$(id -u)" = 0 ] || { say 'NOT CHECKED: slurmd needs root'; exit 75; }

work=$(mktemp -d)
. .ci/servers.sh
mkdir "$work/run" "$work/state" "$work/spool" "$work/tmp"
lib=$(echo "$root"/usr/lib/*-linux-gnu)
export LD_LIBRARY_PATH=$lib:$lib/slurm-wlm PATH=$root/usr/bin:$PWD/bin:$PATH SLURM_CONF=$work/slurm.conf
python=${ROLLOUT_PYTHON:-$PWD/.build/venv/bin/python}

"$root/usr/sbin/mungekey" -c -k "$work/munge.key"
"$root/usr/sbin/munged" --foreground --force --socket="$work/run/munge" --key-file="$work/munge.key" \
  --log-file="$work/munge-more.log" --pid-file="$work/run/munged.pid" --seed-file="$work/run/seed" > "$work/munged.log" 2>&1 &
await munged test -S "$work/run/munge"
host=$(hostname -s) node=$(free) port=$(free)
# JobRequeue=0: only jobs with --requeue start again. cred_expire is the time before a requeued task can start again, 120 s by default. KillWait is the time
# between SIGTERM and SIGKILL, 30 s by default. Samples take up to a minute, so not all of them finish in it.
cat > "$SLURM_CONF" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/run/munge,cred_expire=10
CredType=cred/munge
PluginDir=$lib/slurm-wlm
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/run/slurmctld.pid
SlurmdPidFile=$work/run/slurmd.pid
SlurmctldPort=$port
SlurmdPort=$node
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
JobRequeue=0
MpiDefault=none
KillWait=25
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=main Nodes=$host Default=YES State=UP
CONF
start slurmctld "$root/usr/sbin/slurmctld-wlm" -D -f "$SLURM_CONF"
port=$node
start slurmd "$root/usr/sbin/slurmd-wlm" -D -f "$SLURM_CONF" -d "$root/usr/sbin/slurmstepd-wlm"
idle() { sinfo --noheader --format %T | grep -qx idle; }
await slurmd idle

port=$(free)
start simulate rollout simulate --listen "127.0.0.1:$port" --input-ids --scripted 60 --calls 1,1 --latency 1s..60s --write-tasks "$work/tasks.jsonl"
export STORE=$work/store TMPDIR=$work/tmp
rollout plan --server "http://127.0.0.1:$port" --max-in-flight 16 --model sglang//models/qwen3 --tasks "$work/tasks.jsonl" --partitions 16 --out "$STORE"
job=$(sbatch --parsable --array=0-1 --chdir="$work" configs/slurm/rollout.sbatch)
log=$work/rollout-${job}_1.log
some() { [ "$("$python" .ci/fleetcheck.py "$STORE")" -ge 10 ]; }
await simulate some
began=$(date +%s)
scontrol requeue "${job}_1"
stopped() { grep -q 'rollout: interrupted' "$log"; }
await simulate stopped
say "the requeued worker ended after $(($(date +%s) - began)) s"
for _ in $(seq 300); do
  left=$(squeue --noheader)
  [ -n "$left" ] || break
  sleep 1
done
[ -z "$left" ] || die "the array does not end: $left"
tasks=$(scontrol --oneliner show job "$job")
[ "$(grep -c 'JobState=COMPLETED' <<<"$tasks")" = 2 ] || die "the tasks of the array have not completed: $tasks"
grep -q 'Restarts=1' <<<"$tasks" || die "no task was started again: $tasks"
spools=("$work"/tmp/*)
[ ${#spools[@]} = 2 ] || die "two workers have used the spools ${spools[*]}"
"$python" .ci/fleetcheck.py "$STORE" --complete >/dev/null || die 'the fleet is not complete'
say 'the run is complete, and each sample is in the store once'
