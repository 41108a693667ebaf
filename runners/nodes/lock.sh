# The lock of a node: a folder that all users share (as sticky as /tmp), and in it one claim for each run.
# A claim is a folder that only its owner can change; the name is the run id, `info` holds "EXPIRES WHO HOST".
# Whoever claims first writes and then looks: of two at once at least one sees the other, and who sees one withdraws.
export LC_ALL=C
umask 022
now=$(date +%s)
lock_enter() { # ROOT
  mkdir -- "$1" 2>/dev/null && chmod 1777 "$1"
  [ "$(stat -c %a -- "$1")" = 1777 ] || sleep 0.2 # somebody may be making it right now
  # A link could lead anywhere, and without the sticky bit anybody could remove anybody's claim.
  if [ -L "$1" ] || [ ! -d "$1" ] || [ "$(stat -c %a -- "$1")" != 1777 ]; then
    echo "$1 is not a folder of mode 1777: permission denied" >&2
    exit 73
  fi
  cd -- "$1" || exit 73
}
mine() { # is $1 a folder of this user's, and not a link?
  [ -d "$1" ] && [ ! -L "$1" ] && [ "$(stat -c %u -- "$1")" = "$(id -u)" ]
}
claim_line() { # NAME: "claim NAME USER EXPIRES WHO HOST" of a live claim
  [ -d "$1" ] && [ ! -L "$1" ] && [ -f "$1/info" ] && [ ! -L "$1/info" ] || return 1
  info=$(head -c 500 -- "$1/info" 2>/dev/null | tr -cd 'A-Za-z0-9._@: -')
  case ${info%% *} in '' | *[!0-9]* | ???????????????*) return 1 ;; esac
  [ "${info%% *}" -gt "$now" ] || return 1
  echo "claim $1 $(stat -c %U -- "$1") $info"
}
others() { # RUN: live claims of other runs
  for name in *; do
    [ "$name" = "$1" ] || claim_line "$name"
  done
}
write_info() { # RUN INFO
  echo "$2" >"$1/info.$$" && mv -f -- "$1/info.$$" "$1/info"
}
lock_acquire() { # RUN TTL_S WHO HOST
  for name in *; do # claims whose owner died; those of other users are only passed over
    ! mine "$name" || [ ! -f "$name/info" ] || claim_line "$name" >/dev/null || rm -rf -- "$name" 2>/dev/null
  done
  mkdir -- "$1" 2>/dev/null
  mine "$1" || { echo "the claim $1 belongs to somebody else: permission denied" >&2; exit 73; }
  write_info "$1" "$((now + $2)) $3 $4" || { head -c 4096 /dev/zero >"$1/probe"; rm -rf -- "$1"; exit 73; }
  found=$(others "$1")
  [ -z "$found" ] || { rm -rf -- "$1"; echo "$found"; }
  lock_show "$1"
}
lock_show() { # RUN: our own claim
  line=$(claim_line "$1") && echo "own${line#claim}"
  echo end
}
lock_inspect() {
  others ''
  echo end
}
lock_release() { # RUN
  ! mine "$1" || rm -rf -- "$1"
  echo end
}
