# shellcheck shell=bash
# Fifth part of the control plane's boot script: what is done regularly besides publishing.

# --- Snapshots of etcd

# What makes the cluster the one it is, besides what etcd holds: authorities, the key of its tokens, and the key that
# secrets in etcd are encrypted with. Below /etc/kubernetes.
readonly KEYS=(pki/{ca,front-proxy-ca,etcd/ca}.{crt,key} pki/sa.{key,pub} api-server/encryption.yaml)
# Which keys were put away last, on the boot disk: a new VM puts them away again.
readonly KEPT=/var/lib/tpu-boot/kept-keys

# Adds the keys to their secret, which this VM can add to and neither read nor empty: when they are others, and monthly.
keep_keys() {
  local secret kept payload
  secret=$(setting attributes.tpu-keys-secret)
  kept="$(date --utc +%Y-%m) $secret $(cd /etc/kubernetes && sha256sum "${KEYS[@]}" | sha256sum)"
  [[ ! -e $KEPT || $(<"$KEPT") != "$kept" ]] || return 0
  payload=$(tar --create --gzip --directory /etc/kubernetes "${KEYS[@]}" | base64 --wrap=0 | base64 --wrap=0)
  printf '{"payload": {"data": "%s"}}' "$payload" | post_json "$SECRET_MANAGER/$secret:addVersion" --output /dev/null
  printf '%s' "$kept" >"$KEPT"
  log "put the keys of the cluster into $secret"
}

snapshot() {
  keep_keys
  local container bucket object certificates=$PKI/etcd file=/var/lib/etcd/snapshot.db
  bucket=$(setting attributes.tpu-backup-bucket)
  object="etcd/$CLUSTER/$(date --utc +%FT%TZ).db"
  container=$(crictl --runtime-endpoint "$CRI_SOCKET" ps --quiet --name '^etcd$' --state running)
  rm --force "$file"
  crictl --runtime-endpoint "$CRI_SOCKET" exec "$container" etcdctl --endpoints https://127.0.0.1:2379 \
    --cacert "$certificates/ca.crt" --cert "$certificates/healthcheck-client.crt" \
    --key "$certificates/healthcheck-client.key" snapshot save "$file"
  google_api --request POST --max-time 1800 --header 'Content-Type: application/octet-stream' --upload-file "$file" \
    --output /dev/null \
    "https://storage.googleapis.com/upload/storage/v1/b/$bucket/o?uploadType=media&name=${object//\//%2F}"
  rm --force "$file"
  log "saved $object to $bucket"
}

# --- Certificates

# kubeadm's certificates are valid for a year; authorities for ten. Programs read theirs when they start, so each of them
# is started anew by the kubelet. The kubelet's own certificate it renews by itself.
renew() {
  local program container
  init_configuration >"$SCRATCH/renew.yaml"
  kubeadm certs renew all --config "$SCRATCH/renew.yaml"
  for program in etcd kube-apiserver kube-controller-manager kube-scheduler; do
    container=$(crictl --runtime-endpoint "$CRI_SOCKET" ps --quiet --name "^$program\$" --state running)
    # shellcheck disable=SC2086 # one word a container
    [[ -z $container ]] || crictl --runtime-endpoint "$CRI_SOCKET" stop --timeout 30 $container
    [[ $program != kube-apiserver ]] || retry 600 api_server_answers || die 'the API server did not come back'
  done
  log 'renewed the certificates of the control plane'
}

api_server_answers() {
  kubectl get --raw /readyz >/dev/null
}
