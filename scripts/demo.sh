#!/usr/bin/env bash
# A language model cut over two nodes answers, on this machine.
#
#   scripts/demo.sh [--once] [--prompt TEXT] [--model PATH] [--port N]
#
# Installs packages, builds, fetches SmolLM2-135M-Instruct, starts `tutti serve ... -tp 2` on one node and `tutti worker`
# on the other, asks a question and streams the answer, then serves until Ctrl-C (--once: ends after the answer).
# As root the nodes are two network namespaces joined by a veth pair; otherwise two processes on loopback.
source "$(dirname "$0")/lib.sh"

ONCE=0
PROMPT="Why is the sky blue? Answer in two sentences."
MODEL=""
PORT=8000
while (($#)); do
  case "$1" in
    --once) ONCE=1 ;;
    --prompt) PROMPT="${2:?--prompt needs a text}"; shift ;;
    --model) MODEL="${2:?--model needs a path}"; shift ;;
    --port) PORT="${2:?--port needs a number}"; shift ;;
    *) die "unknown option $1; there are --once, --prompt TEXT, --model PATH, --port N" ;;
  esac
  shift
done

TUTTI="$ROOT/build/tutti"
STATE="$(mktemp -d)"
HEAD_PID="" WORKER_PID=""
NODE1="tutti-demo-$$-1" NODE2="tutti-demo-$$-2"
HEAD_IP=127.0.0.1 API_IP=127.0.0.1
ON_NODE1=() ON_NODE2=()

# Ends both nodes and removes the namespaces, whatever happened before.
cleanup() {
  trap - EXIT INT TERM
  local pid
  # The head first: a worker that leaves a serving head would be a loss.
  for pid in $HEAD_PID $WORKER_PID; do
    kill -TERM "$pid" 2>/dev/null || true
    for _ in {1..50}; do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  if ((${#ON_NODE1[@]})); then
    ip netns del "$NODE1" 2>/dev/null || true
    ip netns del "$NODE2" 2>/dev/null || true
  fi
  rm -rf "$STATE"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Two namespaces: node 1 and node 2 joined by one veth pair, and node 1 joined to the host, so that the API can be reached.
make_nodes() {
  if ((EUID != 0)) || ! ip netns add "$NODE1" 2>/dev/null; then
    say nodes "two processes on loopback (network namespaces need root)"
    return
  fi
  if ! ip netns exec "$NODE1" true 2>/dev/null; then
    ip netns del "$NODE1"
    say nodes "two processes on loopback (this machine does not let root enter a network namespace)"
    return
  fi
  ON_NODE1=(ip netns exec "$NODE1") ON_NODE2=(ip netns exec "$NODE2")
  ip netns add "$NODE2"
  local id=$(($$ % 250))
  HEAD_IP="10.231.$id.1" API_IP="10.232.$id.1"
  ip -n "$NODE1" link add cluster0 type veth peer name cluster0 netns "$NODE2"
  ip -n "$NODE1" addr add "$HEAD_IP/24" dev cluster0
  ip -n "$NODE2" addr add "10.231.$id.2/24" dev cluster0
  ip link add "tuttidemo$id" type veth peer name api0 netns "$NODE1"
  ip addr add "10.232.$id.2/24" dev "tuttidemo$id"
  ip -n "$NODE1" addr add "$API_IP/24" dev api0
  ip link set "tuttidemo$id" up
  local node
  for node in "$NODE1" "$NODE2"; do
    ip -n "$node" link set lo up
    ip -n "$node" link set cluster0 up
  done
  ip -n "$NODE1" link set api0 up
  say nodes "namespaces $NODE1 ($HEAD_IP) and $NODE2 (10.231.$id.2), joined by a veth pair"
}

wait_ready() {
  local i
  for ((i = 0; i < 1200; ++i)); do
    kill -0 "$HEAD_PID" 2>/dev/null || { wait "$HEAD_PID" || die "the head ended with exit code $?"; die "the head ended"; }
    kill -0 "$WORKER_PID" 2>/dev/null || { wait "$WORKER_PID" || die "the worker ended with exit code $?"; die "the worker ended"; }
    if curl -fs --max-time 2 "http://$API_IP:$PORT/ready" >/dev/null 2>&1; then return; fi
    sleep 0.1
  done
  die "the cluster was not ready within 120 s"
}

if command -v ss >/dev/null && ss -Hltn "sport = :$PORT" | grep -q .; then
  die "port $PORT is taken: --port N chooses another one"
fi
need_packages "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
build release tutti
LOAD=()
if [[ -z "$MODEL" ]]; then
  status=0
  MODEL="$("$ROOT/scripts/fetch_model.sh" | tail -n 1)" || status=$?
  if ((status == 69)); then
    say model "no registry can be reached: the demo runs a generated random model, its answer is noise"
    MODEL="$(python3 "$ROOT/scripts/make_random_model.py" "$STATE/random-model")"
    LOAD=(--load-format dummy)
  elif ((status != 0)); then
    die "the demo model could not be fetched (see above); --model PATH uses one that is here"
  fi
fi
make_nodes
mkdir -p "$STATE/1" "$STATE/2"
TOKEN="tutti1-$(head -c 4 /dev/urandom | od -An -tx1 | tr -d ' \n')-$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')"

say node1 "tutti serve $(basename "$MODEL") -tp 2 --nnodes 2"
TUTTI_HOME="$STATE/1" TUTTI_CLUSTER_TOKEN="$TOKEN" "${ON_NODE1[@]}" "$TUTTI" serve "$MODEL" -tp 2 --nnodes 2 \
  --master-addr "$HEAD_IP" --host "$API_IP" --port "$PORT" --disable-log-stats "${LOAD[@]}" &
HEAD_PID=$!
say node2 "tutti worker --master-ip $HEAD_IP"
TUTTI_HOME="$STATE/2" TUTTI_CLUSTER_TOKEN="$TOKEN" "${ON_NODE2[@]}" "$TUTTI" worker --master-ip "$HEAD_IP" 2>"$STATE/worker.log" &
WORKER_PID=$!
wait_ready

printf '\n\033[1m> %s\033[0m\n\n' "$PROMPT"
"$TUTTI" chat "$PROMPT" --url "http://$API_IP:$PORT" --max-tokens 120 --temperature 0
if ((${#ON_NODE1[@]})); then
  printf '\nbytes between the nodes: %s\n' "$(ip netns exec "$NODE2" cat /sys/class/net/cluster0/statistics/tx_bytes)"
fi
cat <<TXT

API  http://$API_IP:$PORT/v1
try  curl http://$API_IP:$PORT/v1/chat/completions -H 'Content-Type: application/json' \\
       -d '{"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 50}'
TXT
((ONCE)) && exit 0
say serving "until Ctrl-C"
wait "$HEAD_PID"
