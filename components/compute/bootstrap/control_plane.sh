# shellcheck shell=bash
# Last part of the control plane's boot script. Without an argument it installs itself as a command; `boot` brings the
# cluster up (or back, where the data disk holds one already), and has timers publish credentials, take snapshots and
# renew certificates:
#
#   tpu-control-plane [boot | publish | snapshot | renew]

# --- The data disk: etcd and /etc/kubernetes, which outlive the VM

mount_once() { # DIRECTORY OPTIONS_OF_FSTAB...
  install --directory "$1"
  add_line /etc/fstab "${*:2}"
  mountpoint --quiet "$1" || mount "$1"
}

mount_data_disk() {
  local status=0
  retry 300 test -e "$DEVICE" || die "no disk $DEVICE: attach the data disk under the device name \"data\""
  blkid --probe "$DEVICE" >/dev/null || status=$?
  case $status in
  0) ;;
  2) mkfs.ext4 -q -m 0 "$DEVICE" ;; # nothing at all is on it
  *) die "cannot tell what is on $DEVICE (blkid: $status)" ;;
  esac
  mount_once "$DATA" "$DEVICE $DATA ext4 defaults,nofail,x-systemd.growfs 0 2"
  install --directory --mode 0700 "$DATA/etcd"
  install --directory "$DATA/kubernetes"
  local bind="none bind,nofail,x-systemd.requires-mounts-for=$DATA 0 0"
  mount_once /var/lib/etcd "$DATA/etcd /var/lib/etcd $bind"
  mount_once /etc/kubernetes "$DATA/kubernetes /etc/kubernetes $bind"
  install --directory /etc/systemd/system/kubelet.service.d
  printf '[Unit]\nRequiresMountsFor=/var/lib/etcd /etc/kubernetes\n' \
    >/etc/systemd/system/kubelet.service.d/20-data-disk.conf
  systemctl daemon-reload
}

# --- The command and its timers

install_timer() { # NAME RESTART TIMER_LINE...
  cat >"/etc/systemd/system/tpu-$1.service" <<UNIT
[Unit]
Description=TPU platform control plane: $1
ConditionPathExists=$MEMBER

[Service]
Type=oneshot
ExecStart=$COMMAND $1
TimeoutStartSec=45min
Restart=$2
RestartSec=60
UNIT
  {
    printf '[Unit]\nDescription=TPU platform control plane: %s, regularly\n\n[Timer]\n' "$1"
    printf '%s\n' "${@:3}"
    printf '\n[Install]\nWantedBy=timers.target\n'
  } >"/etc/systemd/system/tpu-$1.timer"
}

start_timers() {
  local bucket timers=(tpu-renew.timer)
  # No two replicas are without their programs at the same time: different days, and after a time in which all machines
  # were off, different hours. What fails is not tried again before the next month: it starts programs anew.
  install_timer renew no "OnCalendar=*-*-$((1 + 7 * REPLICA)) 03:00" Persistent=true RandomizedDelaySec=6h
  # One publisher: two would destroy each other's versions.
  if ((REPLICA == 0)); then
    install_timer publish on-failure OnActiveSec=1s OnCalendar=*:0/30
    timers+=(tpu-publish.timer)
    bucket=$(setting attributes.tpu-backup-bucket '')
    if [[ -n $bucket ]]; then
      # Not again either: where only the keys fail, there would be a snapshot a minute.
      install_timer snapshot no OnCalendar=hourly RandomizedDelaySec=10min
      timers+=(tpu-snapshot.timer)
    fi
  fi
  systemctl daemon-reload
  systemctl enable --now "${timers[@]}"
}

boot() {
  if ! has_joined; then
    mount_data_disk
    prepare_host
    bring_up
    record_join
  else
    guard_metadata_server
  fi
  start_timers
}

main() { # [boot | publish | snapshot | renew]
  if (($# == 0)); then
    start_boot "$COMMAND"
    return
  fi
  read_instance
  NODE_NAME=$(setting name)
  NODE_ADDRESS=$(setting networkInterfaces.0.ip)
  CLUSTER=$(setting attributes.tpu-cluster-name)
  API_NAME="api.$CLUSTER.internal"
  API_ADDRESS=$(setting attributes.tpu-api-address)
  PUBLIC_ADDRESS=$(setting attributes.tpu-public-address '') # where people come from outside; nodes never do
  VERSION=$(setting attributes.tpu-kubernetes-version)
  PODS_CIDR=$(setting attributes.tpu-pods-cidr)
  SERVICES_CIDR=$(setting attributes.tpu-services-cidr)
  REPLICAS=$(setting attributes.tpu-replicas)
  REPLICA=$(setting attributes.tpu-replica)
  case $1 in
  boot | publish | snapshot | renew) "$1" ;;
  *) die "unknown command $1; write publish, snapshot or renew, boot to do what a boot does, or nothing to install it" ;;
  esac
}

main "$@"
