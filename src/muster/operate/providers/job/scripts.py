"""What the Jobs run on the node: POSIX shell, with nothing but what every host has.

The container has the host's processes in view (`hostPID`) and enters the host's namespaces through process 1, so all
programs are the host's own. Names and numbers come in as variables of the environment, never as text of the script.
The last line that a script says goes to the termination log: `ok` or `failed`, then words for people.
"""

from __future__ import annotations

PRELUDE = r"""
set -u
LOG="${TERMINATION_LOG:-/dev/termination-log}"
PROC="${PROC_ROOT:-/proc}"
STATE="${STATE_FILE:-/run/muster-stopped-services}"
host() { nsenter -t 1 -m -u -i -n -p -- "$@"; }
one_line() { tr '\n\r\t' '   ' | tr -cd '[:print:]' | cut -c1-700; }
finish() { word="$1"; shift; printf '%s %s\n' "$word" "$(printf '%s' "$*" | one_line)" > "$LOG"; }
succeed() { finish ok "$*"; echo "$*"; exit 0; }
fail() { finish failed "$*"; echo "$*" >&2; exit 1; }
"""

GPU_PRELUDE = r"""
smi() {
  if host test -x "${DRIVER_ROOT%/}/usr/bin/nvidia-smi"; then
    host timeout "${SMI_LIMIT_S:-120}" chroot "$DRIVER_ROOT" nvidia-smi "$@"
  else
    host timeout "${SMI_LIMIT_S:-120}" nvidia-smi "$@"
  fi
}
# GPU services of the host that run are stopped, and started again however this ends. The list is on the host, so that
# a run that was killed is made good by the next one.
start_services() {
  for service in $(host cat "$STATE" 2>/dev/null); do
    host systemctl start "$service" >/dev/null 2>&1 || echo "cannot start $service" >&2
  done
  host rm -f "$STATE"
}
trap start_services EXIT
trap 'exit 143' TERM INT
stop_services() {
  for service in $SERVICES; do
    if host systemctl is-active --quiet "$service" 2>/dev/null; then
      host sh -c 'echo "$1" >> "$2"' sh "$service" "$STATE"
      host systemctl stop "$service" >/dev/null 2>&1 || fail "cannot stop the service $service"
    fi
  done
}
devices() {
  found=""
  for uuid in $GPU_UUIDS; do
    minor="$(smi -q -i "$uuid" 2>/dev/null | sed -n 's/^ *Minor Number *: *\([0-9][0-9]*\).*/\1/p' | head -n 1)"
    [ -n "$minor" ] || { found=""; break; }
    found="$found /dev/nvidia$minor"
  done
  # All of them, when no GPU is named or one does not say which device it is.
  [ -n "$found" ] || found="$(host sh -c 'ls /dev/nvidia[0-9]* 2>/dev/null')"
  echo "$found"
}
holders() {
  pids=""
  if host sh -c 'command -v fuser' >/dev/null 2>&1; then
    pids="$(host fuser $1 2>/dev/null)"
  else
    for dir in "$PROC"/[0-9]*; do
      links="$(ls -l "$dir/fd" 2>/dev/null)"
      for device in $1; do
        case "$links" in *"-> $device"|*"-> $device
"*) pids="$pids ${dir##*/}" ;; esac
      done
    done
  fi
  said=""
  for pid in $(printf '%s\n' $pids | sed 's/[^0-9]//g' | sort -n | uniq); do
    name="$(cat "$PROC/$pid/comm" 2>/dev/null || echo "a process that has ended")"
    said="$said${said:+, }$name (pid $pid)"
  done
  echo "$said"
}
refuse_if_held() {
  held="$(holders "$(devices)")"
  [ -z "$held" ] || fail "the GPU is in use by another client: $held"
}
"""

RESET_GPU = r"""
marker() {
  line="muster-gpu-reset: GPU reset executed: $1, success: $2"
  host sh -c 'echo "<3>$1" >> "$2"' sh "$line" "${KMSG:-/dev/kmsg}" 2>/dev/null || host logger -p daemon.err "$line"
}
stop_services
refuse_if_held
list="$(printf '%s' "$GPU_UUIDS" | tr ' ' ',')"
if [ -n "$list" ]; then said="$(smi --gpu-reset -i "$list" 2>&1)"; else said="$(smi --gpu-reset 2>&1)"; fi
code=$?
uuids="$GPU_UUIDS"
[ -n "$uuids" ] || uuids="$(smi --query-gpu=uuid --format=csv,noheader 2>/dev/null | grep '^GPU-')"
mute=""
for uuid in $uuids; do
  if [ "$code" -eq 0 ] && smi -q -i "$uuid" >/dev/null 2>&1; then
    marker "$uuid" true
  else
    marker "$uuid" false
    mute="$mute $uuid"
  fi
done
case "$said" in
  *"in use by another client"*|*"In use by another client"*)
    fail "the GPU is in use by another client: $(holders "$(devices)") $said" ;;
esac
[ "$code" -ne 124 ] || fail "nvidia-smi --gpu-reset did not end within ${SMI_LIMIT_S:-120} s"
[ "$code" -eq 0 ] || fail "nvidia-smi --gpu-reset failed (exit code $code): $said"
[ -n "$uuids" ] || fail "the reset ended, but nvidia-smi lists no GPU"
[ -z "$mute" ] || fail "the reset ended, but these GPUs do not answer:$mute"
succeed "reset: $(printf '%s ' $uuids)"
"""

RESTART_DRIVER = r"""
modules="nvidia_drm nvidia_modeset nvidia_peermem nvidia_uvm nvidia"
stop_services
GPU_UUIDS=""
refuse_if_held
was=""
for module in $modules; do
  grep -q "^$module " "$PROC/modules" 2>/dev/null || continue
  said="$(host modprobe -r "$module" 2>&1)" || {
    for again in $was nvidia; do host modprobe "$again" >/dev/null 2>&1; done
    fail "cannot unload $module: $said"
  }
  was="$module $was"
done
for module in ${was:-nvidia nvidia_uvm}; do
  said="$(host modprobe "$module" 2>&1)" || fail "cannot load $module: $said"
done
smi -L >/dev/null 2>&1 || fail "the driver was loaded again, but nvidia-smi does not answer"
succeed "driver modules were loaded again: ${was:-nvidia nvidia_uvm}"
"""

REBOOT = r"""
now="$(cat "$PROC/sys/kernel/random/boot_id" 2>/dev/null)"
if [ -n "$BOOT_ID_BEFORE" ] && [ -n "$now" ] && [ "$now" != "$BOOT_ID_BEFORE" ]; then
  succeed "the node has booted already"
fi
sync
if said="$(host timeout 30 systemctl reboot 2>&1)"; then
  finish ok "systemctl reboot was accepted"
  sleep "${SHUTDOWN_S:-180}"
fi
# Still here: the shutdown hangs, or there is no systemd. The kernel is asked by itself.
echo 1 > "$PROC/sys/kernel/sysrq" 2>/dev/null
echo s > "$PROC/sysrq-trigger" 2>/dev/null
sleep "${SYNC_S:-2}"
echo b > "$PROC/sysrq-trigger" || fail "systemctl reboot failed ($said), and so did sysrq"
sleep "${SHUTDOWN_S:-180}"
fail "the node did not go down after systemctl reboot and sysrq"
"""


def reset_gpu() -> str:
    """Variables: GPU_UUIDS (by blanks; empty is all), DRIVER_ROOT, SERVICES (by blanks)."""
    return PRELUDE + GPU_PRELUDE + RESET_GPU


def restart_driver() -> str:
    """Variables: GPU_UUIDS (ignored), DRIVER_ROOT, SERVICES."""
    return PRELUDE + GPU_PRELUDE + RESTART_DRIVER


def reboot() -> str:
    """Variables: BOOT_ID_BEFORE."""
    return PRELUDE + REBOOT


def read_result(message: str) -> tuple[bool, str] | None:
    """What a script left in the termination log: whether it worked, and its words. None: nothing of ours."""
    word, _, text = message.strip().partition(" ")
    if word not in ("ok", "failed"):
        return None
    return word == "ok", text.strip()
