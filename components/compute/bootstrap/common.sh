#!/usr/bin/env bash
# First part of both boot scripts, which the program puts together of the files in this folder (boot_scripts.py). It
# holds how a VM of a self-managed cluster reads its metadata and calls Google's APIs as itself.
#
# No secret is an argument of a process, and none is written anywhere but to memory, below /run, until the script ends.
set -euo pipefail

SCRATCH=$(mktemp --directory /run/tpu-boot.XXXXXXXX)
readonly SCRATCH
trap 'rm --recursive --force "$SCRATCH"' EXIT

declare -A INSTANCE=() # what the metadata server says of this VM
declare -A JOIN=()     # what the join or peers secret says

readonly METADATA=http://169.254.169.254/computeMetadata/v1
readonly SECRET_MANAGER=https://secretmanager.googleapis.com/v1
readonly CRI_SOCKET=unix:///run/containerd/containerd.sock
readonly KUBEADM_PATCHES=/etc/tpu-boot/patches
readonly KUBEADM_CONFIG_VERSION=kubeadm.k8s.io/v1beta4
# Holds the id of the VM that joined, on its boot disk: an image made of this disk still joins under its own name.
readonly JOINED=/var/lib/tpu-boot/joined

log() { # TEXT
  printf '%s tpu-boot: %s\n' "$(date --utc +%FT%TZ)" "$1" >&2
}

die() { # TEXT
  log "error: $1"
  exit 1
}

# Runs a command until it succeeds, pausing 1, 2, 4 ... 60 seconds. Fails once SECONDS_LIMIT seconds are over.
retry() { # SECONDS_LIMIT COMMAND...
  local deadline=$((SECONDS + $1)) pause=1
  shift
  until "$@"; do
    ((SECONDS + pause <= deadline)) || return 1
    sleep "$pause"
    pause=$((pause < 30 ? pause * 2 : 60))
  done
}

# Prints what the JSON document on stdin holds, one line per value: its path ("a.b.0"), a tab, the value.
flatten() {
  python3 -I -c '
import json, sys

def leaves(value, path):
    if isinstance(value, dict) or isinstance(value, list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, [*path, str(key)])
    elif value is not None:
        yield ".".join(path) + "\t" + str(value).replace("\n", " ")

text = sys.stdin.read() or sys.exit(1)
try:
    print(*leaves(json.loads(text), []), sep="\n")
except ValueError:
    sys.exit("what came is not JSON")
'
}

# Prints every value of the JSON document on stdin whose path matches a regular expression of sed's.
json() { # PATH_EXPRESSION
  flatten | sed --quiet "s/^$1\t//p"
}

# Reads the JSON document on stdin into an associative array, by path. Fails where there is nothing to read.
read_json() { # NAME_OF_ARRAY
  local -n into=$1
  local path value
  into=()
  while IFS=$'\t' read -r path value; do
    into["$path"]=$value
  done < <(flatten)
  ((${#into[@]}))
}

# --- This VM, and Google's APIs as its service account

metadata() { # PATH
  curl --silent --show-error --fail --noproxy '*' --retry 5 --retry-connrefused --max-time 20 \
    --header 'Metadata-Flavor: Google' "$METADATA/$1"
}

try_read_instance() {
  read_json INSTANCE < <(metadata 'instance/?recursive=true')
}

read_instance() {
  retry 600 try_read_instance || die 'the metadata server does not answer'
}

# Prints what the metadata server says of this VM: "attributes.NAME" is what the program set.
setting() { # PATH [DEFAULT]
  [[ -n ${INSTANCE[$1]:-} || $# -gt 1 ]] || die "this VM has no metadata $1"
  printf '%s' "${INSTANCE[$1]:-${2:-}}"
}

google_api() { # CURL_ARGUMENT...
  local token
  token=$(metadata instance/service-accounts/default/token | json access_token) || return 1
  curl --silent --show-error --fail --retry 3 --max-time 60 \
    --header @<(printf 'Authorization: Bearer %s\n' "$token") "$@"
}

# Prints the newest payload of a secret.
read_secret() { # projects/P/secrets/S
  google_api "$SECRET_MANAGER/$1/versions/latest:access" | json 'payload\.data' | base64 --decode
}

# Whether an RFC 3339 time is more than two minutes away: enough for a join.
is_ahead() { # TIME
  local seconds
  [[ $1 =~ ^[0-9]{4}-[0-9]{2}-[0-9]{2}T ]] || return 1
  seconds=$(date --utc --date "$1" +%s 2>/dev/null) || return 1
  ((seconds > $(date +%s) + 120))
}

# --- The command

# A startup script runs once a boot, whatever becomes of it. So this one only installs itself as a command, and systemd
# runs that until it succeeds: a package server that does not answer costs a host some time, and not the host.
start_boot() { # COMMAND
  [[ ${BASH_SOURCE[0]} -ef $1 ]] || install --mode 0700 "${BASH_SOURCE[0]}" "$1"
  cat >/etc/systemd/system/tpu-boot.service <<UNIT
[Unit]
Description=TPU platform: prepare this VM and bring it into its cluster
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart=$1 boot
Restart=on-failure
RestartSec=30
TimeoutStartSec=infinity
StandardOutput=journal+console
StandardError=journal+console
UNIT
  systemctl daemon-reload
  systemctl start --no-block tpu-boot.service
}
