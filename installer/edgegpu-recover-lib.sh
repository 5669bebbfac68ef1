#!/bin/sh
# edgegpu-recover-lib.sh: what edgegpu-recover knows of the journal, and how it undoes: files, units, k3s. It is read by
# edgegpu-recover, which sets ROOT, TX, BASELINE, LOCK, BEGUN, UNPACK, STARTS, DEADMAN and by.
# shellcheck disable=SC2034,SC2154  # names that load and the reader of this file set and use
NEWLINE='
'

say() { echo "edgegpu: $*" >&2; }

call() { timeout 60 "$@" > /dev/null 2>&1 < /dev/null; }

load() { # the record; false where there is none
    version='' agent='' id='' op='' state='' boot_id='' author='' unit='' restart='' reload='' invocation='' was='' why=''
    started_s=0 deadline_wall_s=0 deadline_boot_s=0 attempts=0 settle_s=10 wait_s=180
    [ -r "$TX/state" ] || return 1
    while IFS='=' read -r key value; do
        case $key in
        version | agent | id | op | state | boot_id | author | unit | restart | reload | invocation | was | why) ;;
        started_s | deadline_wall_s | deadline_boot_s | attempts | settle_s | wait_s)
            case $value in '' | *[!0-9]*) value=0 ;; esac ;;
        *) continue ;;
        esac
        eval "$key=\$value" # one of the names above
    done < "$TX/state"
}

write_record() { # into a file that has its room already: two take turns, so that a full disk holds nobody up
    text=$(for key in id op state boot_id started_s deadline_wall_s deadline_boot_s attempts author unit restart reload \
        invocation was settle_s wait_s version agent why; do eval "printf '%s=%s\n' $key \"\$$key\""; done)
    printf '%-4000s\n' "$text$NEWLINE" 1<> "$TX/spare" && sync "$TX/spare" || return 1
    [ ! -e "$TX/state" ] || ln -f "$TX/state" "$TX/state.last" || return 1
    mv -f "$TX/spare" "$TX/state" && sync "$TX" || return 1
    [ ! -e "$TX/state.last" ] || mv -f "$TX/state.last" "$TX/spare"
}

save() { # state, why
    state=$1 why=$(printf '%.1500s' "$2")
    echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) $id $op $state $by$why" 2> /dev/null >> "$TX/log"
    say "$op $id: $state${why:+: $why}"
    write_record || { say "cannot write $TX/state: make room there, or make it writable"; return 1; }
}

same() { # kind, path, what it is compared with: content, mode and owner
    case $1 in
    -) [ ! -e "$2" ] && [ ! -L "$2" ] ;;
    l) [ -L "$2" ] && [ "$(readlink "$2")" = "$(readlink "$3")" ] ;;
    *) [ -f "$2" ] && [ ! -L "$2" ] && [ -f "$3" ] && [ "$(stat -c %a:%u:%g "$2")" = "$(stat -c %a:%u:%g "$3")" ] &&
        [ "$(sha256sum < "$2")" = "$(sha256sum < "$3")" ] ;;
    esac
}

put() { # kind, path, content: there, and on the disk
    case $1 in
    -) rm -f "$2" ;;
    *)
        mkdir -p "${2%/*}" && cp -P --preserve=mode,ownership,timestamps "$3" "$tmp-back" || return 1
        [ "$1" = l ] || sync "$tmp-back" || return 1
        mv -fT "$tmp-back" "$2" ;;
    esac && { [ ! -d "${2%/*}" ] || sync "${2%/*}"; }
}

shared() { # path that k3s reads: is it the user's, with lines of ours in it?
    case $1 in */edgegpu-scheduler.yaml | */90-edgegpu.yaml) return 1 ;; esac
}

has_block() { # path; see config_block.py
    grep -q '^ *# BEGIN edgegpu' "$1" 2> /dev/null && grep -q '^ *# END edgegpu' "$1"
}

block_out() { # path, kind that it was before us: our lines go, every other byte stays
    text=$(sed '/^ *# BEGIN edgegpu/,/^ *# END edgegpu/d' "$1" && echo .) || return 1
    text=${text%.} last=$(tail -n 1 "$1")
    case $(grep '^ *# BEGIN edgegpu' "$1"):$last in
    *'had no end.'*:*'# END edgegpu'*)
        text=${text%"$NEWLINE"}
        case $last in *"$(printf '\r')") text=${text%"$(printf '\r')"} ;; esac ;;
    esac
    case $2$(printf %s "$text" | tr -d '[:space:]') in
    -) rm -f "$1" ;;
    *) cp -p "$1" "$tmp-back" && printf %s "$text" > "$tmp-back" && sync "$tmp-back" && mv -fT "$tmp-back" "$1" ;;
    esac && sync "${1%/*}"
}

restore() { # early | late: put back those targets, last one first; sets failed, kept and changed
    failed='' kept='' changed=''
    # shellcheck disable=SC2046  # five words a row, none with blanks
    set -- "$1" $(tac "$TX/files" 2> /dev/null)
    which=$1
    shift
    while [ $# -ge 5 ]; do
        number=$1 flags=$2 old=$3 new=$4 target=$5
        shift 5
        case $number:$which:$flags in id:* | *:late:*e | *:early:k | *:early:-) continue ;; esac
        restore_one || failed="$failed $target"
    done
    [ -z "$failed" ]
}

restore_one() {
    path=$ROOT$target tmp=$ROOT${target%/*}/.${target##*/}.edgegpu
    [ ! -L "$path.machine" ] || mv -fT "$path.machine" "$path" # a copy at which the plugin lets kubelet wait was there
    rmdir "$path" 2> /dev/null # a runtime makes it for a container that starts with a mount of a file just removed
    ! same "$old" "$path" "$TX/old/$number" || return 0
    if ! same "$new" "$path" "$TX/new/$number"; then # somebody else's: not ours to overwrite
        case $flags in
        *k*) # but lines that name a file which goes would keep k3s down
            if shared "$target" && has_block "$path" && ! has_block "$TX/old/$number"; then
                changed=1
                block_out "$path" "$old" || return 1
            fi ;;
        esac
        kept="$kept $target"
        return 0
    fi
    changed=1
    if [ "$old" != - ] && same "$old" "$tmp-old" "$TX/old/$number"; then
        mv -fT "$tmp-old" "$path" && sync "${path%/*}" # the very file; takes no room
    else
        put "$old" "$path" "$TX/old/$number"
    fi
}

unstage() { # remove what lies beside the targets, and the empty folder that a runtime made in the place of one (see restore_one)
    # shellcheck disable=SC2046
    set -- $(cat "$TX/files" 2> /dev/null)
    while [ $# -ge 5 ]; do
        tmp=$ROOT${5%/*}/.${5##*/}.edgegpu
        [ "$1" = id ] || { rm -f "$tmp-new" "$tmp-old" "$tmp-back"; rmdir "$ROOT$5" 2> /dev/null; }
        shift 5
    done
}

remove_folders() { # table of the journal: those of its folders that are empty, inner ones first
    for folder in $(tac "$TX/$1" 2> /dev/null); do rmdir "$ROOT$folder" 2> /dev/null; done
    return 0
}

reload_systemd() { # a reload may cut cards off containers where these links are missing
    set +f
    for node in "$ROOT"/dev/nvidia* "$ROOT"/dev/nvidia-caps/*; do
        [ -c "$node" ] || continue
        # shellcheck disable=SC2046
        set -- $(stat -L -c '0x%t 0x%T' "$node")
        link=$ROOT/dev/char/$(($1)):$(($2))
        [ -e "$link" ] || [ -L "$link" ] || { mkdir -p "${link%/*}" && ln -s "${node#"$ROOT"}" "$link"; }
    done
    set -f
    call systemctl daemon-reload || say "cannot reload systemd: run systemctl daemon-reload"
}

units_back() { # what ran runs again, on the old files; what did not is stopped
    # shellcheck disable=SC2046
    set -- $(cat "$TX/units" 2> /dev/null)
    while [ $# -ge 2 ]; do
        case $1:$same in
        active:1) call systemctl restart "$2" || failed="$failed $2" ;;
        active:0) call systemctl start --no-block "$2" ;; # a boot has begun: nothing is waited for
        *:1) call systemctl stop "$2" || : ;;
        *) call systemctl stop --no-block "$2" || : ;;
        esac
        shift 2
    done
}

look_at() { # unit; sets now_state, now_start, now_restarts, now_binary
    now_state='' now_start='' now_restarts=0 now_binary=''
    shown=$(timeout 10 systemctl show -p ActiveState -p InvocationID -p NRestarts -p ExecStart "$1" 2> /dev/null)
    IFS=$NEWLINE
    for line in $shown; do
        case $line in
        ActiveState=*) now_state=${line#*=} ;;
        InvocationID=*) now_start=${line#*=} ;;
        NRestarts=*[!0-9]* | NRestarts=) ;;
        NRestarts=*) now_restarts=${line#*=} ;;
        ExecStart=*path=*) now_binary=${line#*path=} now_binary=${now_binary%% ;*} ;;
        esac
    done
    unset IFS
}

k3s_back() { # k3s runs, on the old files, and stays
    [ -n "$unit" ] && [ "$was" = active ] || return 0
    look_at "$unit"
    from=''
    case $now_state:$same in
    inactive:0 | failed:0 | :0) return 0 ;; # the boot starts it after us
    inactive:1 | failed:1) from=none ;;
    *) [ "$restart" = 0 ] || [ "$invocation" = later ] || [ "$now_start" = "$invocation" ] || from=$now_start ;;
    esac
    [ -z "$from" ] || call systemctl restart --no-block "$unit" || return 1
    waited_s=0 up_s=0 first=''
    while [ "$up_s" -lt "$settle_s" ] || [ -z "$first" ]; do
        [ "$waited_s" -lt "$wait_s" ] || return 1
        look_at "$unit"
        if [ "$now_state" != active ] || [ "$now_start" = "$from" ]; then
            first='' up_s=0
        elif [ "$first" != "$now_start" ]; then
            first=$now_start up_s=0
        fi
        [ -n "$first" ] && [ "$up_s" -ge "$settle_s" ] && break
        sleep 1
        waited_s=$((waited_s + 1)) up_s=$((up_s + 1))
    done
    invocation=$first
}

undo() { # why; the lock is held
    case $state in
    PREPARED | STAGED) unstage ;; # no target was touched
    *)
        # Who undoes has time for it: what follows are units, k3s, and k3s staying up
        [ "$same" = 0 ] || deadline_boot_s=$((up_s + wait_s + 180))
        if [ "$state" = ROLLING_BACK ]; then save "$state" "$why"; else save ROLLING_BACK "$1"; fi
        reason=$why
        if ! files_back; then
            save INCONSISTENT "$reason; cannot put back:$failed (all else is as before): make them writable, it is tried again"
            return 1
        fi
        [ "$reload" != 1 ] || reload_systemd
        units_back
        if ! k3s_back; then
            save INCONSISTENT "$reason; every file is as before, but $unit is not up after $wait_s s: journalctl -e -u $unit"
            return 1
        fi
        set -- "$reason${kept:+; left as others changed them meanwhile:$kept}${failed:+; not running again:$failed}" ;;
    esac
    save ROLLED_BACK "$1" || return 1
    tidy || return 1
    call systemctl stop "$DEADMAN.timer" || : # last: it comes for what is left where this is killed. It may be over: 5
}

files_back() {
    if [ "$op" = guard ]; then take_out; else restore late; fi
}

tidy() { # remove what only the way needed; goes on where it was cut off
    files_id='' reload_again=''
    [ ! -r "$TX/files" ] || read -r _ files_id _ < "$TX/files"
    if [ -n "$files_id" ] && [ "$files_id $state" = "$id COMMITTED" ]; then
        unstage
        if [ "$op" = uninstall ]; then vanish; return; fi
    elif [ -n "$files_id" ]; then # undone, or never begun
        restore early || { say "cannot put back:$failed: make them writable, then run systemctl start edgegpu-recover.service"; return 1; }
        reload_again=$changed
        unstage
        remove_folders folders
        set +f
        rm -rf "$BASELINE"/*."$files_id"
        set -f
        rmdir "$BASELINE" 2> /dev/null
    fi
    rm -f "$TX/files"
    [ ! -e "$TX/files" ] || return 1 # what is left is tried again
    rm -rf "$TX/old" "$TX/new" "$TX/spare" "$TX/folders" "$TX/remove" "$TX/units" "$TX/state.new" "$TX/state.last" "$BASELINE/new"
    if tail -n 300 "$TX/log" 2> /dev/null > "$TX/log.new"; then mv -f "$TX/log.new" "$TX/log"; else rm -f "$TX/log.new"; fi
    if copies_away && [ "$state" = COMMITTED ]; then reload_again=1; fi
    [ -z "$reload_again" ] || reload_systemd
}

copies_away() { # the unit files by which what is stopped last ran on (transaction.py puts them there); false where there was none
    none=1
    for copy in edgegpu-plugin.service edgegpu-agent.service; do
        copy=$ROOT/run/systemd/system/$copy
        [ -f "$copy" ] && [ ! -L "$copy" ] && rm -f "$copy" && none=0
    done
    return "$none"
}

vanish() { # an uninstall is complete: the last things go, this program and the journal among them
    gone=''
    # shellcheck disable=SC2046
    set -- $(cat "$TX/files")
    while [ $# -ge 5 ]; do
        path=$ROOT$5 tmp=$ROOT${5%/*}/.${5##*/}.edgegpu
        case $1:$2:$4 in
        id:*) ;;
        *:*e:-) gone="$gone $path" ;;
        *:*e:*) put "$4" "$path" "$TX/new/$1" || say "cannot put back $5" ;;
        esac
        shift 5
    done
    folders=$(tac "$TX/remove" 2> /dev/null)
    set +f
    for version in "$ROOT"/opt/edgegpu/*; do [ -L "$version" ] || rm -rf "$version"; done
    for own in "$ROOT"/var/lib/edgegpu/*; do [ "$own" = "$TX" ] || rm -rf "$own"; done # the plugin's and the agent's
    rm -f "$ROOT/etc/edgegpu/agent.yaml" "$ROOT/etc/edgegpu/cloud-token" # `edgegpu agent enrol` wrote them, in no transaction
    set -f
    rmdir "$ROOT/opt/edgegpu" 2> /dev/null
    rm -rf "$TX/old" "$TX/new"
    # One burst: a power cut between these leaves things that do nothing
    # shellcheck disable=SC2086
    rm -rf $gone "$TX" "$STARTS" "$LOCK" "$BEGUN" "$UNPACK"
    for folder in $folders /var/lib/edgegpu; do rmdir "$ROOT$folder" 2> /dev/null; done
    sync
    copies_away
    reload_systemd
}

baseline_rows() { # rows of what k3s reads: folder number flags kind path
    set +f
    for index in "$BASELINE"/*/index; do
        [ -r "$index" ] || continue
        while read -r number flags kind target; do
            case $flags in *k*) echo "${index%/*} $number $flags $kind $target" ;; esac
        done < "$index"
    done
    set -f
}

take_out() { # what k3s reads of us becomes as it was before edgegpu came; a copy is kept for whoever looks for the cause
    failed='' kept=''
    mkdir -p "$TX/taken"
    # shellcheck disable=SC2046
    set -- $(baseline_rows | tac)
    while [ $# -ge 5 ]; do
        path=$ROOT$5 tmp=$ROOT${5%/*}/.${5##*/}.edgegpu
        if shared "$5"; then
            if has_block "$path"; then
                cp -P "$path" "$TX/taken/${5##*/}" 2> /dev/null
                block_out "$path" "$4" || failed="$failed $5"
            fi
        elif ! same "$4" "$path" "$1/$2"; then
            cp -P "$path" "$TX/taken/${5##*/}" 2> /dev/null
            put "$4" "$path" "$1/$2" || failed="$failed $5"
        fi
        shift 5
    done
    [ -z "$failed" ]
}
