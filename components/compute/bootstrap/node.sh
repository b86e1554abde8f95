# shellcheck shell=bash
# Last part of a node's boot script. It runs at every boot and joins the cluster once; it waits as long as it takes for
# a join token, since the control plane may come up after the nodes. Without an argument it installs itself as a command:
#
#   tpu-node boot

readonly COMMAND=/usr/local/sbin/tpu-node
readonly NODE_CREDENTIAL=/etc/kubernetes/kubelet.conf
# Services have no home directory: what kubectl learns of the API server it would write to the working directory, "/".
export KUBECACHEDIR=$SCRATCH

# Prints taints "key=value:Effect,key:Effect" as a YAML list. Values are strings, "1" and "true" too.
taint_list() { # TAINTS
  local taint taints=() items=()
  IFS=, read -ra taints <<<"$1"
  for taint in "${taints[@]}"; do
    local key_value="${taint%:*}" value=''
    [[ $key_value != *=* ]] || value="${key_value#*=}"
    items+=("{key: \"${key_value%%=*}\", value: \"$value\", effect: \"${taint##*:}\"}")
  done
  local IFS=,
  printf '[%s]' "${items[*]}"
}

# Every label that the kubelet registers with: the program's, and those that only the VM knows.
node_labels() {
  local labels zone group
  labels=$(setting attributes.tpu-node-labels)
  zone=$(setting zone)
  zone="${zone##*/}"
  group=$(setting attributes.created-by)
  printf '%s,cloud.google.com/gke-nodepool=%s' "$labels" "${group##*/}"
  printf ',topology.kubernetes.io/region=%s,topology.kubernetes.io/zone=%s' "${zone%-*}" "$zone"
}

join_configuration() {
  cat <<YAML
apiVersion: $KUBEADM_CONFIG_VERSION
kind: JoinConfiguration
$(discovery)
nodeRegistration:
  name: "$NODE_NAME"
  criSocket: $CRI_SOCKET
  taints: $(taint_list "$NODE_TAINTS")
  kubeletExtraArgs:
  - {name: cloud-provider, value: external}
  - {name: node-labels, value: "$NODE_LABELS"}
patches:
  directory: $KUBEADM_PATCHES
YAML
}

try_join() {
  read_join_secret "$JOIN_SECRET" || return 1
  [[ -z ${JOIN[apiName]:-} ]] || point_api_name "${JOIN[apiName]}" "${JOIN[apiServer]%:*}"
  join_configuration | kubeadm_join
}

own_node() { # KUBECTL_VERB ARGUMENT...
  kubectl --kubeconfig "$NODE_CREDENTIAL" "$1" node "$NODE_NAME" "${@:2}"
}

try_read_own_node() {
  MADE=$(own_node get --ignore-not-found --output 'jsonpath={.metadata.creationTimestamp}')
}

# A kubelet that finds a Node of its name leaves labels and taints as they are. One that is older than this boot is that
# of an earlier VM, whose template may have had others: it goes, and the kubelet registers anew. The cluster lets a node
# delete itself (publish.sh) and no other (NodeRestriction).
forget_earlier_vm() {
  retry 600 try_read_own_node || return 1
  [[ -n $MADE ]] && (($(date --utc --date "$MADE" +%s) < STARTED)) || return 0
  log "forgetting the Node of an earlier VM of this name, made $MADE"
  systemctl stop kubelet
  own_node delete || log 'the cluster does not let it go: its labels and taints stay as they were'
  systemctl start kubelet
}

boot() {
  STARTED=$(date --utc +%s)
  read_instance
  if has_joined; then
    guard_metadata_server
    return
  fi
  NODE_NAME=$(setting name)
  NODE_LABELS=$(node_labels)
  NODE_TAINTS=$(setting attributes.tpu-node-taints '')
  JOIN_SECRET=$(setting attributes.tpu-join-secret)
  prepare_host
  local limit
  limit=$(setting attributes.tpu-join-seconds 86400)
  retry "$limit" try_join || die "no join within $limit seconds; the lines above say why"
  forget_earlier_vm || die 'this node cannot read what the cluster knows of it'
  record_join
  log "joined as $NODE_NAME"
}

main() { # [boot]
  case ${1:-} in
  '') start_boot "$COMMAND" ;;
  boot) boot ;;
  *) die "unknown command $1; write boot, or nothing to install this command" ;;
  esac
}

main "$@"
