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

# Each in a process of its own, which an error ends: whichever fails, the other one is still done. The snapshot goes first.
snapshot() {
  local failed=0
  save_etcd &
  wait $! || failed=1
  keep_keys &
  wait $! || failed=1
  ((!failed)) || die 'the backup is not complete: the lines above say what failed'
}

save_etcd() {
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
# is started anew by the kubelet. The kubelet's own certificate it renews by itself. Two monthly runs fall into this time.
readonly RENEWED_BEFORE=$((60 * 24 * 3600))
# Says that a run has begun and not ended: some programs may still go by the certificates before.
readonly RENEWING=/var/lib/tpu-boot/renewing

renew() {
  local program container
  if [[ ! -e $RENEWING ]] && all_last "$RENEWED_BEFORE"; then
    log 'no certificate ends within 60 days: nothing is renewed'
    return
  fi
  # Whoever restarts programs of a cluster that has trouble makes it worse; unless the certificates are the trouble.
  if all_last 0; then
    api_server_answers || die 'the API server is not ready: no certificate is renewed and no program started anew'
  fi
  touch "$RENEWING"
  init_configuration >"$SCRATCH/renew.yaml"
  kubeadm certs renew all --config "$SCRATCH/renew.yaml"
  for program in etcd kube-apiserver kube-controller-manager kube-scheduler; do
    container=$(crictl --runtime-endpoint "$CRI_SOCKET" ps --quiet --name "^$program\$" --state running)
    # shellcheck disable=SC2086 # one word a container
    [[ -z $container ]] || crictl --runtime-endpoint "$CRI_SOCKET" stop --timeout 30 $container
    [[ $program != kube-apiserver ]] || retry 600 api_server_answers || die 'the API server did not come back'
  done
  rm "$RENEWING"
  log 'renewed the certificates of the control plane'
}

# Whether all certificates that kubeadm renews are valid for so long. A replica that joined has no super-admin.conf.
all_last() { # SECONDS_FROM_NOW
  local file
  for file in "$PKI"/{apiserver*,front-proxy-client,etcd/server,etcd/peer,etcd/healthcheck-client}.crt; do
    openssl x509 -noout -checkend "$1" <"$file" >/dev/null || return 1
  done
  for file in /etc/kubernetes/{admin,super-admin,controller-manager,scheduler}.conf; do
    [[ -e $file ]] || continue
    sed --quiet 's/^ *client-certificate-data: //p' "$file" | base64 --decode |
      openssl x509 -noout -checkend "$1" >/dev/null || return 1
  done
}

api_server_answers() {
  kubectl get --raw /readyz >/dev/null
}
