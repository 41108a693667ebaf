# Which addresses of other nodes this node reaches over which rail.
#   sh -c THIS reach PYTHON TARGET...       TARGET is NETDEV,MTU,ADDRESS,LABEL
# Lines, tabs between: reach LABEL ok|lost|silent|big_lost|unknown DETAIL
# `lost`: not even ARP is answered. `silent`: ping may be filtered. `big_lost`: small packets pass, whole frames do not.
export LC_ALL=C
one() { # TARGET
  net=${1%%,*} rest=${1#*,}
  mtu=${rest%%,*} rest=${rest#*,}
  address=${rest%%,*} label=${rest#*,}
  say() { printf 'reach\t%s\t%s\t%s\n' "$label" "$1" "$2"; }
  said=$(timeout -k 1 6 ping -n -q -c 2 -i 0.3 -W 1 -I "$net" "$address" 2>&1 </dev/null)
  code=$?
  case $code in
    0)
      case $mtu in
        '' | *[!0-9]*) say ok "" ;;
        *)
          if timeout -k 1 6 ping -n -q -c 2 -i 0.3 -W 1 -M do -s $((mtu - 28)) -I "$net" "$address" >/dev/null 2>&1 </dev/null; then
            say ok "$mtu"
          else
            say big_lost "$mtu"
          fi
          ;;
      esac
      ;;
    1 | 124)
      case $(ip neigh show "$address" 2>/dev/null) in
        *FAILED* | *INCOMPLETE*) say lost "no answer to ARP" ;;
        *) say silent "no answer to ping" ;;
      esac
      ;;
    *) say unknown "ping ended with $code: $(printf '%s' "$said" | tr '\n\t' '  ' | head -c 200)" ;;
  esac
}
python=$1
shift
if ! command -v ping >/dev/null 2>&1; then
  # A datagram of a whole frame to a closed port, which the other side refuses: says the same, and needs no rights.
  if command -v "$python" >/dev/null 2>&1; then
    timeout -k 1 25 "$python" -c '
import os, socket, sys, threading
def source(net):
    try:
        import fcntl, struct
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            return socket.inet_ntoa(fcntl.ioctl(s.fileno(), 0x8915, struct.pack("256s", net.encode()[:15]))[20:24])
    except OSError:
        return None
def answers(net, address, size):
    for _ in range(3):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(1.2)
            s.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER = IP_PMTUDISC_DO
            s.bind((source(net), 0))
            try:
                s.setsockopt(socket.SOL_SOCKET, 25, net.encode())  # SO_BINDTODEVICE: for those who may
            except OSError:
                pass
            s.connect((address, 9))
            try:
                s.send(bytes(size))
                s.recv(1)
                return True
            except ConnectionRefusedError:
                return True
            except OSError:
                continue
    return False
def one(target):
    net, mtu, address, label = target.split(",")
    try:
        if source(net) is None:
            state, detail = "unknown", net + " has no IPv4 address"
        elif not answers(net, address, 8):
            near = os.popen("ip neigh show " + address + " 2>/dev/null").read() if address.replace(".", "").isdigit() else ""
            dead = "FAILED" in near or "INCOMPLETE" in near
            state, detail = ("lost", "no answer to ARP") if dead else ("silent", "no answer to a datagram")
        elif mtu.isdigit() and not answers(net, address, int(mtu) - 28):
            state, detail = "big_lost", mtu
        else:
            state, detail = "ok", mtu
    except OSError as e:
        state, detail = "unknown", str(e)
    print("reach\t%s\t%s\t%s" % (label, state, detail), flush=True)
threads = [threading.Thread(target=one, args=(t,)) for t in sys.argv[1:]]
for t in threads: t.start()
for t in threads: t.join()
' "$@" 2>/dev/null
    exit 0
  fi
  for target in "$@"; do printf 'reach\t%s\tunknown\tneither ping nor %s is there\n' "${target##*,}" "$python"; done
  exit 0
fi
for target in "$@"; do one "$target" & done
wait
