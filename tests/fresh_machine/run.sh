#!/usr/bin/env bash
# The README's two commands on a fresh machine: a bare Debian 12 root made by debootstrap, a clean clone, nothing else.
# By hand, as root; takes as long as both commands, and about 6 GB of disk.
#
#   tests/fresh_machine/run.sh [--keep] [FOLDER]      FOLDER for the root file system (default: a temporary one)
#   MIRROR=URL                                        the Debian mirror, if it is not the host's
set -euo pipefail

KEEP=0
if [[ "${1:-}" == --keep ]]; then
  KEEP=1
  shift
fi
((EUID == 0)) || { echo "run this as root: debootstrap and chroot need it" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "install debootstrap first" >&2; exit 2; }
REPO="$(git -C "$(dirname "$0")" rev-parse --show-toplevel)"
TARGET="${1:-$(mktemp -d)}"
MOUNTS=()

cleanup() {
  local i
  for ((i = ${#MOUNTS[@]} - 1; i >= 0; --i)); do umount -l "${MOUNTS[i]}" || true; done
  ((KEEP)) && echo "kept: $TARGET" || rm -rf --one-file-system "$TARGET"
}
trap cleanup EXIT

bind() {
  mkdir -p "$TARGET$2"
  mount "${@:3}" "$1" "$TARGET$2"
  MOUNTS+=("$TARGET$2")
}

[[ -x "$TARGET/bin/bash" ]] || debootstrap --variant=minbase bookworm "$TARGET" ${MIRROR:+"$MIRROR"}
# Packages come from where this machine gets them: its sources, proxies and certificates.
cp -rL /etc/apt/. "$TARGET/etc/apt/"
cp -L /etc/resolv.conf "$TARGET/etc/resolv.conf"
cp -L /etc/hosts "$TARGET/etc/hosts"
mkdir -p "$TARGET/etc/ssl/certs" "$TARGET/usr/share/keyrings"
# The target's own ca-certificates package would write over this machine's bundle: it gets another name.
cp -L /etc/ssl/certs/ca-certificates.crt "$TARGET/etc/ssl/host-certificates.crt"
cp -rL /usr/share/keyrings/. "$TARGET/usr/share/keyrings/"
[[ -f /etc/pip.conf ]] && cp -L /etc/pip.conf "$TARGET/etc/pip.conf"
# `ip netns` wants / to be a mount point.
mount --bind "$TARGET" "$TARGET"
MOUNTS+=("$TARGET")
bind proc /proc -t proc
bind /sys /sys --rbind
bind /dev /dev --rbind
bind tmpfs /run -t tmpfs
rm -rf "$TARGET/srv/tutti"
mkdir -p "$TARGET/srv"
git clone -q "file://$REPO" "$TARGET/srv/tutti"

inside() { chroot "$TARGET" /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  CI=true LANG=C.UTF-8 PIP_CERT=/etc/ssl/host-certificates.crt bash -c "$1"; }

start=$SECONDS
inside 'cd /srv/tutti && scripts/demo.sh --once'
echo "scripts/demo.sh --once, cold: $((SECONDS - start)) s"
start=$SECONDS
inside 'cd /srv/tutti && scripts/demo.sh --once'
echo "scripts/demo.sh --once, again: $((SECONDS - start)) s"
start=$SECONDS
inside 'cd /srv/tutti && scripts/test.sh'
echo "scripts/test.sh: $((SECONDS - start)) s"
left="$(ip netns list | grep -c '^tutti-demo' || true)"
((left == 0)) || { echo "left behind: $left network namespaces" >&2; exit 1; }
echo "fresh machine: both commands passed"
