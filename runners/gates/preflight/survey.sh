# What a node says of itself, for the preflight checks and the manifest. Reads, changes nothing; POSIX sh and coreutils,
# other tools where they are there. Everything bounded: each tool by its time limit, the whole by the caller's.
#   sh -c THIS survey ROOT ENGINE VENDOR IMAGE MODEL "HCA HCA" "NETDEV NETDEV" "PORT PORT"
# Answers, one a line, tabs between: NAME VALUE; `#row TABLE CELL...`; `#none NAME WHY`; `#block NAME`, raw lines, `#end`.
root=$1 engine=$2 vendor=$3 image=$4 model=$5 hcas=$6 netdevs=$7 ports=$8
sys=${TWINRAIL_SYS:-/sys}
export LC_ALL=C

p() { printf '%s\t%s\n' "$1" "$2"; }
none() { printf '#none\t%s\t%s\n' "$1" "$2"; }
row() { # TABLE CELL...
  printf '#row'
  for cell in "$@"; do printf '\t%s' "$cell"; done
  echo
}
first() { # into $value the first line of file $1; empty without it
  value=
  { read -r value <"$1"; } 2>/dev/null || [ -n "$value" ]
}
line() { # NAME FILE
  if first "$2"; then p "$1" "$value"
  elif [ ! -e "$2" ]; then none "$1" "$2 is not there"
  elif [ ! -r "$2" ]; then none "$1" "$2 may not be read by this user"
  fi
}
block() { # NAME TEXT
  printf '#block\t%s\n%s\n#end\n' "$1" "$2"
}
tool() { # NAME SECONDS COMMAND...: its output as a block, or why there is none
  name=$1 limit=$2
  shift 2
  command -v "$1" >/dev/null 2>&1 || { none "$name" "$1 is not installed"; return 1; }
  said=$(timeout -k 1 "$limit" "$@" </dev/null 2>&1)
  code=$?
  case $code in
    0) block "$name" "$said"; return 0 ;;
    124 | 137) none "$name" "$1 did not answer within $limit s" ;;
    *) none "$name" "$1 ended with $code: $(printf '%s' "$said" | tr '\n\t' '  ' | head -c 300)" ;;
  esac
  return 1
}

# --- host
p host.name "$(uname -n)"
p host.kernel "$(uname -r)"
p host.machine "$(uname -m)"
p host.user "$(id -un 2>/dev/null)"
p host.uid "$(id -u)"
p host.groups "$(id -Gn 2>/dev/null)"
p host.cpus "$(nproc --all 2>/dev/null)"
p host.cpus_usable "$(nproc 2>/dev/null)"
line host.boot_id /proc/sys/kernel/random/boot_id
line host.cmdline /proc/cmdline
line host.uptime /proc/uptime
line host.load /proc/loadavg
{ while IFS='=' read -r key value; do [ "$key" != PRETTY_NAME ] || p host.os "$value"; done </etc/os-release; } 2>/dev/null
{
  while read -r a b c d; do
    [ "$a $b" != "model name" ] || { p host.cpu_model "${d#: }"; break; }
  done </proc/cpuinfo
} 2>/dev/null
{
  while read -r key value _; do
    case $key in MemTotal: | MemAvailable: | SwapTotal: | SwapFree: | HugePages_Total:) p "memory.${key%:}" "$value" ;; esac
  done </proc/meminfo
} 2>/dev/null
{
  while read -r key value; do
    case $key in
      Cpus_allowed_list:) p affinity.cpus "$value" ;;
      Mems_allowed_list:) p affinity.mems "$value" ;;
    esac
  done </proc/self/status
} 2>/dev/null
for node in /sys/devices/system/node/node[0-9]*; do
  first "$node/cpulist" && row numa "${node##*/node}" "$value"
done
governors=' '
for file in /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor; do
  first "$file" || continue
  case $governors in *" $value "*) ;; *) governors="$governors$value " ;; esac
done
if [ "$governors" = ' ' ]; then none host.governor "no cpufreq here"; else p host.governor "${governors% }"; fi
line host.no_turbo /sys/devices/system/cpu/intel_pstate/no_turbo

# --- limits and settings
[ -r /proc/self/limits ] && block limits "$(cat /proc/self/limits)"
{
  while IFS=: read -r number controllers path; do row cgroup "$number" "$controllers" "$path"; done </proc/self/cgroup
} 2>/dev/null
at=
{ while IFS=: read -r number _ path; do [ "$number" != 0 ] || at=$path; done </proc/self/cgroup; } 2>/dev/null
while [ -n "$at" ]; do # the tightest limit of the cgroup and of those above it holds
  for name in cpu.max memory.max cpuset.cpus.effective; do
    first "/sys/fs/cgroup$at/$name" && row limit "$name" "$at" "$value"
  done
  case $at in */*) at=${at%/*} ;; *) at= ;; esac
done
# one byte at a time, as read does it, these files end after the first: head reads them whole
said=$(cd /proc/sys && head -v -n 1 kernel/numa_balancing vm/zone_reclaim_mode vm/swappiness vm/max_map_count \
  vm/overcommit_memory kernel/perf_event_paranoid kernel/yama/ptrace_scope kernel/pid_max kernel/threads-max \
  net/core/rmem_max net/core/wmem_max net/core/somaxconn net/ipv4/ip_local_port_range net/ipv4/conf/all/arp_ignore \
  net/ipv4/conf/all/arp_announce net/ipv4/conf/all/rp_filter 2>/dev/null)
block sysctl "$said"
line kernel.thp /sys/kernel/mm/transparent_hugepage/enabled
modules=
{
  while read -r name _; do
    case $name in
      nvidia | nvidia_peermem | nv_peer_mem | nvidia_fs | gdrdrv | mlx5_core | mlx5_ib | ib_uverbs | rdma_cm | rdma_ucm | amdgpu | hydcu | hycu)
        modules="$modules $name" ;;
    esac
  done </proc/modules
} 2>/dev/null
[ -r /proc/modules ] && p kernel.modules "${modules# }"

# --- disk
df -Pk -- "$root" /tmp /dev/shm $([ ! -d "$model" ] || printf '%s' "$model") 2>/dev/null | while read -r d size used free pct mount; do
  row disk "$mount" "$size" "$free" "$d"
done
p disk.root "$(df -Pk -- "$root" 2>/dev/null | tail -n 1 | tr -s ' ' '\t' | cut -f 6)"
[ ! -d "$model" ] || p disk.model "$(df -Pk -- "$model" 2>/dev/null | tail -n 1 | tr -s ' ' '\t' | cut -f 6)"

# --- rails
for dir in "$sys"/class/infiniband/*; do
  [ -e "$dir" ] || continue
  hca=${dir##*/} net=
  for path in "$dir"/device/net/*; do [ ! -e "$path" ] || { net=${path##*/}; break; }; done
  [ -n "$net" ] || { first "$dir/ports/1/gid_attrs/ndevs/0" && net=$value; }
  row hca "$hca" netdev "$net"
  for name in state phys_state rate link_layer; do first "$dir/ports/1/$name" && row hca "$hca" "$name" "$value"; done
  for name in fw_ver board_id node_guid device/numa_node; do first "$dir/$name" && row hca "$hca" "${name##*/}" "$value"; done
  pci=$(readlink -f "$dir/device" 2>/dev/null) && row hca "$hca" pci "${pci##*/}"
  first "$dir/device/iommu_group/type" && row hca "$hca" iommu "$value"
  for path in "$dir"/device/infiniband_verbs/uverbs*; do [ ! -e "$path" ] || row hca "$hca" verbs "/dev/infiniband/${path##*/}"; done
  for file in "$dir"/ports/1/gids/*; do
    first "$file" || continue
    case $value in *[1-9a-f]*) ;; *) continue ;; esac
    gid=$value index=${file##*/} type=
    first "$dir/ports/1/gid_attrs/types/$index" && type=$value
    value=
    first "$dir/ports/1/gid_attrs/ndevs/$index"
    row gid "$hca" "$index" "$type" "$gid" "$value"
  done
done
[ -d "$sys/class/infiniband" ] || none hca "$sys/class/infiniband is not there: no RDMA driver is loaded"
for path in /dev/infiniband/*; do [ ! -e "$path" ] || row device "$path"; done
if [ -d "$sys/class/net" ]; then
  for path in "$sys"/class/net/*; do
    net=${path##*/}
    case " $netdevs " in *" $net "*) ;; *) [ -e "$path/device" ] || continue ;; esac
    for name in mtu speed operstate carrier address device/numa_node; do
      first "$path/$name" && row net "$net" "${name##*/}" "$value"
    done
  done
else
  none net "$sys/class/net is not there"
fi
tool addresses 5 ip -o -4 addr show
if command -v ibv_devinfo >/dev/null 2>&1; then for hca in $hcas; do tool "ibv_devinfo.$hca" 5 ibv_devinfo -d "$hca"; done
else none ibv_devinfo "ibv_devinfo is not installed"; fi

# --- GPUs
who_is() { # PID: one row about a process, as far as this user may look
  one=$1 fields= chain= command=
  { read -r fields <"/proc/$one/stat"; } 2>/dev/null || { row process "$one"; return; }
  set -- ${fields##*) }
  sid=$4 up=$2
  while [ "${up:-0}" -gt 1 ] 2>/dev/null; do
    chain="$chain$up "
    fields=
    { read -r fields <"/proc/$up/stat"; } 2>/dev/null || break
    set -- ${fields##*) }
    up=$2
  done
  command=$(tr '\0\t\n' '   ' <"/proc/$one/cmdline" 2>/dev/null | head -c 300)
  row process "$one" "$(stat -c %U "/proc/$one" 2>/dev/null)" "$sid" "$chain" "$command"
}
case $vendor in
  nvidia)
    basic=index,name,uuid,pci.bus_id,driver_version,memory.total,memory.used
    more=utilization.gpu,pstate,power.limit,clocks.max.sm,persistence_mode,ecc.mode.current,mig.mode.current
    tool gpus 15 nvidia-smi "--query-gpu=$basic,$more" --format=csv ||
      case $said in # a driver that lacks one field answers none of them
        *'not a valid field'*) tool gpus 15 nvidia-smi "--query-gpu=$basic" --format=csv ;;
      esac
    if tool gpu_processes 15 nvidia-smi --query-compute-apps=pid,gpu_uuid,used_memory,process_name --format=csv; then
      seen=' '
      printf '%s\n' "$said" | while IFS=', ' read -r pid _; do
        case $pid in '' | *[!0-9]*) continue ;; esac
        case $seen in *" $pid "*) continue ;; esac
        seen="$seen$pid "
        who_is "$pid"
      done
    fi
    tool nvidia_smi 15 nvidia-smi
    tool topo 15 nvidia-smi topo -m
    tool p2p 15 nvidia-smi topo -p2p r
    [ -r /proc/driver/nvidia/params ] && block nvidia_params "$(cat /proc/driver/nvidia/params)"
    line driver.nvidia /proc/driver/nvidia/version
    ;;
  hygon) tool hy_smi 15 hy-smi; tool gpu_processes_text 15 hy-smi --showpids ;;
  amd) tool rocm_smi 15 rocm-smi --json -a || tool amd_smi 15 amd-smi static --json ;;
esac
for dir in "$sys"/bus/pci/devices/*; do
  first "$dir/class" || continue
  case $value in
    0x0302* | 0x0300* | 0x0380* | 0x0b40* | 0x0c06* | 0x0200* | 0x0207*) ;;
    *) continue ;;
  esac
  class=$value numa= iommu=
  first "$dir/numa_node" && numa=$value
  first "$dir/iommu_group/type" && iommu=$value
  row pci "${dir##*/}" "$class" "$numa" "$iommu"
done
set -- "$sys"/kernel/iommu_groups/*
if [ -e "$1" ]; then p iommu.groups $#; else p iommu.groups 0; fi
if [ "$(id -u)" != 0 ]; then none acs "only root may read it: sudo lspci -vvv | grep ACSCtl"
elif ! command -v lspci >/dev/null 2>&1; then none acs "lspci is not installed"
else
  timeout -k 1 10 lspci -vvv 2>/dev/null | while read -r word rest; do
    case $word in
      [0-9a-f]*:*.[0-9a-f]) bus=$word title=$rest ;;
      ACSCtl:) row acs "$bus" "$title" "$rest" ;;
    esac
  done
  p acs.read yes
fi

# --- containers
if [ -n "$engine" ]; then
  if command -v "$engine" >/dev/null 2>&1; then
    tool engine_version 10 "$engine" --version
    if tool containers 15 "$engine" ps -a --no-trunc --format '{{.ID}}|{{.Names}}|{{.Image}}|{{.Status}}'; then
      ids=
      for id in $(printf '%s\n' "$said" | cut -d'|' -f1 | head -n 100); do ids="$ids $id"; done
      [ -z "$ids" ] || tool container_pids 15 "$engine" inspect -f '{{.Id}} {{.State.Pid}}' $ids
    fi
    [ -z "$image" ] || tool image 15 "$engine" image inspect -f '{{.Id}}{{range .RepoDigests}} {{.}}{{end}}' "$image"
  else
    none containers "$engine is not installed"
  fi
fi

# --- ports
for port in $ports; do
  hex=$(printf '%04X' "$port")
  for table in /proc/net/tcp /proc/net/tcp6; do
    {
      while read -r _ local _ state _ _ _ uid _ inode _; do
        [ "$state" = 0A ] && [ "${local##*:}" = "$hex" ] || continue
        row port "$port" "$inode" "$uid"
        ls -l /proc/[0-9]*/fd 2>/dev/null | while read -r word rest; do
          case "$word $rest" in
            /proc/*/fd:*) pid=${word#/proc/} pid=${pid%/fd:} ;;
            *"socket:[$inode]") row holder "$port" "$pid"; who_is "$pid" ;;
          esac
        done
      done <$table
    } 2>/dev/null
  done
done

# --- who else
tool logins 5 who
tool processes 5 ps -eo pid=,user=,pcpu=,rss=,comm=
for name in nsys ncu dcgmi nv-hostengine rocprof python3 numactl taskset ethtool ibv_devinfo lspci setsid; do
  path=$(command -v "$name" 2>/dev/null) && row tool "$name" "$path"
done
p survey.end yes
