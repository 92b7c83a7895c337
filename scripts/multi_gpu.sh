#!/usr/bin/env bash
# What several GPUs of one host do together, alone and as two nodes: conformance of their collectives and of models cut over
# them, the collectives' times beside NCCL through PyTorch, and models of known shapes under load. Needs no network.
#
#   scripts/multi_gpu.sh [--build DIR] [--out DIR] [--ip PATH] [--ways A,B] [--shapes A,B] [--jobs A,B] [PART...]
#
#   PART      check, comm, mps, wire, layouts, losses, sweep; all unless said, which takes more than 9 minutes.
#   --build   a build with CUDA (default build-cuda)
#   --out     where results go (default multi_gpu_results): result.json (collectives), layouts.json, losses.json, sweep.json
#   --ip      iproute2's program, where the machine has none (its libraries beside it); wire, layouts and losses need it, and root
#   --ways    of comm: gpu,cuda_ipc,nccl,torch
#   --shapes  of layouts: small,llama-3-8b
#   --jobs    of sweep: 8b,8b-fp8,70b,70b-fp8 (bench/gpu_sweep.py)
#   --limit   seconds for the sweep (default 400)
#   --commit  for the results, where this is no clone
#
# The number of GPUs is found (2 to 8; one is enough for mps). Variables such as NCCL_NVLS_ENABLE stay as they are set.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
# shellcheck disable=SC2317  # the parts are called by name

build=build-cuda out=multi_gpu_results ip_program=ip ways=gpu,cuda_ipc,nccl,torch shapes=small,llama-3-8b jobs=8b,8b-fp8,70b,70b-fp8 limit=400 commit="" parts=()
command="scripts/multi_gpu.sh $*"
while (($#)); do
  case "$1" in
    --build) build=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --ip) ip_program=$2; shift 2 ;;
    --ways) ways=$2; shift 2 ;;
    --shapes) shapes=$2; shift 2 ;;
    --jobs) jobs=$2; shift 2 ;;
    --limit) limit=$2; shift 2 ;;
    --commit) commit=$2; shift 2 ;;
    -h | --help) sed -n '2,18s/^# \{0,1\}//p' "$0"; exit 0 ;;
    check | comm | mps | wire | layouts | losses | sweep) parts+=("$1"); shift ;;
    *) echo "unknown argument $1: --help lists all" >&2; exit 2 ;;
  esac
done
((${#parts[@]})) || parts=(check comm mps wire layouts losses sweep)
mkdir -p "$out"
failed=0
say() { printf '%4ds  %-7s %s\n' "$SECONDS" "$1" "${*:2}" >&2; }
bad() { say "$@"; failed=1; }

command -v nvidia-smi >/dev/null || { echo "nvidia-smi is missing: is the NVIDIA driver installed?" >&2; exit 3; }
gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader | wc -l)
[[ -n "${CUDA_VISIBLE_DEVICES:-}" ]] && gpus=$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .)
((gpus > 8)) && gpus=8
say gpus "$gpus"
tutti=$PWD/$build/tutti
[[ $build == /* ]] && tutti=$build/tutti
[[ -x $tutti ]] || { echo "$tutti is missing: cmake --preset cuda && cmake --build $build" >&2; exit 2; }

# NCCL as pip installs it, where the system has none.
nccl=$(python3 -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0] + "/lib")' 2>/dev/null) &&
  export LD_LIBRARY_PATH="$nccl${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

collectives=all-reduce,all-gather,reduce-scatter,all-to-all,send-recv
sizes=1024,8192,16384,65536,262144,1048576,4194304,16777216,33554432,67108864,268435456

several() {
  ((gpus >= 2)) && return 0
  bad "$1" "not run: $gpus GPU, two are needed"
  return 1
}

# iproute2's program first in PATH, with its libraries for it alone.
with_ip() {
  local found
  found=$(command -v "$ip_program") || { bad "$1" "not run: no ip program (--ip PATH)"; return 1; }
  [[ $ip_program == ip ]] && return 0
  mkdir -p "$out/bin"
  printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec "%s" "$@"\n' "$(dirname "$(realpath "$found")")" "$(realpath "$found")" >"$out/bin/ip"
  chmod +x "$out/bin/ip"
  export PATH="$(realpath "$out/bin"):$PATH"
  ip_program=ip
}

run_check() {
  several check || return
  local program
  for program in tests/conformance/comm/comm_gpu tests/golden/golden_models; do
    local log=$out/check_${program##*/}.log filter='*'
    [[ $program == *golden* ]] && filter='*OverGpus*'
    TUTTI_TEST_RANKS=$gpus timeout 150 "$build/$program" --gtest_filter="$filter" >"$log" 2>&1 || { bad check "failed, see $log"; continue; }
    say check "${program##*/}: $(grep -F '[  PASSED  ]' "$log")"
  done
}

run_comm() {
  several comm || return
  local way
  for way in ${ways//,/ }; do
    [[ $way == torch ]] && continue
    timeout 60 "$tutti" bench comm --json --transport "$way" --ranks "$gpus" --collectives $collectives --sizes $sizes \
      >"$out/$way.json" 2>"$out/$way.log" || bad comm "$way failed: $(tail -n 1 "$out/$way.log")"
  done
  [[ ,$ways, == *,torch,* ]] || return 0
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
    timeout 40 "$tutti" bench comm --json --transport cuda_ipc --share-gpu --ranks 2 --sizes 1024,16384,65536,262144 \
      >"$out/mps.json" 2>"$out/mps.log" || exit 1
    timeout 60 "$build/tests/conformance/comm/comm_gpu" --gtest_filter='*cuda_ipc' >"$out/mps_check.log" 2>&1
  ) || { bad mps "failed, see $out/mps.log and $out/mps_check.log"; return; }
  say mps "$(tail -n 1 "$out/mps_check.log")"
}

# Two namespaces, one GPU visible in each, NCCL over sockets: the veth must have carried the payload. Three times, in turn with
# NCCL through PyTorch there.
run_wire() {
  several wire && with_ip wire || return
  local wire=(--ranks 2 --sizes 8192,65536,1048576,16777216) torch=""
  python3 -c 'import torch' 2>/dev/null && torch=bench/comm_torch.py
  # shellcheck disable=SC2016
  timeout 150 bench/comm_netns.sh bash -c '
    tutti=$1 out=$2 torch=$3 wire=("${@:4}" --netns "$NETNS_A,$NETNS_B" --addresses "$ADDRESS_A,$ADDRESS_B")
    sent() { nsenter --net=/run/netns/$NETNS_A cat /proc/net/dev | tr ":" " " | awk -v d="$VETH" "\$1 == d {print \$10}"; }
    export NCCL_DEBUG=${NCCL_DEBUG:-WARN} NCCL_DEBUG_FILE=$out/nodes_nccl.%p.log
    rm -f "$out/nodes.json" "$out/nodes_torch.json"
    for turn in 1 2 3; do
      before=$(sent)
      "$tutti" bench comm --json --transport nccl "${wire[@]}" >>"$out/nodes.json" || exit 1
      moved=$(($(sent) - before)) payload=$(grep -o "\"payload_bytes\": *[0-9]*" "$out/nodes.json" | tail -n 1 | grep -o "[0-9]*$")
      echo "the veth carried $moved bytes of a payload of $payload"
      ((moved >= payload)) || exit 1
      [[ -z $torch ]] || python3 "$torch" "${wire[@]}" --interface "$VETH" >>"$out/nodes_torch.json" || exit 1
    done' wire "$tutti" "$out" "$torch" "${wire[@]}" >"$out/nodes.log" 2>&1 ||
    { bad wire "failed: $(tail -n 1 "$out/nodes.log")"; rm -f "$out/nodes.json"; return; }
  say wire "$(grep "^the veth" "$out/nodes.log" | tail -n 1)"
}

# A model on one GPU, on two of this host and on two as two nodes gives the same answers.
run_layouts() {
  several layouts && with_ip layouts || return
  timeout 240 python3 bench/gpu_nodes.py --build "$build" --out "$out" --parts host,nodes --shapes "$shapes" --commit "$commit" \
    >"$out/layouts.json" 2>"$out/layouts.log" || bad layouts "failed: $(grep FAILED "$out/layouts.log" | tail -n 3)"
  say layouts "$(grep -c '^{' "$out/layouts.log") results in $out/layouts.json"
}

# The link cut, a rank killed.
run_losses() {
  several losses && with_ip losses || return
  timeout 200 python3 bench/gpu_nodes.py --build "$build" --out "$out" --parts losses --shapes small --commit "$commit" \
    >"$out/losses.json" 2>"$out/losses.log" || bad losses "failed: $(grep FAILED "$out/losses.log" | tail -n 3)"
  say losses "$(grep -c '^{' "$out/losses.log") results in $out/losses.json"
}

run_sweep() {
  several sweep || return
  timeout $((limit + 30)) python3 bench/gpu_sweep.py --build "$build" --out "$out" --jobs "$jobs" --limit "$limit" --commit "$commit" \
    >"$out/sweep.json" 2>"$out/sweep.log" || bad sweep "failed: $(grep FAILED "$out/sweep.log" | tail -n 3)"
  say sweep "$(grep -c '^{' "$out/sweep.log") results in $out/sweep.json"
}

for part in "${parts[@]}"; do "run_$part"; done
if compgen -G "$out/*.json" >/dev/null; then
  python3 bench/multi_gpu_report.py "$out" --command "$command" --commit "$commit" >"$out/result.json" || failed=1
fi
say end "$out"
exit $failed
