#!/usr/bin/env bash
# Tests configs/k8s with a real Kubernetes API server, without nodes. The API server accepts the Job and the
# Deployment without a warning of the strictest pod security level, and refuses a wrong type. Then the
# script is the node: it runs the container that the API server returns for the Job, in the unpacked image,
# with the bucket of a real S3 server. A worker gets a SIGTERM, and a SIGKILL at the end of its grace
# period. Its disk is gone, and all that it had finished is in the bucket. Other workers complete the run.
# usage: .ci/e2e-k8s.sh IMAGE
# Exit status 75: the packages are not available here. This is not an error of the code.
set -euo pipefail
cd "$(dirname "$0")/.."
say() { echo "e2e-k8s: $*" >&2; }
die() { say "$*"; exit 1; }
status=0
.ci/k8s.sh || status=$?
[ $status != 75 ] || say 'NOT CHECKED: see above'
[ $status = 0 ] || exit $status
unshare --mount true 2>/dev/null || { say 'NOT CHECKED: it needs root, to run a container'; exit 75; }

. .ci/bucket.sh
bin=$work/root/usr/bin/rollout
python=${ROLLOUT_PYTHON:-.build/venv/bin/python}
PATH=$PWD/.build/k8s:$PATH
mkdir -p "$work/root" "$work/layout"

# The API server.
peers=http://127.0.0.1:$(free)
port=$(free)
etcd=http://127.0.0.1:$port
start etcd etcd --data-dir "$work/etcd" --listen-client-urls "$etcd" --advertise-client-urls "$etcd" \
  --listen-peer-urls "$peers" --initial-advertise-peer-urls "$peers" --initial-cluster "default=$peers"
echo 'secret,admin,admin,system:masters' > "$work/tokens"
openssl genrsa -out "$work/accounts.key" 2048 2>/dev/null
port=$(free)
start kube-apiserver kube-apiserver --etcd-servers "$etcd" --bind-address 127.0.0.1 --secure-port "$port" \
  --advertise-address 127.0.0.1 --endpoint-reconciler-type none --service-cluster-ip-range 10.0.0.0/24 --cert-dir "$work/certs" \
  --token-auth-file "$work/tokens" --authorization-mode RBAC --service-account-issuer https://kubernetes.default \
  --service-account-key-file "$work/accounts.key" --service-account-signing-key-file "$work/accounts.key"
api=https://127.0.0.1:$port
k() { kubectl --server "$api" --token secret --insecure-skip-tls-verify --namespace fleet "$@"; }
await kube-apiserver k get --raw /readyz

# The image, and a Letta server whose samples take up to 30 s: more than the grace period of a worker.
store="s3://bucket/run1?endpoint_override=$s3"
tar -xf "$1" -C "$work/layout"
python3 - "$work" "$(${GO:-go} env GOHOSTARCH)" <<'PYTHON'
import json, pathlib, sys, tarfile
work, arch = pathlib.Path(sys.argv[1]), sys.argv[2]
def read(descriptor): return json.loads((work / "layout/blobs" / descriptor["digest"].replace(":", "/")).read_text())
index = read(json.loads((work / "layout/index.json").read_text())["manifests"][0])
manifest = read(next(m for m in index["manifests"] if m["platform"]["architecture"] == arch))
for layer in manifest["layers"]:
    with tarfile.open(work / "layout/blobs" / layer["digest"].replace(":", "/")) as t:
        t.extractall(work / "root")
PYTHON
mkdir "$work/root/spool" "$work/root/tmp" "$work/root/proc"
port=$(free)
start simulate "$bin" simulate --listen "127.0.0.1:$port" --input-ids --scripted 60 --calls 1,1 --latency 1s..30s --write-tasks "$work/tasks.jsonl"

# The three commands of configs/fleet.md.
"$bin" plan --server "http://127.0.0.1:$port" --model sglang//models/qwen3 --tasks "$work/tasks.jsonl" --partitions 8 --out "$store"
k create namespace fleet
k label namespace fleet pod-security.kubernetes.io/warn=restricted
printf 'STORE=%s\n' "$store" > "$work/env"
printf '%s=%s\n' AWS_ACCESS_KEY_ID "$AWS_ACCESS_KEY_ID" AWS_SECRET_ACCESS_KEY "$AWS_SECRET_ACCESS_KEY" >> "$work/env"
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY # workers must get them from the secret
k create secret generic rollout --from-env-file "$work/env"
apply() { k apply --server-side --validate=strict --warnings-as-errors "$@"; }
apply -k configs/k8s/job
apply -k configs/k8s/deployment
k scale deployment rollout --replicas=50
# refused CHANGE TEXT expects that the API server refuses the changed Job with a text.
refused() {
  local said
  ! said=$(kubectl kustomize configs/k8s/job | sed "$1" | apply -f - 2>&1) || die "the API server accepts $1"
  grep -qF "$2" <<<"$said" || die "the API server refuses $1 with another error: $said"
}
refused 's/completions: 50/completions: fifty/' 'expected numeric (int or float), got string'
refused 's/completions: 50/completion: 50/' '.spec.completion: field not declared in schema'
refused '/runAsNonRoot/d; s/name: rollout$/name: as-root/' 'runAsNonRoot != true'

# container.py WORK NAME PORT becomes the container of the Job, as a runtime does. Its volumes are folders in
# WORK/NAME. The network is the machine's, so the port of the probes is a free one.
cat > "$work/container.py" <<'PYTHON'
import base64, json, os, pathlib, subprocess, sys
work, name, port = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
pod = json.loads((work / "job.json").read_text())["spec"]["template"]["spec"]
container, = pod["containers"]
secrets = json.loads((work / "secret.json").read_text())
env = {"PATH": "/usr/bin"}
for source in container["envFrom"]:
    assert source["secretRef"]["name"] == secrets["metadata"]["name"]
    env |= {key: base64.b64decode(value).decode() for key, value in secrets["data"].items()}
env |= {v["name"]: v["value"].replace(":9464", f"127.0.0.1:{port}") for v in container["env"]}
args = container["args"]
for key, value in env.items():
    args = [arg.replace(f"$({key})", value) for arg in args]
root = work / "root"
def mount(*args): subprocess.run(["mount", *map(str, args)], check=True)
mount("--bind", root, root)
mount("--rbind", "/proc", root / "proc")
for volume in container["volumeMounts"]:
    mount("--bind", work / name / volume["name"], root / volume["mountPath"].lstrip("/"))
if container["securityContext"]["readOnlyRootFilesystem"]:
    mount("-o", "remount,bind,ro", root)
user = pod["securityContext"]
os.chroot(root)
os.chdir("/data")
os.setgroups([])
os.setgid(user["runAsGroup"])
os.setuid(user["runAsUser"])
os.execve("/usr/bin/rollout", ["rollout", *args], env)
PYTHON
# worker NAME starts a container as the process $pid.
worker() {
  mkdir -p "$work/$1/spool" "$work/$1/tmp"
  chown 65532:65532 "$work/$1/spool" "$work/$1/tmp"
  port=$(free)
  start "$1" unshare --mount python3 "$work/container.py" "$work" "$1" "$port"
  pid=$!
}
# get PATH prints a page of the worker that was started last.
get() { curl --silent --fail "http://127.0.0.1:$port$1"; }
# finished prints how many samples the worker has finished, one row each. The condition ahead is true if
# eight of them are only in its spool.
finished() { get /metrics | awk '/^rollout_rows_total/ {print $2}'; }
ahead() { get /metrics | awk '/^rollout_rows_total/ {n += $2} /^rollout_samples_total/ {n -= $2} END {exit n < 8}'; }
k get job rollout -o json > "$work/job.json"
k get secret rollout -o json > "$work/secret.json"
grace=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["spec"]["template"]["spec"]["terminationGracePeriodSeconds"])' "$work/job.json")

worker first
await first get /healthz
await first get /readyz
await first ahead
before=$(finished)
began=$(date +%s)
kill -TERM "$pid"
while kill -0 "$pid" 2>/dev/null; do
  [ $(($(date +%s) - began)) -lt "$grace" ] || { kill -KILL "$pid"; break; }
  sleep 0.1
done
status=0
wait "$pid" || status=$?
[ "$status" = 130 ] || die "the interrupted worker ends with $status after $(($(date +%s) - began)) s: $(tail -5 "$work/first.log")"
held=$("$python" .ci/fleetcheck.py "$work/versitygw/bucket/run1")
say "SIGTERM after $before samples, at least 8 of them not in the bucket: ended after $(($(date +%s) - began)) s of $grace s, and the bucket holds $held samples"
[ "$held" -ge "$before" ] || die 'finished samples are not in the bucket'
rm -rf "$work/first/spool" # the volume ends with the pod

worker second
second=$pid
worker third
wait "$second" || die "the second worker fails: $(tail -5 "$work/second.log")"
wait "$pid" || die "the third worker fails: $(tail -5 "$work/third.log")"
"$python" .ci/fleetcheck.py "$work/versitygw/bucket/run1" --complete >/dev/null
! grep -rlF test-secret "$work"/*.log "$work/versitygw" "$work/second" >&2 || die 'these files contain the secret key'
say 'the run is complete, and each sample is in the bucket once'
