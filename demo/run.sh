#!/usr/bin/env bash
# The main job on one machine: a global and two zones on SQLite, real Envoys, mutual TLS, a request
# inside a zone, one across zones and one to the outside, a policy that takes effect in both, and a service of both that
# outlives its workload in one. Run it with `make demo`; ONCE=1 stops after the last proof.
set -euo pipefail
cd "$(dirname "$0")/.."

run=$PWD/.strait/demo
bin=${CARGO_TARGET_DIR:-$PWD/target}/debug
envoy=$PWD/.strait/envoy/envoy
started=()
names=()
step=0

bold() { printf '\033[1m%s\033[0m\n' "$*"; }
say() { step=$((step + 1)); printf '\n\033[1m[%d/11]\033[0m %s\n' "$step" "$*"; }
ok() { printf '  \033[32m✓\033[0m %s\n' "$*"; }
fail() {
  printf '  \033[31m✗\033[0m %s\n' "$*" >&2
  printf '    logs: %s/*.log\n' "$run" >&2
  exit 1
}

# Ends what was started, newest first, and waits until it is gone.
clean_up() {
  status=$?
  trap '' INT TERM HUP
  trap - EXIT
  set +e
  for ((i = ${#started[@]} - 1; i >= 0; i--)); do kill -TERM "${started[i]}" 2>/dev/null; done
  for pid in "${started[@]}"; do
    for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
  done
  exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

# start NAME PROGRAM ARGS...: in the background, with a log of its own.
start() {
  local name=$1
  shift
  "$@" >"$run/$name.log" 2>&1 &
  started+=($!)
  names+=("$name")
}

# stop NAME: ends one of them, which may be started again.
stop() {
  local i
  for i in "${!started[@]}"; do
    [ "${names[i]}" = "$1" ] || continue
    kill -TERM "${started[i]}"
    wait "${started[i]}" 2>/dev/null || true
    unset "started[i]" "names[i]"
  done
  started=("${started[@]}")
  names=("${names[@]}")
}

# Fails, with its last words, when one of the processes is gone.
all_alive() {
  local i
  for i in "${!started[@]}"; do
    kill -0 "${started[i]}" 2>/dev/null && continue
    tail -n 5 "$run/${names[i]}.log" >&2
    fail "$1: ${names[i]} ended"
  done
}

# until_ok WHAT SECONDS COMMAND...: tries until the command succeeds; fails when a process died.
until_ok() {
  local what=$1 seconds=$2 deadline
  shift 2
  deadline=$((SECONDS + seconds))
  until "$@" >"$run/last.out" 2>"$run/last.err"; do
    all_alive "$what"
    if [ $SECONDS -ge $deadline ]; then
      cat "$run/last.out" "$run/last.err" >&2
      fail "$what: not within ${seconds}s"
    fi
    sleep 0.2
  done
  # Something else may have answered in its place.
  all_alive "$what"
  ok "$what"
}

# ctl ADDRESS ARGS...: straitctl as the administrator of the control plane there, whose token is in its folder.
ctl() {
  local cp=$1 folder
  shift
  case $cp in "$global") folder=global ;; "$zone1") folder=zone-1 ;; "$zone2") folder=zone-2 ;; esac
  HOME=$run STRAIT_GENERAL_WORK_DIR=$run/$folder "$bin/straitctl" --address "$cp" "$@"
}
global=http://127.0.0.1:5681
zone1=http://127.0.0.1:15681
zone2=http://127.0.0.1:25681

# Whoever listens on one of these already would otherwise be met half-way, or answer in our place.
needed=(127.0.0.1:{5680,5681,5685} 127.0.0.1:{1,2}{5678,5680,5681} 127.0.0.1:{28000,28001,28002,28011,28012,28021}
  127.0.0.1:{19001,19002,19003,19004,19005,19011,19012,19013} 127.0.0.1:{13001,13002,13003,13004,13011,13012}
  127.0.{1,2}.{2,3}:18000 127.0.{1,2}.4:18443 127.0.1.5:18444 127.0.1.6:18000)
taken=()
for at in "${needed[@]}"; do
  if (exec 3<>"/dev/tcp/${at/://}") 2>/dev/null; then taken+=("$at"); fi
done
if [ ${#taken[@]} -gt 0 ]; then
  printf 'in use already: %s\n' "${taken[*]}" >&2
  echo "Stop what listens there (ss -ltnp shows it), perhaps a demo in another terminal, and start again." >&2
  exit 1
fi

say "Building (the first time takes a few minutes)"
cargo build --bins --example echo
rm -rf "$run"
mkdir -p "$run"
ok "binaries in ${bin#"$PWD"/}"

say "Starting global"
start global "$bin/strait-global" --general.workDir "$run/global" --apiServer.https.enabled false \
  --apiServer.http.interface 127.0.0.1 --diagnostics.interface 127.0.0.1 --multizone.global.kds.interface 127.0.0.1
until_ok "global is ready" 60 curl -fsS http://127.0.0.1:5680/ready

say "Starting two zones, each with a token of its own"
start_zone() {
  local name=$1 base=$2
  ctl "$global" generate zone-token --zone "$name" --scope cp >"$run/$name.token"
  start "$name" "$bin/strait-zone" --general.workDir "$run/$name" --apiServer.https.enabled false \
    --apiServer.http.interface 127.0.0.1 --apiServer.http.port "${base}5681" \
    --diagnostics.interface 127.0.0.1 --diagnostics.serverPort "${base}5680" \
    --dpServer.interface 127.0.0.1 --dpServer.port "${base}5678" --dpServer.hds.interval 1s \
    --monitoringAssignmentServer.interface 127.0.0.1 --monitoringAssignmentServer.port "${base}5676" \
    --multizone.zone.name "$name" --multizone.zone.globalAddress grpcs://127.0.0.1:5685 \
    --multizone.zone.kds.rootCaFile "$run/global/strait.crt" --multizone.zone.kds.tokenFile "$run/$name.token"
  until_ok "$name is ready" 60 curl -fsS "http://127.0.0.1:${base}5680/ready"
}
start_zone zone-1 1
start_zone zone-2 2
ctl "$global" wait zones --online 2 --timeout 60s >/dev/null || fail "both zones online"
ok "both zones are online"

say "Applying a mesh with mutual TLS and a permission on global, dataplanes in the zones"
ctl "$global" apply -f examples/mesh.yaml -f examples/allow-all.yaml
mesh_arrived() { ctl "$1" get mesh default -o json | grep -q ca-1; }
until_ok "the mesh arrived in zone 1" 30 mesh_arrived "$zone1"
until_ok "the mesh arrived in zone 2" 30 mesh_arrived "$zone2"
ctl "$zone1" apply -f examples/zone-1
ctl "$zone2" apply -f examples/zone-2

say "Starting services and one Envoy next to each"
start echo-client-1 "$bin/examples/echo" --listen 127.0.0.1:28000 --name client-1
start echo-backend-1 "$bin/examples/echo" --listen 127.0.0.1:28001 --name backend-1
start echo-inventory-1 "$bin/examples/echo" --listen 127.0.0.1:28011 --name inventory-1
start echo-client-2 "$bin/examples/echo" --listen 127.0.0.1:28012 --name client-2
start echo-outside "$bin/examples/echo" --listen 127.0.0.1:28021 --name outside
envoys=0
# proxy ZONE API DP_SERVER NAME ADMIN_PORT TOKEN_ARGS... -- BOOTSTRAP_ARGS...
start_envoy() {
  local zone=$1 api=$2 server=$3 name=$4 admin=$5
  shift 5
  ctl "$api" bootstrap --cp-address "$server" --ca-cert-file "$run/$zone/strait.crt" \
    --token-file "$run/$name.token" --name "$name" "$@" >"$run/$name.yaml"
  envoys=$((envoys + 1))
  start "$name" "$envoy" -c "$run/$name.yaml" --base-id $((7000 + envoys)) --concurrency 1 --log-level warning \
    --drain-strategy immediate --drain-time-s 1
  until_ok "Envoy of $name is live" 60 curl -fsS "http://127.0.0.1:$admin/ready"
}
sidecar() {
  ctl "$global" generate dataplane-token --mesh default --name "$4" >"$run/$4.token"
  start_envoy "$@" --mesh default
}
ingress() {
  ctl "$global" generate zone-token --zone "$1" --scope ingress >"$run/$4.token"
  start_envoy "$@" --proxy-type ingress
}
egress() {
  ctl "$global" generate zone-token --zone "$1" --scope egress >"$run/$4.token"
  start_envoy "$@" --proxy-type egress
}
sidecar zone-1 "$zone1" https://127.0.0.1:15678 backend-1 19002
sidecar zone-1 "$zone1" https://127.0.0.1:15678 client-1 19001
ingress zone-1 "$zone1" https://127.0.0.1:15678 ingress-1 19003
egress zone-1 "$zone1" https://127.0.0.1:15678 egress-1 19004
sidecar zone-2 "$zone2" https://127.0.0.1:25678 inventory-1 19011
sidecar zone-2 "$zone2" https://127.0.0.1:25678 client-2 19012
ingress zone-2 "$zone2" https://127.0.0.1:25678 ingress-2 19013

say "The zones, as global sees them"
ctl "$global" inspect zones

say "A request inside zone 1, and one from zone 1 to a service that lives only in zone 2"
answers() { curl -fsS --max-time 5 "http://127.0.0.1:$1/" | grep "\"service\":\"$2\""; }
until_ok "client-1 reaches backend-1 in its own zone" 60 answers 13001 backend-1
grep -o 'URI=spiffe://default/client[^",]*' "$run/last.out" | head -n1 | sed 's/^/      the backend saw /' || true
until_ok "client-1 reaches inventory-1 in zone 2, through the ingress" 60 answers 13002 inventory-1
until_ok "client-2 reaches backend-1 in zone 1, through the ingress" 60 answers 13012 backend-1

say "A service outside the mesh, reached through the egress of zone 1"
ctl "$global" apply -f examples/external-service.yaml
until_ok "client-1 reaches a service outside the mesh" 60 answers 13003 outside
through_egress() { curl -fsS "http://127.0.0.1:19004/clusters" | grep '^default_outside.*rq_success::[1-9]'; }
until_ok "the egress has let it out" 30 through_egress

say "A policy applied on global changes requests in both zones"
marked() { answers "$1" "$2" | grep '"x-strait-demo":"policy-from-global"'; }
if marked 13001 backend-1 >/dev/null; then fail "the mark was there before the policy"; fi
ctl "$global" apply -f examples/policy.yaml
until_ok "zone 1: requests to backend carry the mark" 30 marked 13001 backend-1
until_ok "zone 2: requests to inventory carry the mark" 30 marked 13011 inventory-1

say "A service of both zones: its workload here ends, and comes back"
ctl "$global" apply -f examples/services/both-zones.yaml
until_ok "client-1 calls inventory, which only zone 2 has" 60 answers 13004 inventory-1
ctl "$zone1" apply -f examples/services/inventory-here.yaml
here() { start echo-inventory-2 "$bin/examples/echo" --listen 127.0.0.1:28002 --name inventory-2; }
here
sidecar zone-1 "$zone1" https://127.0.0.1:15678 inventory-2 19005
until_ok "now its own zone has it, and is preferred" 60 answers 13004 inventory-2
stop echo-inventory-2
until_ok "the workload of zone 1 ended, and zone 2 answers" 60 answers 13004 inventory-1
here
until_ok "it is back, and answers in zone 1 again" 60 answers 13004 inventory-2

# What people see of it.
shown() { curl -fsS "$1/gui" | grep -o "$2"; }
until_ok "the page of global shows both zones online" 30 shown "$global" "2 of 2 zones online"
until_ok "the page of zone 1 shows its link" 30 shown "$zone1" "connected"

say "Everything works"
cat <<END
  global REST     $global        (try: $bin/straitctl --work-dir ${run#"$PWD"/}/global inspect zones)
  zone 1 REST     $zone1       zone 2 REST     $zone2
  metrics         http://127.0.0.1:5680/metrics
  in zone 1       curl http://127.0.0.1:13001/
  across zones    curl http://127.0.0.1:13002/
  to the outside  curl http://127.0.0.1:13003/
  of both zones   curl http://127.0.0.1:13004/
  Envoy of client-1  http://127.0.0.1:19001/
  logs            $run/*.log
  pages of zones  $zone1/gui  $zone2/gui
  to sign in      the token in ${run#"$PWD"/}/global/admin-user-token, or that in the folder of the zone
  the page        $global/gui
END
if [ "${ONCE:-}" = 1 ]; then exit 0; fi
trap 'exit 0' INT TERM HUP
bold "Press Ctrl-C to stop everything."
while sleep 1; do all_alive "running"; done
