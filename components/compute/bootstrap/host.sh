# shellcheck shell=bash
# Second part of both boot scripts: what makes a host of a VM. It installs the container runtime and kubeadm, gives pods
# a network, keeps them from the metadata server, and joins a cluster.

# Fingerprints of the keys that sign packages: Docker's, and that of the Kubernetes project on the Open Build Service.
readonly DOCKER_KEY=9DC858229FC7DD38854AE2D88D81803C0EBFCD88
readonly KUBERNETES_KEY=DE15B14486CD377B9E876E1A234654DA9A296436

add_line() { # FILE LINE
  grep --quiet --line-regexp --fixed-strings -- "$2" "$1" 2>/dev/null || printf '%s\n' "$2" >>"$1"
}

# The name of the API server stands in the certificate and in every kubeconfig; where it leads differs by VM.
point_api_name() { # NAME ADDRESS
  sed --in-place "/ ${1//./\\.}\$/d" /etc/hosts
  printf '%s %s\n' "$2" "$1" >>/etc/hosts
}

prepare_kernel() {
  swapoff --all
  sed --in-place '/\sswap\s/d' /etc/fstab
  printf '%s\n' overlay br_netfilter >/etc/modules-load.d/kubernetes.conf
  modprobe --all overlay br_netfilter
  printf '%s = 1\n' net.ipv4.ip_forward net.bridge.bridge-nf-call-iptables net.bridge.bridge-nf-call-ip6tables \
    >/etc/sysctl.d/90-kubernetes.conf
  sysctl --quiet --system
}

is_installed() { # PACKAGE VERSION_GLOB
  local found
  # dpkg-query has fields in the shape of shell variables.
  # shellcheck disable=SC2016
  found=$(dpkg-query --show --showformat '${db:Status-Status} ${Version}' "$1" 2>/dev/null) || return 1
  # shellcheck disable=SC2053 # the version is a pattern
  [[ $found == "installed "$2 ]]
}

# Prints the fingerprints of the keys in the armored OpenPGP text on stdin, one a line (RFC 9580, 5.5.4.1: version 4).
fingerprints() {
  python3 -I -c '
import base64, hashlib, re, sys

def packets(data):
    at = 0
    while at < len(data):
        head, first = data[at], data[at + 1]
        if head & 0x40:  # the form that says its own length
            tag, size, at = (head & 0x3F, first, at + 2) if first < 192 else (
                (head & 0x3F, (first - 192 << 8) + data[at + 2] + 192, at + 3) if first < 224
                else (head & 0x3F, int.from_bytes(data[at + 2 : at + 6], "big"), at + 6))
        else:
            width = 1 << (head & 3)
            tag, size, at = head >> 2 & 15, int.from_bytes(data[at + 1 : at + 1 + width], "big"), at + 1 + width
        yield tag, data[at : at + size]
        at += size

for armored in re.findall("-----BEGIN PGP PUBLIC KEY BLOCK-----(.*?)-----END", sys.stdin.read(), re.DOTALL):
    lines = armored.partition("\n\n")[2].split()
    for tag, body in packets(base64.b64decode("".join(line for line in lines if line[0] != "="))):
        if tag == 6:
            print(hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper())
'
}

# Adds a repository of packages that are signed with one key: another one, or one more, is refused.
add_repository() { # NAME KEY_URL FINGERPRINT SOURCE
  local key="/etc/apt/keyrings/$1.asc" fetched="$SCRATCH/$1.asc" found
  curl --silent --show-error --fail --location --retry 8 --retry-connrefused --max-time 60 --output "$fetched" "$2"
  found=$(fingerprints <"$fetched")
  [[ $found == "$3" ]] || die "$2 is not the key $3, but ${found//$'\n'/, }: its packages are not trusted"
  install --mode 0644 "$fetched" "$key"
  printf 'deb [signed-by=%s] %s\n' "$key" "$4" >"/etc/apt/sources.list.d/$1.list"
}

apt_get() { # ARGUMENT...
  DEBIAN_FRONTEND=noninteractive retry 1800 apt-get --quiet --option DPkg::Lock::Timeout=600 "$@"
}

# Installs what an image does not already bring in the versions wanted.
install_packages() {
  local containerd kubernetes packages package missing=()
  containerd=$(setting attributes.tpu-containerd-version)
  kubernetes=$(setting attributes.tpu-kubernetes-version)
  packages=("containerd.io=$containerd" "kubelet=$kubernetes-*" "kubeadm=$kubernetes-*" "kubectl=$kubernetes-*")
  for package in "${packages[@]}"; do
    is_installed "${package%%=*}" "${package#*=}" || missing+=("$package")
  done
  for package in conntrack ethtool iptables socat; do
    is_installed "$package" '*' || missing+=("$package")
  done
  if ((${#missing[@]})); then
    log "installing ${missing[*]}"
    local minor="${kubernetes%.*}" codename
    codename=$(sed --quiet 's/^VERSION_CODENAME=//p' /etc/os-release)
    install --directory /etc/apt/keyrings
    add_repository docker https://download.docker.com/linux/ubuntu/gpg "$DOCKER_KEY" \
      "https://download.docker.com/linux/ubuntu $codename stable"
    add_repository kubernetes "https://pkgs.k8s.io/core:/stable:/v$minor/deb/Release.key" "$KUBERNETES_KEY" \
      "https://pkgs.k8s.io/core:/stable:/v$minor/deb/ /"
    DEBIAN_FRONTEND=noninteractive dpkg --configure --pending # what a boot that was cut short has left
    apt_get update
    # Downgrades: an image may bring a newer containerd than the one that hosts were tried with.
    apt_get install --yes --no-install-recommends --allow-change-held-packages --allow-downgrades "${missing[@]}"
  fi
  apt-mark hold containerd.io kubelet kubeadm kubectl kubernetes-cni cri-tools
}

configure_containerd() {
  cat >/etc/containerd/config.toml <<'TOML'
version = 3

[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = true

  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'

    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = true
TOML
  # The TPU runtime locks memory, and a container may lock no more than the daemon that starts it.
  install --directory /etc/systemd/system/containerd.service.d
  printf '[Service]\nLimitMEMLOCK=infinity\n' >/etc/systemd/system/containerd.service.d/20-memlock.conf
  systemctl daemon-reload
  systemctl enable containerd kubelet
  systemctl restart containerd
}

# Pods get addresses of the VM's alias range, which the VPC routes to this VM: no overlay, no network daemon.
configure_pod_network() {
  local range mtu
  range=$(setting networkInterfaces.0.ipAliases.0)
  mtu=$(setting networkInterfaces.0.mtu)
  install --directory /etc/cni/net.d
  cat >/etc/cni/net.d/10-pods.conflist <<JSON
{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [
    {
      "type": "ptp",
      "mtu": $mtu,
      "ipam": {
        "type": "host-local",
        "dataDir": "/run/cni-ipam",
        "ranges": [[{"subnet": "$range"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
JSON
  # Google's guest agent makes the whole alias range an address of the host itself, and pods unreachable from elsewhere.
  if ! grep --quiet '^ip_aliases = false$' /etc/default/instance_configs.cfg 2>/dev/null; then
    printf '\n[IpForwarding]\nip_aliases = false\n' >>/etc/default/instance_configs.cfg
  fi
  if command -v ggactl_plugin >/dev/null; then
    ggactl_plugin coreplugin restart
  else
    systemctl try-restart google-guest-agent
  fi
  ip route flush table local type local exact "$range"
}

# Any pod could read this VM's access token and, with it, the join secret. Name service (port 53) has the same address
# and stays open. A unit of its own, so that the rules are there before the kubelet of a later boot starts pods.
#
# The second rule is for pods in the host's network, whose packets are the host's own: they are known by their cgroup.
# Programs of the platform that ask the metadata server run in a group of their own. Any pod may name that group, and so
# the rule stops accidents, not attacks: who may have the host's network is up to admission. A cluster that exists has
# programs of others there, and no such rule. Where the kernel does not know the match, the first rule must still hold.
guard_metadata_server() {
  local group guarded='--destination 169.254.169.254/32 --protocol tcp ! --dport 53'
  group=$(setting attributes.tpu-metadata-group '')
  cat >/etc/systemd/system/tpu-metadata-guard.service <<UNIT
[Unit]
Description=Keep pods away from the metadata server
Before=kubelet.service
Wants=kubepods.slice
After=kubepods.slice

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/iptables --wait --insert FORWARD $guarded --jump DROP
${group:+ExecStart=-/usr/sbin/iptables --wait --insert OUTPUT $guarded --match cgroup --path kubepods.slice \
  --match owner ! --gid-owner $group --jump REJECT --reject-with tcp-reset
}
[Install]
WantedBy=multi-user.target
RequiredBy=kubelet.service
UNIT
  systemctl daemon-reload
  systemctl enable --now tpu-metadata-guard.service
}

# What kubeadm puts over the cluster's own kubelet configuration. A spot VM has 30 seconds between notice and power off.
configure_kubelet() {
  local max_pods
  max_pods=$(setting attributes.tpu-max-pods)
  install --directory "$KUBEADM_PATCHES"
  printf '%s\n' "maxPods: $max_pods" 'shutdownGracePeriod: 30s' 'shutdownGracePeriodCriticalPods: 10s' \
    >"$KUBEADM_PATCHES/kubeletconfiguration.yaml"
}

prepare_host() {
  prepare_kernel
  install_packages
  configure_containerd
  configure_pod_network
  guard_metadata_server
  configure_kubelet
}

has_joined() {
  [[ -e $JOINED && $(<"$JOINED") == "$(setting id)" ]]
}

record_join() {
  install --directory "${JOINED%/*}"
  setting id >"$JOINED"
}

# --- Joining a cluster

# Reads the join or peers secret into JOIN; fails, and says why, where its payload cannot be used.
read_join_secret() { # projects/P/secrets/S
  if ! read_json JOIN < <(read_secret "$1"); then
    log 'the secret with the join token cannot be read yet'
  elif ! [[ ${JOIN[caCertHash]:-} =~ ^sha256:[0-9a-f]{64}$ ]]; then
    log 'the secret names no hash of the certificate authority: not joining a cluster that cannot be verified'
  elif ! [[ ${JOIN[token]:-} =~ ^[a-z0-9]{6}\.[a-z0-9]{16}$ && ${JOIN[apiServer]:-} =~ ^[A-Za-z0-9.-]+:[0-9]+$ &&
    ${JOIN[apiName]:-} =~ ^[a-z0-9.-]*$ ]]; then
    log 'the secret has no token, or no address, of the expected form'
  elif ! is_ahead "${JOIN[expires]:-}"; then
    log "the token expired, or is about to (${JOIN[expires]:-no time}): waiting for the next one"
  else
    return 0
  fi
  return 1
}

# Clears away what a failed init or join has made.
kubeadm_reset() {
  kubeadm reset --force --cri-socket "$CRI_SOCKET" || log 'kubeadm reset failed too'
}

# Joins with the JoinConfiguration on stdin. Leaves nothing half joined behind.
kubeadm_join() {
  local config="$SCRATCH/join.yaml" status=0
  install --mode 0600 /dev/stdin "$config"
  kubeadm join --config "$config" || status=$?
  rm --force "$config"
  ((status == 0)) || kubeadm_reset
  return "$status"
}

discovery() {
  cat <<YAML
discovery:
  bootstrapToken:
    token: "${JOIN[token]}"
    apiServerEndpoint: "${JOIN[apiServer]}"
    caCertHashes: ["${JOIN[caCertHash]}"]
YAML
}
