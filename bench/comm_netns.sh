#!/bin/bash
# Two network namespaces joined by a veth pair, as two nodes on one machine, for the time of one command; needs root.
#
#   bench/comm_netns.sh COMMAND...
#
# The command finds NETNS_A, NETNS_B (names), ADDRESS_A, ADDRESS_B and VETH (the interface's name in both). Optional:
# RATE=100mbit limits the link in both directions. Nothing is left behind, whatever way the command ends.
set -euo pipefail
[ $# -gt 0 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
[ "$(id -u)" = 0 ] || { echo "network namespaces need root" >&2; exit 2; }

tag=tutti$$
export NETNS_A=${tag}a NETNS_B=${tag}b ADDRESS_A=10.99.7.1 ADDRESS_B=10.99.7.2 VETH=veth0
cleanup() { ip netns del "$NETNS_A" 2>/dev/null || true; ip netns del "$NETNS_B" 2>/dev/null || true; }
trap cleanup EXIT
trap 'exit 130' INT TERM

ip netns add "$NETNS_A"
ip netns add "$NETNS_B"
ip link add "$VETH" netns "$NETNS_A" type veth peer name "$VETH" netns "$NETNS_B"
for side in A B; do
  netns=NETNS_$side address=ADDRESS_$side
  ip -n "${!netns}" addr add "${!address}/24" dev "$VETH"
  ip -n "${!netns}" link set lo up
  ip -n "${!netns}" link set "$VETH" up
  if [ -n "${RATE:-}" ]; then
    tc -n "${!netns}" qdisc add dev "$VETH" root tbf rate "$RATE" burst 256kb latency 50ms
  fi
done
# The kernel tells of a link with up to a second's delay, and NCCL takes none that is not said to run.
for side in A B; do
  netns=NETNS_$side
  for ((turn = 0; ; turn++)); do
    [[ "$(ip -n "${!netns}" link show "$VETH")" == *"state UP"* ]] && break
    ((turn < 50)) || { echo "$VETH in ${!netns} is not up after 5 s" >&2; exit 1; }
    sleep 0.1
  done
done
"$@"
