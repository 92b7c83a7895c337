#!/usr/bin/env bash
# What several GPUs of one host do together: the conformance test of their collectives, the collectives' times beside NCCL
# through PyTorch, the same between two network namespaces as two nodes, and a model over all of them. Needs no network.
#
#   scripts/multi_gpu.sh [--build DIR] [--out DIR] [--ip PATH] [--model PATH] [PART...]
#
#   PART      check, comm, mps, nodes, serve; all unless said. Each has its own time limit, together under 9 minutes.
#   --build   a build with CUDA (default build-cuda)
#   --out     where results go (default multi_gpu_results)
#   --ip      iproute2's program, where the machine has none (its libraries beside it); `nodes` needs it, and root
#   --model   for `serve`; a random one is made when it is not given
#
# The number of GPUs is found (2 to 8; one is enough for mps). Variables such as NCCL_NVLS_ENABLE stay as they are set.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
# shellcheck disable=SC2317  # the parts are called by name

build=build-cuda out=multi_gpu_results ip_program=ip model="" parts=() command="scripts/multi_gpu.sh $*"
while (($#)); do
  case "$1" in
    --build) build=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --ip) ip_program=$2; shift 2 ;;
    --model) model=$2; shift 2 ;;
    -h | --help) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 0 ;;
    check | comm | mps | nodes | serve) parts+=("$1"); shift ;;
    *) echo "unknown argument $1: --help lists all" >&2; exit 2 ;;
  esac
done
((${#parts[@]})) || parts=(check comm mps nodes serve)
mkdir -p "$out"
failed=0
say() { printf '%4ds  %-7s %s\n' "$SECONDS" "$1" "${*:2}" >&2; }
bad() { say "$@"; failed=1; }

command -v nvidia-smi >/dev/null || { echo "nvidia-smi is missing: is the NVIDIA driver installed?" >&2; exit 3; }
gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader | wc -l)
[[ -n "${CUDA_VISIBLE_DEVICES:-}" ]] && gpus=$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .)
((gpus > 8)) && gpus=8
say gpus "$gpus"
[[ -x $build/bench/bench_comm ]] || { echo "$build/bench/bench_comm is missing: cmake --preset cuda && cmake --build $build" >&2; exit 2; }

# NCCL as pip installs it, where the system has none.
nccl=$(python3 -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0] + "/lib")' 2>/dev/null) &&
  export LD_LIBRARY_PATH="$nccl${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

collectives=all-reduce,all-gather,reduce-scatter,all-to-all,send-recv
sizes=1024,8192,16384,65536,262144,1048576,4194304,16777216,67108864,268435456

several() {
  ((gpus >= 2)) && return 0
  bad "$1" "not run: $gpus GPU, two are needed"
  return 1
}

run_check() {
  several check || return
  local program=$build/tests/conformance/comm/comm_gpu
  TUTTI_TEST_RANKS=$gpus timeout 150 "$program" >"$out/check.log" 2>&1 || { bad check "failed, see $out/check.log"; return; }
  say check "$(tail -n 1 "$out/check.log")"
}

run_comm() {
  several comm || return
  local way
  for way in gpu cuda_ipc nccl; do
    timeout 60 "$build/bench/bench_comm" --transport "$way" --ranks "$gpus" --collectives $collectives --sizes $sizes \
      >"$out/$way.json" 2>"$out/$way.log" || bad comm "$way failed: $(tail -n 1 "$out/$way.log")"
  done
  if python3 -c 'import torch' 2>/dev/null; then
    timeout 90 python3 bench/comm_torch.py --ranks "$gpus" --collectives $collectives --sizes $sizes \
      >"$out/torch.json" 2>"$out/torch.log" || bad comm "PyTorch failed: $(tail -n 1 "$out/torch.log")"
  else
    say comm "no PyTorch here: NCCL through it was not measured"
  fi
}

# Two ranks on one GPU, under the daemon that lets their kernels run side by side.
run_mps() {
  command -v nvidia-cuda-mps-control >/dev/null || { bad mps "not run: nvidia-cuda-mps-control is missing"; return; }
  (
    pipe=$(mktemp -d)
    export CUDA_VISIBLE_DEVICES=0 CUDA_MPS_PIPE_DIRECTORY=$pipe CUDA_MPS_LOG_DIRECTORY=$pipe CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50
    nvidia-cuda-mps-control -d || exit 1
    trap 'echo quit | nvidia-cuda-mps-control >/dev/null; rm -rf "$pipe"' EXIT
    timeout 40 "$build/bench/bench_comm" --transport cuda_ipc --share-gpu --ranks 2 --sizes 1024,16384,65536,262144 \
      >"$out/mps.json" 2>"$out/mps.log" || exit 1
    timeout 60 "$build/tests/conformance/comm/comm_gpu" --gtest_filter='*cuda_ipc' >"$out/mps_check.log" 2>&1
  ) || { bad mps "failed, see $out/mps.log and $out/mps_check.log"; return; }
  say mps "$(tail -n 1 "$out/mps_check.log")"
}

# Two namespaces, one GPU visible in each, NCCL over sockets: the veth must have carried the payload.
run_nodes() {
  several nodes || return
  local folder
  folder=$(dirname "$(command -v "$ip_program" || echo /nonexistent)")
  [[ -x $folder/ip ]] || { bad nodes "not run: no ip program (--ip PATH)"; return; }
  # shellcheck disable=SC2016
  PATH="$folder:$PATH" LD_LIBRARY_PATH="$folder:${LD_LIBRARY_PATH:-}" timeout 100 bench/comm_netns.sh bash -c '
    sent() { nsenter --net=/run/netns/$NETNS_A cat /proc/net/dev | tr ":" " " | awk -v d="$VETH" "\$1 == d {print \$10}"; }
    before=$(sent)
    "$0" --transport nccl --ranks 2 --netns "$NETNS_A,$NETNS_B" --addresses "$ADDRESS_A,$ADDRESS_B" \
      --sizes 8192,65536,1048576,16777216 >"$1/nodes.json" || exit 1
    moved=$(($(sent) - before)) payload=$(grep -o "\"payload_bytes\": *[0-9]*" "$1/nodes.json" | grep -o "[0-9]*$")
    echo "the veth carried $moved bytes of a payload of $payload"
    ((moved >= payload))' "$PWD/$build/bench/bench_comm" "$out" >"$out/nodes.log" 2>&1 ||
    { bad nodes "failed: $(tail -n 1 "$out/nodes.log")"; rm -f "$out/nodes.json"; return; }
  say nodes "$(tail -n 1 "$out/nodes.log")"
}

# The same greedy answer from one GPU, from two by tensor parallelism and from two by pipeline parallelism.
run_serve() {
  several serve || return
  if [[ -z $model ]]; then
    model=$out/model
    [[ -d $model ]] || python3 scripts/make_random_model.py "$model" >"$out/model.log" 2>&1 || { bad serve "no model, see $out/model.log"; return; }
  fi
  local name format=auto
  [[ $model == "$out/model" ]] && format=dummy
  declare -A flags=([tp1]="-tp 1" [tp2]="-tp 2" [pp2]="-pp 2" [tp2_nccl]="-tp 2 --disable-custom-all-reduce")
  for name in tp1 tp2 pp2 tp2_nccl; do
    # shellcheck disable=SC2086
    timeout 40 "$build/tutti" generate "$model" --device cuda --load-format $format ${flags[$name]} --max-tokens 32 --temperature 0 \
      --prompt "Once upon a time" >"$out/answer_$name.txt" 2>"$out/answer_$name.log" || { bad serve "$name failed: $(tail -n 1 "$out/answer_$name.log")"; continue; }
    if cmp -s "$out/answer_tp1.txt" "$out/answer_$name.txt"; then
      say serve "$name answers as one GPU does"
    else
      bad serve "$name answers differently: compare $out/answer_tp1.txt and $out/answer_$name.txt"
    fi
  done
}

for part in "${parts[@]}"; do "run_$part"; done
python3 bench/multi_gpu_report.py "$out" --command "$command" >"$out/result.json" || failed=1
say end "$out/result.json"
exit $failed
