# shellcheck shell=bash
# what box and boxboot share: where things are, who lives, waiting

STATE=${BOX_STATE:-${EDGEGPU_LAB:-/var/tmp/edgegpu-lab}/state}
BOXES=$STATE/boxes
LAN=10.89.0 CG=/sys/fs/cgroup
HIERARCHIES="cpu cpuacct cpuset memory devices freezer blkio pids systemd unified"
NOCAPS=-sys_module,-sys_time                    # one kernel, one clock for all: a box must not set this machine's
GROUP=edgebox-$(cksum <<< "$STATE" | cut -c1-5) # two state folders do not meet
SYSTEM_PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

die() { echo "box: $*" >&2; exit 1; }
wait_for() { # seconds, command...
    local n=$(($1 * 20))
    shift
    while ! "$@"; do
        n=$((n - 1))
        [ $n -gt 0 ] || return 1
        sleep 0.05
    done
}
uts() { readlink "/proc/$1/ns/uts" 2>/dev/null; }
left_our_uts() { [ "$(uts "$1")" != "$(uts $$)" ]; }
note_pid() { # file, process: wait until it has a UTS namespace of its own, which tells it from a later process of the same number
    wait_for 5 left_our_uts "$2"
    echo "$2 $(uts "$2")" > "$1.new"
    mv "$1.new" "$1"
}
live_pid() { # file: print the process that it names if that lives
    local p u
    [ -f "$1" ] && read -r p u < "$1" && [ "$(uts "$p")" = "$u" ] && echo "$p"
}
gone() { ! live_pid "$1" > /dev/null; }
detached() { [ -z "$(losetup -j "$1")" ]; }
second_disk() { # root: print where the box's second disk is mounted below it, if it has one
    [ ! -f "$B/second.img" ] || echo "$1$(cat "$B/second")"
}
named() { # NAME: the box that the rest is about
    [[ ${1:-} =~ ^[a-z][a-z0-9-]{0,11}$ ]] || die "a box's name is a lower-case letter, then up to 11 of a-z 0-9 -"
    N=$1 B=$BOXES/$1
}
running() { P=$(live_pid "$B/pid") || die "$N is not running (box up $N)"; }
